//! A monitor in its cage, from its start until its machine is left alone.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::guest::WAITING;
use bailey_protocol::id::SandboxId;
use bailey_protocol::jail::Profile;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::command::{self, Order, Start};
use super::qmp::{Qmp, QmpError};
use super::{memory, pair};
use crate::jail::JailError;
use crate::wall::jailed::{Jailed, Launch};
use crate::wall::{Hold, Wall, WallError};

/// Longest until a monitor greets.
const GREETED: Duration = Duration::from_secs(30);
/// Time between two looks at what its machine says.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Bytes of what a machine says that are looked at.
const HEARD: u32 = 64 * 1024;

/// A monitor with a machine.
#[derive(Debug)]
pub(super) struct Monitor {
    hold: Hold,
    fences: Vec<String>,
    death: OwnedFd,
    stream: Option<UnixStream>,
    qmp: Qmp,
}

impl Monitor {
    /// Starts one; it is destroyed with what comes back.
    pub(super) async fn launch(
        jail: Jailed,
        sandbox: SandboxId,
        order: Order,
        start: Start,
        memory: OwnedFd,
        wall: Arc<dyn Wall>,
    ) -> Result<Self, WallError> {
        let (stream, their_stream) = pair().map_err(WallError::Descriptor)?;
        let (control, their_control) = pair().map_err(WallError::Descriptor)?;
        let command = command::command(&order, &start);
        let mut fds = vec![their_stream, their_control, memory];
        if let Start::Clone { state } = start {
            fds.push(state);
        }
        let launch = Launch { image: order.image, profile: Profile::Vmm, command, limits: order.limits, fds };
        let (hold, fences, death) = jail.launch(sandbox, launch, wall).await?;
        let qmp = timeout(GREETED, Qmp::connect(control)).await;
        let qmp = qmp.map_err(|_elapsed| WallError::Overdue { op: "greet" })?.map_err(WallError::Monitor)?;
        Ok(Self { hold, fences, death, stream: Some(stream), qmp })
    }

    pub(super) fn sandbox(&self) -> &SandboxId {
        self.hold.sandbox()
    }

    /// The host's end of the guest's stream, once.
    pub(super) fn take_stream(&mut self) -> Result<UnixStream, WallError> {
        self.stream.take().ok_or(WallError::Jail(JailError::Lost))
    }

    /// Gives the machine the state that its monitor was handed, and has it go on.
    pub(super) async fn resume(&mut self) -> Result<(), QmpError> {
        self.qmp.move_state("migrate-incoming", &command::state_address()).await?;
        self.qmp.tell("cont", json!({})).await.map(drop)
    }

    /// Pauses a machine that nobody is connected to any more, and takes the state of its devices.
    pub(super) async fn save(&mut self) -> Result<OwnedFd, QmpError> {
        // Else its copies would begin in the middle of a conversation.
        while !self.console().await.contains(WAITING) {
            sleep(LOOK_AGAIN).await;
        }
        self.qmp.tell("stop", json!({})).await?;
        let state = memory::fresh(0).map_err(QmpError::Gone)?;
        self.qmp.hand("state", state.as_fd()).await?;
        self.qmp.move_state("migrate", "fd:state").await?;
        Ok(state)
    }

    /// What the machine has said on its console since the last look, as far as it can be had.
    pub(super) async fn console(&mut self) -> String {
        let read = self.qmp.tell("ringbuf-read", json!({ "device": "l", "size": HEARD })).await;
        read.ok().and_then(|said| said.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Leaves the monitor alone: from here on it has nobody to talk to.
    pub(super) fn into_parts(self) -> (Hold, Vec<String>, OwnedFd) {
        (self.hold, self.fences, self.death)
    }
}
