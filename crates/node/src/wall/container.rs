//! The container wall: a cage made by `bailey-jail`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::{CageMount, JailAnswer, JailOp, StopFacts};
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{BoxFuture, Capabilities, Changes, ClaimOrder, Hold, Parked, Wall, WallError};
use crate::jail::{Answered, JailClient, JailError};
use crate::tasks::Tasks;

/// Cages on this host.
#[derive(Debug)]
pub struct ContainerWall {
    jail: JailClient,
    tasks: Tasks,
    /// Longest wait for one answer of the jail.
    answer_within: Duration,
}

impl ContainerWall {
    /// A wall on a connection to the jail.
    #[must_use]
    pub fn new(jail: JailClient, tasks: Tasks, answer_within: Duration) -> Self {
        Self { jail, tasks, answer_within }
    }

    /// One request, within the deadline. An answer that comes too late is dropped with its descriptors.
    async fn ask(&self, name: &'static str, op: JailOp, fds: Vec<Arc<OwnedFd>>) -> Result<Answered, WallError> {
        match timeout(self.answer_within, self.jail.call(op, fds)).await {
            Ok(answer) => answer.map_err(WallError::Jail),
            Err(_elapsed) => Err(WallError::Overdue { op: name }),
        }
    }

    /// Waits for a cage however long it takes, so that a late one is destroyed and not forgotten.
    async fn park_whole(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> Result<Parked, WallError> {
        let op = JailOp::Park { sandbox: sandbox.clone(), template: template.clone(), limits };
        let answered = self.jail.call(op, Vec::new()).await.map_err(WallError::Jail)?;
        let hold = Hold::new(sandbox, Arc::clone(&self) as Arc<dyn Wall>, self.tasks.clone());
        let mut fds = answered.fds.into_iter();
        let (JailAnswer::Parked { fences }, Some(stream), Some(death)) = (answered.answer, fds.next(), fds.next())
        else {
            return Err(WallError::Jail(JailError::Lost));
        };
        let stream = StdUnixStream::from(stream);
        stream.set_nonblocking(true).map_err(WallError::Descriptor)?;
        let stream = UnixStream::from_std(stream).map_err(WallError::Descriptor)?;
        Ok(Parked { hold, template, fences, stream, death })
    }
}

impl Wall for ContainerWall {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kind: WallKind::Container, accelerated: None }
    }

    fn park(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> BoxFuture<'static, Result<Parked, WallError>> {
        let (give, take) = oneshot::channel();
        let tasks = self.tasks.clone();
        let answer_within = self.answer_within;
        tasks.spawn(async move {
            // When the receiver is gone, the cage is dropped here, which destroys it.
            drop(give.send(self.park_whole(sandbox, template, limits).await));
        });
        Box::pin(async move {
            match timeout(answer_within, take).await {
                Ok(Ok(parked)) => parked,
                Ok(Err(_dropped)) => Err(WallError::Jail(JailError::Lost)),
                Err(_elapsed) => Err(WallError::Overdue { op: "park" }),
            }
        })
    }

    fn claim<'a>(&'a self, sandbox: &'a SandboxId, order: ClaimOrder) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(async move {
            let (mounts, lowers) = order
                .mounts
                .into_iter()
                .map(|mount| (CageMount { at: mount.at, writable: mount.writable }, mount.lower))
                .unzip();
            let op = JailOp::Claim { sandbox: sandbox.clone(), share: order.share, limits: order.limits, mounts };
            self.ask("claim", op, lowers).await.map(drop)
        })
    }

    fn stop<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<StopFacts, WallError>> {
        Box::pin(async move {
            let answered = self.ask("stop", JailOp::Stop { sandbox: sandbox.clone() }, Vec::new()).await?;
            match answered.answer {
                JailAnswer::Stopped { facts } => Ok(facts),
                _ => Err(WallError::Jail(JailError::Lost)),
            }
        })
    }

    fn collect<'a>(&'a self, sandbox: &'a SandboxId, mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>> {
        Box::pin(async move {
            let op = JailOp::Collect { sandbox: sandbox.clone(), mount };
            let answered = self.ask("collect", op, Vec::new()).await?;
            if answered.answer == (JailAnswer::Unchanged {}) {
                return Ok(None);
            }
            let pipe = answered.fds.into_iter().next().ok_or(WallError::Jail(JailError::Lost))?;
            let pipe = pipe::Receiver::from_owned_fd(pipe).map_err(WallError::Descriptor)?;
            Ok(Some(Box::pin(pipe) as Changes))
        })
    }

    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(async move {
            // No deadline: whoever waits for this waits behind, and giving up would leave a cage unaccounted for.
            let op = JailOp::Destroy { sandbox: sandbox.clone() };
            self.jail.call(op, Vec::new()).await.map_err(WallError::Jail)?;
            bailey_crash::point(Point::SandboxDestroyed);
            Ok(())
        })
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.jail.lost())
    }
}

#[cfg(test)]
mod tests;
