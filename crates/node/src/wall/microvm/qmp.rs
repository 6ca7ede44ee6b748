//! What is said to a monitor: QMP, one JSON object a line, over a socket that it was handed.
//!
//! Whoever breaks out of the machine speaks in the monitor's name. So every line is bounded, as is their number until an
//! answer; what is not understood is passed over or ends the conversation. Deadlines are the caller's.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// Longest line.
const MAX_LINE: usize = 512 * 1024;
/// Most lines until an answer.
const MAX_LINES: usize = 1024;
/// How much of what it says is kept for the log.
const MAX_SAID: usize = 300;

/// Why a monitor did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// Its socket broke, or it is gone.
    #[error("the monitor is gone")]
    Gone(#[source] io::Error),
    /// It does not keep to the protocol.
    #[error("the monitor broke the protocol: {0}")]
    Broken(&'static str),
    /// It refuses.
    #[error("the monitor refused to {op}: `{said}`")]
    Refused {
        /// What it was told.
        op: &'static str,
        /// In its own words.
        said: String,
    },
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Qmp {
    socket: UnixStream,
    /// What came and is not a whole line yet.
    rest: Vec<u8>,
    /// What the last event said of a state that is moved.
    moving: Option<String>,
}

impl Qmp {
    /// Greets.
    ///
    /// # Errors
    /// When that is no monitor.
    pub(super) async fn connect(socket: UnixStream) -> Result<Self, QmpError> {
        let mut qmp = Self { socket, rest: Vec::new(), moving: None };
        let greeting = qmp.line().await?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Broken("it does not greet"));
        }
        qmp.tell("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Tells it to do something; its answer.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub(super) async fn tell(&mut self, op: &'static str, arguments: Value) -> Result<Value, QmpError> {
        let line = message(op, &arguments);
        self.socket.write_all(line.as_bytes()).await.map_err(QmpError::Gone)?;
        self.answer(op).await
    }

    /// Hands a descriptor over under a name.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub(super) async fn hand(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), QmpError> {
        let line = message("getfd", &json!({ "fdname": name }));
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let rights = [descriptor];
            if !control.push(SendAncillaryMessage::ScmRights(&rights)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = sendmsg(self.socket.as_fd(), &[IoSlice::new(line.as_bytes())], &mut control, flags)?;
            if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
        };
        self.socket.async_io(Interest::WRITABLE, send).await.map_err(QmpError::Gone)?;
        self.answer("getfd").await.map(drop)
    }

    /// Moves its state out or in, to or from an address, and waits for the end of that. The memory is not a part of it.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub(super) async fn move_state(&mut self, op: &'static str, address: &str) -> Result<(), QmpError> {
        let on = |name: &str| json!({ "capability": name, "state": true });
        let capabilities = json!({ "capabilities": [on("x-ignore-shared"), on("events")] });
        self.tell("migrate-set-capabilities", capabilities).await?;
        self.moving = None;
        self.tell(op, json!({ "uri": address })).await?;
        for _ in 0..MAX_LINES {
            match self.moving.take().as_deref() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = self.tell("query-migrate", json!({})).await?;
                    return Err(QmpError::Refused { op, said: said(&why) });
                }
                _ => {}
            }
            let line = self.line().await?;
            self.note(&line);
        }
        Err(QmpError::Broken("it goes on about its state"))
    }

    async fn answer(&mut self, op: &'static str) -> Result<Value, QmpError> {
        for _ in 0..MAX_LINES {
            let mut line = self.line().await?;
            if let Some(answer) = line.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = line.get("error") {
                return Err(QmpError::Refused { op, said: said(error) });
            }
            self.note(&line);
        }
        Err(QmpError::Broken("it talks and does not answer"))
    }

    /// Keeps what an event says of a state that is moved.
    fn note(&mut self, line: &Value) {
        if line.get("event").and_then(Value::as_str) == Some("MIGRATION") {
            self.moving = line.pointer("/data/status").and_then(Value::as_str).map(str::to_owned);
        }
    }

    async fn line(&mut self) -> Result<Value, QmpError> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|_odd| QmpError::Broken("a line is no message"));
            }
            if self.rest.len() > MAX_LINE {
                return Err(QmpError::Broken("a line has no end"));
            }
            match self.socket.read_buf(&mut self.rest).await {
                Ok(0) => return Err(QmpError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(cause) => return Err(QmpError::Gone(cause)),
            }
        }
    }
}

fn message(op: &str, arguments: &Value) -> String {
    format!("{}\n", json!({ "execute": op, "arguments": arguments }))
}

/// Its words, cut.
fn said(value: &Value) -> String {
    value.to_string().chars().take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a monitor that says this, whatever it hears, is a good one, once it is told to do something.
    async fn talk(says: &[u8]) -> Result<Value, QmpError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let says = says.to_vec();
        let monitor = async move {
            // It may be given up before the last byte.
            let _left = theirs.write_all(&says).await;
            let _left = theirs.shutdown().await;
            let _left = theirs.read_to_end(&mut Vec::new()).await;
        };
        let us = async { Qmp::connect(ours).await?.tell("stop", json!({})).await };
        tokio::join!(us, monitor).0
    }

    #[tokio::test]
    async fn answers_are_found_among_events() {
        let good = b"{\"QMP\": {}}\r\n{\"event\": \"X\"}\n{\"return\": {}}\r\n{\"event\": \"Y\"}\n{\"return\": 7}\n";
        assert_eq!(talk(good).await.unwrap(), json!(7));
    }

    #[tokio::test]
    async fn a_monitor_that_is_somebody_else_is_given_up() {
        let hello = "{\"QMP\": {}}\n{\"return\": {}}\n".to_owned();
        let endless = format!("{hello}{}", "x".repeat(2 * MAX_LINE));
        let chatty = format!("{hello}{}", "{\"event\": \"X\"}\n".repeat(MAX_LINES + 1));
        for bad in ["", "\n", "{}\n", "[1]\n{\"return\": 1}\n", &endless, &chatty, &format!("{hello}{{\"return\"")] {
            let told = talk(bad.as_bytes()).await;
            assert!(matches!(told, Err(QmpError::Broken(_) | QmpError::Gone(_))), "{told:?}");
        }
        let told = talk(format!("{hello}{{\"error\": \"{}\"}}\n", "y".repeat(9999)).as_bytes()).await;
        assert!(matches!(told, Err(QmpError::Refused { op: "stop", said }) if said.len() == MAX_SAID));
    }
}
