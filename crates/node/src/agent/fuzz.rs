//! What a hostile agent may send (M08): as the bytes of the one stream, as HTTP in a stream of it, and as the events of a
//! program.

use std::time::Duration;

use bailey_protocol::guest::{GENERATION, InitRequest};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::event::{self, Event, MAX_SAID};
use super::frame::{Frame, Frames, MAX_FRAME};
use super::{Agent, AgentError, ExecEvent, MAX_FENCE_BYTES, MAX_FENCES, Program};
use crate::tasks::Tasks;
use crate::transport::Transport;

/// How long the node may go on with one agent that has said all it will.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first stream that a node opens, and the flags of a frame in it.
const STREAM: u32 = 1;
const ACCEPT: u16 = 2;
const CLOSE: u16 = 4;
/// Largest body of one frame of the stream.
const BODY: usize = 16 * 1024;

/// The node comes to an end with whatever an agent says, and hands on nothing larger or odder than it promises.
pub fn guest(data: &[u8]) {
    pieces(data);
    drop(Event::parse(data));
    if let Ok(Some(refusal)) = event::refusal(data) {
        refused(&refusal);
    }
    talk(data.to_vec(), false);
    talk(in_stream(data), true);
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\ncontent-length: {}\r\n\r\n", data.len());
    talk(in_stream(&[head.as_bytes(), data].concat()), true);
}

/// Frames are the same however their bytes are cut.
fn pieces(data: &[u8]) {
    let whole = frames(std::iter::once(data));
    assert_eq!(whole, frames(data.chunks(1)));
    assert_eq!(whole, frames(data.chunks(7)));
}

/// The frames up to a violation, and whether there was one.
fn frames<'d>(pieces: impl Iterator<Item = &'d [u8]>) -> (Vec<Frame>, bool) {
    let (mut frames, mut out) = (Frames::default(), Vec::new());
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.next() {
                Ok(Some(frame)) => out.push(frame),
                Ok(None) => break,
                Err(_violation) => return (out, true),
            }
        }
    }
    (out, false)
}

/// The bytes in frames of the node's first stream, which then ends.
fn in_stream(data: &[u8]) -> Vec<u8> {
    let header = |flags: u16, length: usize| {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        [&[0, 0][..], &flags.to_be_bytes(), &STREAM.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    let mut out = Vec::new();
    for (number, piece) in data.chunks(BODY).enumerate() {
        out.extend(header(if number == 0 { ACCEPT } else { 0 }, piece.len()));
        out.extend_from_slice(piece);
    }
    out.extend(header(CLOSE, 0));
    out
}

/// Says all of `wire` to a node that starts a program, and to one that introduces itself.
fn talk(wire: Vec<u8>, once_asked: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for starts in [true, false] {
            let (host, guest) = UnixStream::pair().expect("a pair of sockets");
            let both = async {
                tokio::join!(agent(guest, &wire, once_asked), node(host, starts));
            };
            assert!(tokio::time::timeout(PATIENCE, both).await.is_ok(), "the node waits for ever");
        }
    });
}

async fn agent(mut socket: UnixStream, wire: &[u8], once_asked: bool) {
    let mut asked = [0; 4096];
    if once_asked && socket.read(&mut asked).await.is_err() {
        return;
    }
    // The node may have hung up.
    drop(socket.write_all(wire).await);
    drop(socket.shutdown().await);
    while matches!(socket.read(&mut asked).await, Ok(1..)) {}
}

async fn node(socket: UnixStream, starts: bool) {
    let tasks = Tasks::new();
    let transport = Transport::start(socket, &tasks);
    let said = match Agent::connect(&transport, &tasks).await {
        Ok(agent) if starts => program(agent).await,
        Ok(agent) => introduction(agent).await,
        Err(error) => Err(error),
    };
    if let Err(error) = said {
        refused(&error);
    }
    drop(transport);
    tasks.finished().await;
}

async fn program(agent: Agent) -> Result<(), AgentError> {
    let program = Program::new(&["true".to_owned()], None, false).expect("a program with a name");
    let mut exec = agent.start(&program).await?;
    loop {
        match exec.next().await? {
            ExecEvent::Output(_, bytes) => assert!((1..=MAX_FRAME).contains(&bytes.len())),
            ExecEvent::Ended(_) => return Ok(()),
        }
    }
}

async fn introduction(mut agent: Agent) -> Result<(), AgentError> {
    let env = std::collections::BTreeMap::new();
    let init = InitRequest { generation: GENERATION, env, mounts: Vec::new(), root: false, open_files: 64 };
    let fences = agent.init(&init).await?;
    assert!(fences.len() <= MAX_FENCES && fences.iter().all(|fence| fence.len() <= MAX_FENCE_BYTES), "{fences:?}");
    agent.health().await
}

/// What an agent says of a refusal is short, and nothing that a terminal acts on.
fn refused(error: &AgentError) {
    if let AgentError::Refused { said, .. } = error {
        assert!(said.chars().count() <= MAX_SAID * 12 && !said.chars().any(char::is_control), "{said:?}");
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a program, in their envelopes.
    fn events(messages: &[&str]) -> Vec<u8> {
        let one = |text: &&str| super::super::frame::envelope(text.as_bytes()).unwrap();
        messages.iter().map(one).collect::<Vec<Bytes>>().concat()
    }

    fn seeds() -> Vec<(&'static str, Vec<u8>)> {
        let start = r#"{"event":{"start":{"pid":7}}}"#;
        let end = r#"{"event":{"end":{"exited":true,"exitCode":0}}}"#;
        let trailer =
            |text: &str| [&[2][..], &u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
        let http = |head: &str, body: &str| format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        vec![
            ("run", events(&[start, r#"{"event":{"data":{"stdout":"AP8="}}}"#, end])),
            ("signal", events(&[start, r#"{"event":{"end":{"status":"signal: killed"}}}"#])),
            ("refusal", trailer(r#"{"error":{"code":"not_found","message":"no \u001b[2J such"}}"#)),
            ("two-starts", events(&[start, start])),
            ("end-before-start", events(&[end])),
            ("4-gib-frame", vec![0, 0xff, 0xff, 0xff, 0xff, b'{']),
            ("compressed-frame", vec![1, 0, 0, 0, 0]),
            ("deep", events(&[&format!("{}1{}", "[".repeat(2000), "]".repeat(2000))])),
            ("json", end.as_bytes().to_vec()),
            ("trailer", br#"{"error":{"code":"resource_exhausted","message":"full"}}"#.to_vec()),
            ("init", http("200 OK", r#"{"fences":["landlock 4","seccomp"]}"#).into_bytes()),
            ("init-long-fence", http("200 OK", &format!(r#"{{"fences":["{}"]}}"#, "f".repeat(65))).into_bytes()),
            ("init-refused", http("500 No", "no").into_bytes()),
            ("http-huge-length", b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nx".to_vec()),
            ("http-two-lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx".to_vec()),
            ("http-chunks", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx".to_vec()),
            ("http-many-headers", format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200)).into_bytes()),
            ("http-upgrade", b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n\0\0".to_vec()),
            ("stream", in_stream(http("200 OK", "{}").as_bytes())),
            ("stream-of-its-own", [0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0].repeat(80)),
            ("stream-4-gib", vec![0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
            ("stream-window", vec![0, 1, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
            ("stream-ping", [0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1].repeat(100)),
            ("stream-farewell", vec![0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            ("stream-version", vec![1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
        ]
    }

    #[test]
    fn m08_the_node_comes_to_an_end_with_whatever_an_agent_says() {
        replay::seeds("guest", &seeds());
        replay::target("guest", 400, guest);
    }
}
