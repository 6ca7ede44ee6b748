//! A sandbox whose agent answers, parked or in use.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::id::{SandboxId, TemplateDigest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use crate::agent::{Agent, AgentError};
use crate::tasks::Tasks;
use crate::transport::Transport;
use crate::wall::{Hold, Live, Parked, WallError};

/// Why there is no usable sandbox.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The wall failed.
    #[error("sandbox not made")]
    Wall(#[source] WallError),
    /// Its agent failed.
    #[error("agent of a new sandbox failed")]
    Agent(#[source] AgentError),
    /// Its agent did not answer in time.
    #[error("agent of a new sandbox did not answer in time")]
    Silent,
    /// Its death cannot be watched.
    #[error("death of a new sandbox cannot be watched")]
    Watch(#[source] io::Error),
}

/// A live sandbox. Dropping it destroys the sandbox behind.
#[derive(Debug)]
pub struct Machine {
    agent: Option<Agent>,
    transport: Arc<Transport>,
    death: AsyncFd<OwnedFd>,
    template: TemplateDigest,
    fences: Vec<String>,
    hold: Hold,
}

impl Machine {
    /// Connects to a parked sandbox and waits until its agent answers.
    ///
    /// # Errors
    /// When the agent does not; the sandbox is then destroyed.
    pub async fn up(parked: Parked, within: Duration, tasks: &Tasks) -> Result<Self, MachineError> {
        let Parked { hold, template, fences, stream, death, warm } = parked;
        #[expect(deprecated, reason = "sound for an `OwnedFd`; the successor is unsafe for the sake of other types")]
        let death = AsyncFd::with_interest(death, Interest::READABLE).map_err(MachineError::Watch)?;
        let transport = Arc::new(Transport::start(stream, tasks));
        let ready = async {
            let mut agent = Agent::connect(&transport, tasks).await?;
            agent.health().await?;
            if !warm.is_empty() {
                agent.warm(&warm).await?;
            }
            Ok(agent)
        };
        let agent = timeout(within, ready).await.map_err(|_elapsed| MachineError::Silent)?;
        let agent = Some(agent.map_err(MachineError::Agent)?);
        Ok(Self { agent, transport, death, template, fences, hold })
    }

    /// Its id.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        self.hold.sandbox()
    }

    /// How its wall gets at it.
    #[must_use]
    pub fn live(&self) -> Live {
        Live { sandbox: self.hold.sandbox().clone(), transport: Arc::clone(&self.transport) }
    }

    /// Takes note of fences that were put up since it was made.
    pub fn add_fences(&mut self, fences: Vec<String>) {
        self.fences.extend(fences);
    }

    /// Its existence.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// The same, to change what it keeps.
    pub fn hold_mut(&mut self) -> &mut Hold {
        &mut self.hold
    }

    /// What it was made from.
    #[must_use]
    pub fn template(&self) -> &TemplateDigest {
        &self.template
    }

    /// Fences verified from outside.
    #[must_use]
    pub fn fences(&self) -> &[String] {
        &self.fences
    }

    /// The streams to its guest.
    #[must_use]
    pub fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    /// The connection to its agent; there is one, for the one run.
    pub fn take_agent(&mut self) -> Option<Agent> {
        self.agent.take()
    }

    /// Whether its first process lives and its stream is open, as far as is known now.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(self.death.get_ref(), PollFlags::IN)];
        matches!(poll(&mut polled, Some(&now)), Ok(0)) && !self.transport.is_closed()
    }

    /// Resolves when its first process is dead or its stream is closed.
    pub async fn died(&self) {
        tokio::select! {
            biased;
            () = self.transport.closed() => {}
            _ready = self.death.readable() => {}
        }
    }
}
