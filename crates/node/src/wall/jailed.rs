//! What every wall asks of `bailey-jail`, whatever is in its cages.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::{JailAnswer, JailOp, Profile, StopFacts};
use bailey_protocol::limits::Limits;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{BoxFuture, Hold, Parked, Wall, WallError};
use crate::jail::{Answered, JailClient, JailError};
use crate::tasks::Tasks;

/// A connection to the jail, with its deadline. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Jailed {
    jail: JailClient,
    tasks: Tasks,
    /// Longest wait for one answer of the jail.
    answer_within: Duration,
}

/// A program that isolates by itself, to be put into a cage.
#[derive(Debug)]
pub struct Launch {
    /// What it is in.
    pub image: TemplateDigest,
    /// What it may do.
    pub profile: Profile,
    /// Its path in there and its arguments.
    pub command: Vec<String>,
    /// What it may use until the claim.
    pub limits: Limits,
    /// What it finds from descriptor 3 on.
    pub fds: Vec<OwnedFd>,
}

impl Jailed {
    /// Asks on a connection to the jail.
    #[must_use]
    pub fn new(jail: JailClient, tasks: Tasks, answer_within: Duration) -> Self {
        Self { jail, tasks, answer_within }
    }

    /// Where its tasks belong.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// One request, within the deadline. An answer that comes too late is dropped with its descriptors.
    ///
    /// # Errors
    /// When the jail refuses, fails or is late.
    pub async fn ask(&self, name: &'static str, op: JailOp, fds: Vec<Arc<OwnedFd>>) -> Result<Answered, WallError> {
        match timeout(self.answer_within, self.jail.call(op, fds)).await {
            Ok(answer) => answer.map_err(WallError::Jail),
            Err(_elapsed) => Err(WallError::Overdue { op: name }),
        }
    }

    /// One request however long it takes, so that what comes late is not forgotten.
    ///
    /// # Errors
    /// When the jail refuses or fails.
    pub async fn ask_and_wait(&self, op: JailOp) -> Result<Answered, WallError> {
        self.jail.call(op, Vec::new()).await.map_err(WallError::Jail)
    }

    /// Has a cage made around a program, however long it takes: it is destroyed with what comes back. With it come its
    /// fences and what tells of its death.
    ///
    /// # Errors
    /// When the jail refuses or fails.
    pub async fn launch(
        &self,
        sandbox: SandboxId,
        launch: Launch,
        wall: Arc<dyn Wall>,
    ) -> Result<(Hold, Vec<String>, OwnedFd), WallError> {
        let Launch { image, profile, command, limits, fds } = launch;
        let op = JailOp::Launch { sandbox: sandbox.clone(), image, profile, command, limits };
        let answered = self.jail.call(op, fds.into_iter().map(Arc::new).collect()).await.map_err(WallError::Jail)?;
        let hold = Hold::new(sandbox, wall, self.tasks.clone());
        match (answered.answer, answered.fds.into_iter().next()) {
            (JailAnswer::Parked { fences }, Some(death)) => Ok((hold, fences, death)),
            _ => Err(WallError::Jail(JailError::Lost)),
        }
    }

    /// Lets a sandbox be made in a task of its own, and waits for it no longer than for an answer.
    ///
    /// CANCEL: the sandbox is dropped as soon as it is made, which destroys it.
    pub fn make(
        &self,
        making: impl Future<Output = Result<Parked, WallError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<Parked, WallError>> {
        let (give, take) = oneshot::channel();
        let answer_within = self.answer_within;
        self.tasks.spawn(async move {
            drop(give.send(making.await));
        });
        Box::pin(async move {
            match timeout(answer_within, take).await {
                Ok(Ok(parked)) => parked,
                Ok(Err(_dropped)) => Err(WallError::Jail(JailError::Lost)),
                Err(_elapsed) => Err(WallError::Overdue { op: "park" }),
            }
        })
    }

    /// Kills all that is in a cage.
    ///
    /// # Errors
    /// When the jail does not.
    pub async fn stop(&self, sandbox: &SandboxId) -> Result<StopFacts, WallError> {
        let answered = self.ask("stop", JailOp::Stop { sandbox: sandbox.clone() }, Vec::new()).await?;
        match answered.answer {
            JailAnswer::Stopped { facts } => Ok(facts),
            _ => Err(WallError::Jail(JailError::Lost)),
        }
    }

    /// What the kernel has counted for a cage that goes on.
    ///
    /// # Errors
    /// When the jail does not tell.
    pub async fn count(&self, sandbox: &SandboxId) -> Result<StopFacts, WallError> {
        let answered = self.ask("count", JailOp::Count { sandbox: sandbox.clone() }, Vec::new()).await?;
        match answered.answer {
            JailAnswer::Counted { facts } => Ok(facts),
            _ => Err(WallError::Jail(JailError::Lost)),
        }
    }

    /// Removes a cage. No deadline: whoever waits for this waits behind, and giving up would leave a cage unaccounted for.
    ///
    /// # Errors
    /// When the jail does not.
    pub async fn destroy(&self, sandbox: &SandboxId) -> Result<(), WallError> {
        let op = JailOp::Destroy { sandbox: sandbox.clone() };
        self.ask_and_wait(op).await?;
        bailey_crash::point(Point::SandboxDestroyed);
        Ok(())
    }

    /// Resolves when the jail is gone.
    pub async fn lost(&self) {
        self.jail.lost().await;
    }
}
