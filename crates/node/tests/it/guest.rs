//! A guest that says exactly what a test wants, byte by byte, on the far side of real yamux.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio_util::compat::TokioAsyncReadCompatExt;
use yamux::{Config, Connection, Mode};

/// One thing that a guest does in answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Writes bytes.
    Say(Vec<u8>),
    /// Writes the same bytes over and over.
    Repeat(Vec<u8>),
    /// Does nothing for a while.
    Wait(Duration),
    /// Never does anything again on this stream.
    Hang,
    /// Closes the stream.
    Close,
    /// Writes bytes past yamux, into the socket itself.
    Raw(Vec<u8>),
    /// Dies.
    Die,
}

/// What a guest does for a request with this path and body.
pub(crate) type Script = Arc<dyn Fn(&str, &[u8]) -> Vec<Step> + Send + Sync>;

/// Bytes that the guest could get rid of.
pub(crate) type Written = Arc<AtomicU64>;

/// Plays a guest until its socket is closed or it dies.
pub(crate) async fn play(socket: UnixStream, script: Script, written: Written) {
    let raw = std::os::fd::OwnedFd::from(socket.into_std().unwrap());
    let again = raw.try_clone().unwrap();
    let socket = UnixStream::from_std(raw.into()).unwrap();
    let again = Arc::new(UnixStream::from_std(again.into()).unwrap());
    let mut connection = Connection::new(socket.compat(), Config::default(), Mode::Server);
    let mut streams = JoinSet::new();
    let (die, mut died) = tokio::sync::mpsc::channel(1);
    loop {
        tokio::select! {
            biased;
            stream = std::future::poll_fn(|cx| connection.poll_next_inbound(cx)) => match stream {
                Some(Ok(stream)) => {
                    streams.spawn(serve(stream, Arc::clone(&script), Arc::clone(&written), Arc::clone(&again), die.clone()));
                }
                _ => return,
            },
            _ = died.recv() => return,
            Some(_) = streams.join_next() => {}
        }
    }
}

async fn serve(
    mut stream: yamux::Stream,
    script: Script,
    written: Written,
    raw: Arc<UnixStream>,
    die: tokio::sync::mpsc::Sender<()>,
) -> Option<()> {
    let mut line = [0; 6];
    stream.read_exact(&mut line).await.ok()?;
    assert_eq!(&line, b"agent\n");
    let mut buffer = Vec::new();
    loop {
        let (path, body) = request(&mut stream, &mut buffer).await?;
        for step in script(&path, &body) {
            match step {
                Step::Say(bytes) => say(&mut stream, &bytes, &written).await?,
                Step::Repeat(bytes) => loop {
                    say(&mut stream, &bytes, &written).await?;
                },
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Hang => std::future::pending().await,
                Step::Close => return stream.close().await.ok(),
                Step::Die => return die.send(()).await.ok(),
                Step::Raw(bytes) => {
                    let mut left = &bytes[..];
                    while !left.is_empty() {
                        raw.writable().await.ok()?;
                        left = &left[raw.try_write(left).unwrap_or(0)..];
                    }
                }
            }
        }
    }
}

async fn say(stream: &mut yamux::Stream, bytes: &[u8], written: &Written) -> Option<()> {
    for piece in bytes.chunks(16 * 1024) {
        stream.write_all(piece).await.ok()?;
        written.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    stream.flush().await.ok()
}

/// Reads one request: its path and its body.
async fn request(stream: &mut yamux::Stream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap().to_lowercase();
            let path = buffer.split(|b| *b == b' ').nth(1).unwrap().to_vec();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                return Some((String::from_utf8(path).unwrap(), body));
            }
        }
        let mut piece = vec![0; 16 * 1024];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => buffer.extend_from_slice(&piece[..n]),
        }
    }
}

/// A whole answer.
pub(crate) fn answer(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut out =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    out
}

/// The head of an event stream.
pub(crate) fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
}

/// Bytes as one HTTP chunk.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

/// An enveloped message.
pub(crate) fn envelope(flags: u8, message: &str) -> Vec<u8> {
    let mut out = vec![flags];
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(message.as_bytes());
    out
}

/// An event as a chunk of its own.
pub(crate) fn event(body: &str) -> Vec<u8> {
    chunk(&envelope(0, &format!(r#"{{"event":{{{body}}}}}"#)))
}

pub(crate) fn started() -> Vec<u8> {
    event(r#""start":{"pid":7}"#)
}

pub(crate) fn output(stream: &str, bytes: &[u8]) -> Vec<u8> {
    event(&format!(r#""data":{{"{stream}":"{}"}}"#, STANDARD.encode(bytes)))
}

/// The end of a program that exited, and of its stream.
pub(crate) fn exited(code: i32) -> Vec<u8> {
    let mut out = event(&format!(r#""end":{{"exitCode":{code},"exited":true,"status":"exit status {code}"}}"#));
    out.extend_from_slice(&chunk(&envelope(2, "{}")));
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// A guest that behaves, and whose every program does `steps` after its start.
pub(crate) fn honest(steps: Vec<Step>) -> Script {
    on_start(move |_| {
        let mut all = vec![Step::Say(stream_head()), Step::Say(started())];
        all.extend(steps.clone());
        all
    })
}

/// A guest that behaves until a program is to be started.
pub(crate) fn on_start(start: impl Fn(&[u8]) -> Vec<Step> + Send + Sync + 'static) -> Script {
    Arc::new(move |path, body| match path {
        "/health" => vec![Step::Say(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
        "/init" => vec![Step::Say(answer("200 OK", "application/json", br#"{"fences":["landlock"]}"#))],
        "/process.Process/Start" => start(body),
        _ => vec![Step::Say(answer("200 OK", "application/json", b"{}"))],
    })
}
