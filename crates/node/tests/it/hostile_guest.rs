//! M08: a guest that breaks the protocol in every way is lost in time, and costs the host a bounded amount of memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bailey_protocol::node::Ending;
use tokio::time::Instant;

use crate::bench::{Bench, spec};
use crate::fake_wall::{Behaviour, FakeWall};
use crate::guest::{
    Script, Step, answer, chunk, envelope, event, exited, honest, on_start, output, started, stream_head,
};

/// Runs against a hostile guest; it has to be lost well before the run's own deadline.
async fn is_lost(name: &str, script: Script) {
    let bench = Bench::new(FakeWall::new(script, Behaviour::default()), 0);
    let begun = Instant::now();
    let mut spec = spec(&["x"]);
    spec.limits.timeout_ms = 30_000;
    let told = bench.run(spec).await;
    assert_eq!(told.ending(), Ending::GuestLost, "{name}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{name} took {:?}", begun.elapsed());
    let written = bench.wall.written.load(Ordering::Relaxed);
    assert!(written < 4 << 20, "{name}: the guest could write {written} bytes");
    bench.empty().await;
}

/// A guest whose answer to one path is `steps`.
fn instead(path: &'static str, steps: Vec<Step>) -> Script {
    let honest = honest(vec![Step::Say(exited(0))]);
    std::sync::Arc::new(move |asked, body| if asked == path { steps.clone() } else { honest(asked, body) })
}

fn after_head(bytes: &[u8]) -> Vec<Step> {
    vec![Step::Say([stream_head(), chunk(bytes)].concat()), Step::Hang]
}

fn running(bytes: Vec<u8>) -> Vec<Step> {
    vec![Step::Say([stream_head(), started()].concat()), Step::Say(bytes), Step::Hang]
}

#[tokio::test]
async fn m08_heads_that_never_end_or_make_no_sense() {
    let endless = |line: &[u8]| vec![Step::Say(b"HTTP/1.1 200 OK\r\n".to_vec()), Step::Repeat(line.to_vec())];
    for path in ["/init", "/process.Process/Start"] {
        is_lost("headers without end", instead(path, endless(b"x: y\r\n"))).await;
        is_lost("one header without end", instead(path, endless(&[b'x'; 1000]))).await;
        is_lost("no http", instead(path, vec![Step::Say(vec![0; 5000]), Step::Hang])).await;
        is_lost("silence", instead(path, vec![Step::Hang])).await;
        is_lost("a closed stream", instead(path, vec![Step::Close])).await;
        is_lost("death", instead(path, vec![Step::Die])).await;
        is_lost("endless 100", instead(path, vec![Step::Repeat(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec())])).await;
        is_lost("an odd status", instead(path, vec![Step::Say(answer("500 X", "text/plain", b"")), Step::Hang])).await;
    }
}

#[tokio::test]
async fn m08_inits_that_lie() {
    let huge = b"HTTP/1.1 200 OK\r\ncontent-length: 4294967296\r\n\r\n".to_vec();
    is_lost("a huge body", instead("/init", vec![Step::Say(huge), Step::Repeat(vec![b' '; 10_000])])).await;
    for body in
        ["", "[]", r#"{"fences":["a\nb"]}"#, r#"{"fences":[1]}"#, &format!(r#"{{"fences":["{}"]}}"#, "x".repeat(100))]
    {
        let steps = vec![Step::Say(answer("200 OK", "application/json", body.as_bytes()))];
        is_lost(body, instead("/init", steps)).await;
    }
    let many = format!(r#"{{"fences":[{}]}}"#, vec![r#""x""#; 100].join(","));
    is_lost("many", instead("/init", vec![Step::Say(answer("200 OK", "application/json", many.as_bytes()))])).await;
}

#[tokio::test]
async fn m08_event_streams_that_lie() {
    let wrong_type = answer("200 OK", "text/html", b"hello");
    is_lost("wrong content type", on_start(move |_| vec![Step::Say(wrong_type.clone())])).await;
    let frames: [(&str, Vec<u8>); 7] = [
        ("a 4 GiB frame", vec![0, 0xff, 0xff, 0xff, 0xff]),
        ("a compressed frame", envelope(1, "{}")),
        ("garbage", envelope(0, "\u{0}garbage")),
        ("deep nesting", envelope(0, &"[".repeat(100_000))),
        ("output before the start", envelope(0, r#"{"event":{"data":{"stdout":"eA=="}}}"#)),
        ("an end before the start", envelope(0, r#"{"event":{"end":{"exited":true}}}"#)),
        ("a trailer and nothing else", envelope(2, "{}")),
    ];
    for (name, frame) in frames {
        is_lost(name, on_start(move |_| after_head(&frame))).await;
    }
    is_lost(
        "a 4 GiB chunk",
        on_start(|_| {
            let head = [stream_head(), b"fffffffffffffffff\r\n".to_vec()].concat();
            vec![Step::Say(head), Step::Repeat(vec![0; 1000])]
        }),
    )
    .await;
}

#[tokio::test]
async fn m08_running_programs_that_lie() {
    let lies: [(&str, Vec<u8>); 7] = [
        ("a second start", started()),
        ("output that is no base64", event(r#""data":{"stdout":"%"}"#)),
        ("an exit code that is none", event(r#""end":{"exited":true,"exitCode":-5}"#)),
        ("an end that is none", event(r#""end":{}"#)),
        ("a trailer without an end", chunk(&envelope(2, "{}"))),
        ("an error after the start", chunk(&envelope(2, r#"{"error":{"code":"not_found"}}"#))),
        ("a body that ends", b"0\r\n\r\n".to_vec()),
    ];
    for (name, lie) in lies {
        is_lost(name, on_start(move |_| running(lie.clone()))).await;
    }
    is_lost(
        "a stream that breaks off",
        on_start(|_| vec![Step::Say([stream_head(), started()].concat()), Step::Close]),
    )
    .await;
    is_lost("death", on_start(|_| vec![Step::Say([stream_head(), started()].concat()), Step::Die])).await;
}

#[tokio::test]
async fn m08_frames_below_http_that_lie() {
    let frame = |version: u8, kind: u8, flags: u16, id: u32, length: u32| {
        [&[version, kind][..], &flags.to_be_bytes(), &id.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    let opened: Vec<u8> = (1..2000).flat_map(|n| frame(0, 1, 1, n * 2, 0)).collect();
    let lies = [
        ("a 4 GiB body", frame(0, 0, 0, 1, u32::MAX)),
        ("a body over the window", frame(0, 0, 0, 1, 300_000)),
        ("another version", frame(9, 0, 0, 1, 0)),
        ("an unknown kind", frame(0, 77, 0, 1, 0)),
        ("unknown flags", frame(0, 0, 0xff00, 1, 0)),
        ("a farewell", frame(0, 3, 0, 0, 0)),
        ("streams without end", opened),
    ];
    for (name, lie) in lies {
        let steps = vec![Step::Say([stream_head(), started()].concat()), Step::Raw(lie), Step::Hang];
        is_lost(name, on_start(move |_| steps.clone())).await;
    }
}

#[tokio::test]
async fn m08_a_guest_that_only_gives_signs_of_life_ends_at_its_deadline() {
    for noise in [event(r#""keepalive":{}"#), event(r#""later":{}"#), output("stdout", b""), chunk(b"\0\0\0\0\x02{}")] {
        let bench = Bench::new(FakeWall::new(honest(vec![Step::Repeat(noise)]), Behaviour::default()), 0);
        let mut spec = spec(&["x"]);
        spec.limits.timeout_ms = 300;
        let told = bench.run(spec).await;
        assert_eq!(told.ending(), Ending::Timeout);
        assert!((100..500).contains(&told.stopped().wall_ms), "{told:?}");
        bench.empty().await;
    }
}
