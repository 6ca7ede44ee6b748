//! The container wall: a cage made by `bailey-jail`.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::{CageMount, JailAnswer, JailOp, StopFacts};
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::jailed::Jailed;
use super::{BoxFuture, Capabilities, Changes, ClaimOrder, Hold, Live, Parked, Wall, WallError};
use crate::jail::JailError;

/// Cages on this host.
#[derive(Debug)]
pub struct ContainerWall {
    jail: Jailed,
}

impl ContainerWall {
    /// A wall on a connection to the jail.
    #[must_use]
    pub fn new(jail: Jailed) -> Self {
        Self { jail }
    }

    /// Waits for a cage however long it takes, so that a late one is destroyed and not forgotten.
    async fn park_whole(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> Result<Parked, WallError> {
        let op = JailOp::Park { sandbox: sandbox.clone(), template: template.clone(), limits };
        let answered = self.jail.ask_and_wait(op).await?;
        let hold = Hold::new(sandbox, Arc::clone(&self) as Arc<dyn Wall>, self.jail.tasks().clone());
        let mut fds = answered.fds.into_iter();
        let (JailAnswer::Parked { fences }, Some(stream), Some(death)) = (answered.answer, fds.next(), fds.next())
        else {
            return Err(WallError::Jail(JailError::Lost));
        };
        let stream = StdUnixStream::from(stream);
        stream.set_nonblocking(true).map_err(WallError::Descriptor)?;
        let stream = UnixStream::from_std(stream).map_err(WallError::Descriptor)?;
        Ok(Parked { hold, template, fences, stream, death, warm: Vec::new() })
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
        let jail = self.jail.clone();
        jail.make(self.park_whole(sandbox, template, limits))
    }

    fn claim<'a>(&'a self, live: &'a Live, order: ClaimOrder) -> BoxFuture<'a, Result<Vec<String>, WallError>> {
        Box::pin(async move {
            let (mounts, lowers) = order
                .mounts
                .into_iter()
                .map(|mount| (CageMount { at: mount.at, writable: mount.writable }, mount.lower))
                .unzip();
            let op = JailOp::Claim { sandbox: live.sandbox.clone(), share: order.share, limits: order.limits, mounts };
            self.jail.ask("claim", op, lowers).await.map(|_answered| Vec::new())
        })
    }

    fn stop<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<StopFacts, WallError>> {
        Box::pin(self.jail.stop(&live.sandbox))
    }

    fn collect<'a>(&'a self, live: &'a Live, mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>> {
        Box::pin(async move {
            let op = JailOp::Collect { sandbox: live.sandbox.clone(), mount };
            let answered = self.jail.ask("collect", op, Vec::new()).await?;
            if answered.answer == (JailAnswer::Unchanged {}) {
                return Ok(None);
            }
            let pipe = answered.fds.into_iter().next().ok_or(WallError::Jail(JailError::Lost))?;
            let pipe = pipe::Receiver::from_owned_fd(pipe).map_err(WallError::Descriptor)?;
            Ok(Some(Box::pin(pipe) as Changes))
        })
    }

    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(self.jail.destroy(sandbox))
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.jail.lost())
    }
}

#[cfg(test)]
mod tests;
