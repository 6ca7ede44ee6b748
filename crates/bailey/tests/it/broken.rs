//! Servers that lie or vanish: whatever the command line cannot take for the run's ending is no success.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::server::{bailey, text};

const STARTED: &str = r#"{"seq":1,"time_ms":1,"event":"started","run":"run_00000000000000000000000001","sandbox":"sbx00000000000000000000000001","wall":"container","reason":"default","accelerated":null,"parked":true,"fences":[]}"#;
const OUTPUT: &str = r#"{"seq":2,"time_ms":2,"event":"stdout","text":"so far\n"}"#;
const ENDED: &str = r#"{"seq":3,"time_ms":3,"event":"ended","ending":{"kind":"exited","code":0},"limits_hit":[],"output_dropped":0,"versions":[],"notices":[],"more_notices":0,"usage":{"wall_ms":1,"cpu_us":1,"memory_peak_bytes":1}}"#;

/// A server that gives each connection the next of these bodies, the last one for ever, and closes.
fn serve(bodies: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (count, connection) in listener.incoming().enumerate() {
            let mut connection = connection.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            // The head, and as much of the body as came with it, is enough.
            while !text(&request).contains("\r\n\r\n") {
                let read = connection.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..read]);
            }
            let body = bodies.get(count).or(bodies.last()).unwrap();
            // Without a length: the body is what comes until the connection closes, so that any cut is a clean one.
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
            connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

fn run(bodies: &[String]) -> (Option<i32>, String, String) {
    let url = serve(bodies.to_vec());
    let output = bailey().args(["--server", &url, "--token", "t", "run", "--", "true"]).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_stream_without_an_ending_is_never_a_success() {
    let whole = format!("{STARTED}\n{OUTPUT}\n{ENDED}\n");
    let (code, said, error) = run(std::slice::from_ref(&whole));
    assert_eq!((code, said.as_str()), (Some(0), "so far\n"), "{error}");
    // Cut anywhere before the ending's line is whole, for good.
    for cut in [0, 1, STARTED.len(), STARTED.len() + 1, STARTED.len() + OUTPUT.len() + 2, whole.len() - 2] {
        let (code, _, error) = run(&[whole[..cut].to_owned(), String::new()]);
        assert_eq!(code, Some(125), "cut at {cut}: {error}");
        assert!(error.contains("broke off"), "cut at {cut}: {error}");
    }
}

#[test]
fn a_broken_stream_is_taken_up_where_it_broke() {
    let (code, said, error) = run(&[format!("{STARTED}\n{OUTPUT}\n"), format!("{ENDED}\n")]);
    assert_eq!((code, said.as_str()), (Some(0), "so far\n"), "{error}");
}

#[test]
fn damaged_events_are_errors() {
    for bad in [
        // One is missing, one comes twice, one is no JSON, one is not of this protocol.
        format!("{STARTED}\n{ENDED}\n"),
        format!("{STARTED}\n{STARTED}\n{OUTPUT}\n{ENDED}\n"),
        format!("{STARTED}\nnonsense\n{ENDED}\n"),
        format!("{STARTED}\n{{\"seq\":2,\"time_ms\":2,\"event\":\"party\"}}\n{ENDED}\n"),
        format!("{STARTED}\n{{\"seq\":2,\"time_ms\":2,\"event\":\"stdout\"}}\n{ENDED}\n"),
        format!("{STARTED}\n{{\"seq\":2,\"time_ms\":2,\"event\":\"stdout\",\"base64\":\"!\"}}\n{ENDED}\n"),
        format!("{STARTED}\n{}\n{ENDED}\n", "x".repeat(2 << 20)),
    ] {
        let (code, _, error) = run(std::slice::from_ref(&bad));
        assert_eq!(code, Some(125), "{}: {error}", &bad[..bad.len().min(400)]);
    }
    let (code, _, error) = run(&["<html>not Bailey</html>".to_owned()]);
    assert_eq!(code, Some(125), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let output =
        bailey().args(["--server", "http://127.0.0.1:1", "--token", "t", "run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("http://127.0.0.1:1"), "{}", text(&output.stderr));
}
