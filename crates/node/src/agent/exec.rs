//! One program in the guest, from its start to its end.

use std::collections::BTreeMap;

use bailey_protocol::node::{Ending, OutputStream};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use super::AgentError;
use super::event::{self, Event};
use super::frame::{Frame, Frames};

/// What to start, as `process.Process/Start` takes it.
#[derive(Debug, Clone, Serialize)]
pub struct Program {
    process: Process,
    stdin: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Process {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

impl Program {
    /// A program with its arguments; `None` without a name. `stdin` says whether input will follow.
    #[must_use]
    pub fn new(command: &[String], cwd: Option<&str>, stdin: bool) -> Option<Self> {
        let (cmd, args) = command.split_first()?;
        let process =
            Process { cmd: cmd.clone(), args: args.to_vec(), envs: BTreeMap::new(), cwd: cwd.map(str::to_owned) };
        Some(Self { process, stdin })
    }
}

/// What a running program does.
#[derive(Debug, PartialEq, Eq)]
pub enum ExecEvent {
    /// It wrote something.
    Output(OutputStream, Bytes),
    /// It is over, and this was all it wrote.
    Ended(Ending),
}

/// A program that was started.
#[derive(Debug)]
pub struct Exec {
    pid: u32,
    body: Incoming,
    frames: Frames,
    _driver: AbortOnDropHandle<()>,
}

impl Exec {
    /// Waits for the first event.
    pub(super) async fn begin(answer: Response<Incoming>, driver: AbortOnDropHandle<()>) -> Result<Self, AgentError> {
        if answer.status() != StatusCode::OK {
            return Err(AgentError::Broken("an event stream has another status"));
        }
        let kind = answer.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
        if kind != Some(b"application/connect+json") {
            return Err(AgentError::Broken("an event stream has another content type"));
        }
        let mut exec = Self { pid: 0, body: answer.into_body(), frames: Frames::default(), _driver: driver };
        loop {
            match exec.frame().await? {
                Frame::End(trailer) => {
                    return Err(event::refusal(&trailer)?.unwrap_or(AgentError::Broken("a stream without a start")));
                }
                Frame::Message(message) => match Event::parse(&message)? {
                    Event::Start { pid } => {
                        exec.pid = pid;
                        return Ok(exec);
                    }
                    Event::Other => {}
                    Event::Data(..) | Event::End(_) => return Err(AgentError::Broken("an event before the start")),
                },
            }
        }
    }

    /// The program's process id inside the sandbox.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What happens next. CANCEL: nothing is lost.
    ///
    /// # Errors
    /// When the stream breaks off or is not what it should be.
    pub async fn next(&mut self) -> Result<ExecEvent, AgentError> {
        loop {
            match self.frame().await? {
                Frame::End(_) => return Err(AgentError::Broken("a stream without an end")),
                Frame::Message(message) => match Event::parse(&message)? {
                    Event::Data(stream, bytes) if !bytes.is_empty() => return Ok(ExecEvent::Output(stream, bytes)),
                    Event::End(ending) => return Ok(ExecEvent::Ended(ending)),
                    Event::Data(..) | Event::Other => {}
                    Event::Start { .. } => return Err(AgentError::Broken("a second start")),
                },
            }
        }
    }

    /// CANCEL: bytes that came are in `frames`.
    async fn frame(&mut self) -> Result<Frame, AgentError> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return Ok(frame);
            }
            match self.body.frame().await {
                None => return Err(AgentError::Broken("a stream that breaks off")),
                Some(part) => {
                    if let Ok(bytes) = part?.into_data() {
                        self.frames.push(&bytes);
                    }
                }
            }
        }
    }
}
