//! Client of `bailey-jail`: requests by id over one socket, any number open at once.
//!
//! One task owns the socket. A reply that cannot be right (unknown id, another answer than was asked for, too many
//! or too few descriptors) means that the other end is broken, and the connection is given up: when the socket is
//! gone, so are all cages, since the jail is the parent of everything in them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bailey_protocol::jail::{JailAnswer, JailFault, JailOp, JailReply, JailRequest};
use bailey_protocol::limits::{MAX_JAIL_MESSAGE, MAX_MOUNTS};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::tasks::Tasks;

mod socket;
#[cfg(test)]
pub(crate) mod tests;

use socket::{Datagram, JailSocket};

/// Requests that may wait to be sent.
const QUEUE: usize = 64;

/// Why a request to the jail came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// The connection is gone, and every cage with it.
    #[error("the jail is gone")]
    Lost,
    /// The jail refused or failed.
    #[error("the jail could not {op}: {fault}")]
    Refused {
        /// What was asked.
        op: &'static str,
        /// Its answer.
        fault: JailFault,
    },
    /// The request does not fit a datagram.
    #[error("a request to {op} takes {bytes} bytes and {fds} descriptors, more than one datagram holds")]
    TooLarge {
        /// What was asked.
        op: &'static str,
        /// Its size.
        bytes: usize,
        /// Its descriptors.
        fds: usize,
    },
}

/// A request that was carried out.
#[derive(Debug)]
pub struct Answered {
    /// What the jail says.
    pub answer: JailAnswer,
    /// The descriptors that belong to it; as many as the answer's kind has.
    pub fds: Vec<OwnedFd>,
}

/// Handle on the connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JailClient {
    calls: mpsc::Sender<Call>,
    lost: CancellationToken,
}

#[derive(Debug)]
struct Call {
    op: JailOp,
    fds: Vec<Arc<OwnedFd>>,
    reply: oneshot::Sender<Result<Answered, JailError>>,
}

#[derive(Debug)]
struct Pending {
    kind: Kind,
    reply: oneshot::Sender<Result<Answered, JailError>>,
}

type Open = Mutex<HashMap<u64, Pending>>;

impl JailClient {
    /// Takes over the node's end of the socket.
    ///
    /// # Errors
    /// When the descriptor cannot be registered with the runtime.
    pub fn start(socket: OwnedFd, tasks: &Tasks) -> io::Result<Self> {
        let socket = JailSocket::new(socket)?;
        let (calls, queue) = mpsc::channel(QUEUE);
        let lost = CancellationToken::new();
        let client = Self { calls, lost: lost.clone() };
        tasks.spawn(async move {
            let open = Open::default();
            let end = tokio::select! {
                end = send_calls(&socket, queue, &open) => end,
                end = receive_replies(&socket, &open) => end,
            };
            match end {
                Ok(()) => info!("jail connection closed"),
                Err(cause) => error!(%cause, "jail connection lost"),
            }
            lost.cancel();
        });
        Ok(client)
    }

    /// Sends a request and waits for its answer.
    ///
    /// CANCEL: the request is carried out all the same, and an answer's descriptors are closed.
    ///
    /// # Errors
    /// See [`JailError`].
    pub async fn call(&self, op: JailOp, fds: Vec<Arc<OwnedFd>>) -> Result<Answered, JailError> {
        let (reply, answer) = oneshot::channel();
        let call = Call { op, fds, reply };
        self.calls.send(call).await.map_err(|_closed| JailError::Lost)?;
        answer.await.map_err(|_dropped| JailError::Lost)?
    }

    /// Resolves when the connection is gone.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// Ends when the last handle is dropped, or with the error that broke the connection.
async fn send_calls(socket: &JailSocket, mut queue: mpsc::Receiver<Call>, open: &Open) -> io::Result<()> {
    let mut next_id = 1_u64;
    while let Some(Call { op, fds, reply }) = queue.recv().await {
        let kind = Kind::of(&op);
        let request = JailRequest { id: next_id, op };
        let bytes = serde_json::to_vec(&request)?;
        if bytes.len() > MAX_JAIL_MESSAGE || fds.len() > MAX_MOUNTS {
            let error = JailError::TooLarge { op: kind.name(), bytes: bytes.len(), fds: fds.len() };
            drop(reply.send(Err(error)));
            continue;
        }
        lock(open).insert(next_id, Pending { kind, reply });
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        socket.send(&bytes, &borrowed).await?;
        next_id += 1;
    }
    Ok(())
}

async fn receive_replies(socket: &JailSocket, open: &Open) -> io::Result<()> {
    while let Some(datagram) = socket.receive().await? {
        let (pending, answer) = match_reply(datagram, open).map_err(|broken| io::Error::other(broken.0))?;
        // A caller that is gone does not want the descriptors: they are closed with the answer.
        drop(pending.reply.send(answer));
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// A reply that cannot be right.
struct Broken(&'static str);

fn match_reply(datagram: Datagram, open: &Open) -> Result<(Pending, Result<Answered, JailError>), Broken> {
    let reply: JailReply =
        serde_json::from_slice(&datagram.bytes).map_err(|_cause| Broken("a reply that is no message"))?;
    let pending = lock(open).remove(&reply.id).ok_or(Broken("a reply to nothing that was asked"))?;
    let answer = match reply.result {
        Ok(answer) => {
            let fds = pending.kind.fds_of(&answer).ok_or(Broken("an answer to another kind of request"))?;
            if datagram.fds.len() != fds {
                return Err(Broken("an answer with a wrong number of descriptors"));
            }
            Ok(Answered { answer, fds: datagram.fds })
        }
        Err(fault) if datagram.fds.is_empty() => Err(JailError::Refused { op: pending.kind.name(), fault }),
        Err(_) => return Err(Broken("a refusal with descriptors")),
    };
    Ok((pending, answer))
}

fn lock(open: &Open) -> std::sync::MutexGuard<'_, HashMap<u64, Pending>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was asked, as far as an answer has to match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Park,
    Launch,
    Claim,
    Stop,
    Count,
    Collect,
    Destroy,
}

impl Kind {
    fn of(op: &JailOp) -> Self {
        match op {
            JailOp::Park { .. } => Self::Park,
            JailOp::Launch { .. } => Self::Launch,
            JailOp::Claim { .. } => Self::Claim,
            JailOp::Stop { .. } => Self::Stop,
            JailOp::Count { .. } => Self::Count,
            JailOp::Collect { .. } => Self::Collect,
            JailOp::Destroy { .. } => Self::Destroy,
        }
    }

    /// How many descriptors come with an answer; nothing where it answers another kind of request.
    fn fds_of(self, answer: &JailAnswer) -> Option<usize> {
        match (self, answer) {
            (Self::Park, JailAnswer::Parked { .. }) => Some(2),
            (Self::Launch, JailAnswer::Parked { .. }) | (Self::Collect, JailAnswer::Collecting {}) => Some(1),
            (Self::Claim, JailAnswer::Claimed {})
            | (Self::Stop, JailAnswer::Stopped { .. })
            | (Self::Count, JailAnswer::Counted { .. })
            | (Self::Collect, JailAnswer::Unchanged {})
            | (Self::Destroy, JailAnswer::Destroyed {}) => Some(0),
            (Self::Park | Self::Launch | Self::Claim | Self::Stop | Self::Count | Self::Collect | Self::Destroy, _) => {
                None
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Park => "park",
            Self::Launch => "launch",
            Self::Claim => "claim",
            Self::Stop => "stop",
            Self::Count => "count",
            Self::Collect => "collect",
            Self::Destroy => "destroy",
        }
    }
}
