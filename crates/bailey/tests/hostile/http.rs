//! A small HTTP/1.1 client that sends exactly what it is told: no clean-up of paths, no checks, and reading as
//! slowly as an attacker likes.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Head and body as received, for the oracles.
    pub(crate) raw: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in an answer: {}", String::from_utf8_lossy(&self.raw)))
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) body: BufReader<Body>,
}

/// The bytes of a body, out of their framing. An end that the framing did not announce is an error.
#[derive(Debug)]
pub(crate) struct Body {
    from: BufReader<TcpStream>,
    framing: Framing,
}

#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunk(u64),
    ToEnd,
    Over,
}

/// What to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The request target, sent as it is.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

pub(crate) fn open(server: SocketAddr, request: Request<'_>) -> std::io::Result<Answer> {
    let stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    stream.set_write_timeout(Some(Duration::from_secs(30)))?;
    answer(stream, request)
}

/// As [`open`], on a connection that stays the caller's.
pub(crate) fn answer(mut stream: TcpStream, request: Request<'_>) -> std::io::Result<Answer> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: bailey\r\n", request.method, request.target).into_bytes();
    for (name, value) in request.headers {
        head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    head.extend_from_slice(format!("Content-Length: {}\r\n\r\n", request.body.len()).as_bytes());
    stream.write_all(&head)?;
    // A server may answer and close before it has read a body that it refuses; its answer counts then.
    let sent = stream.write_all(request.body);
    let mut from = BufReader::new(stream);
    match read_head(&mut from) {
        Ok((status, head, framing)) => Ok(Answer { status, head, body: BufReader::new(Body { from, framing }) }),
        Err(error) => Err(sent.err().unwrap_or(error)),
    }
}

fn read_head(from: &mut BufReader<TcpStream>) -> std::io::Result<(u16, Vec<u8>, Framing)> {
    let broken = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let mut head = Vec::new();
    let (mut status, mut framing) = (None, Framing::ToEnd);
    loop {
        let start = head.len();
        if from.read_until(b'\n', &mut head)? == 0 {
            return Err(broken("the answer has no head"));
        }
        let line = String::from_utf8_lossy(&head[start..]).trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if status.is_none() {
            status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        } else if let Some(length) = line.strip_prefix("content-length:") {
            framing = Framing::Length(length.trim().parse().ok().ok_or_else(|| broken("content-length"))?);
        } else if line.starts_with("transfer-encoding:") && line.contains("chunked") {
            framing = Framing::Chunk(0);
        }
    }
    let status = status.ok_or_else(|| broken("no status"))?;
    if matches!(status, 204 | 304) {
        framing = Framing::Over;
    }
    Ok((status, head, framing))
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let early = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the body broke off");
        if let Framing::Chunk(0) = self.framing {
            let mut line = String::new();
            self.from.read_line(&mut line)?;
            if line == "\r\n" {
                line.clear();
                self.from.read_line(&mut line)?;
            }
            let size = line.trim().split(';').next().and_then(|size| u64::from_str_radix(size, 16).ok());
            self.framing = match size.ok_or_else(early)? {
                0 => Framing::Over,
                size => Framing::Chunk(size),
            };
        }
        let (left, whole) = match &mut self.framing {
            Framing::Over | Framing::Length(0) => return Ok(0),
            Framing::ToEnd => return self.from.read(into),
            Framing::Length(left) | Framing::Chunk(left) => (left, into.len()),
        };
        let most = usize::try_from(*left).unwrap_or(usize::MAX).min(whole);
        let got = self.from.read(&mut into[..most])?;
        if got == 0 && most > 0 {
            return Err(early());
        }
        *left -= got as u64;
        Ok(got)
    }
}

/// Sends and reads everything.
pub(crate) fn send(server: SocketAddr, request: Request<'_>) -> std::io::Result<Reply> {
    let mut answer = open(server, request)?;
    let mut body = Vec::new();
    answer.body.read_to_end(&mut body)?;
    let raw = [answer.head.as_slice(), &body].concat();
    Ok(Reply { status: answer.status, raw, body })
}
