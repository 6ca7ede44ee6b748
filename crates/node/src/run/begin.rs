//! From a claimed sandbox to a running program.

use std::sync::Arc;
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::guest::{GENERATION, InitRequest};
use bailey_protocol::node::{NodeFault, RunSpec, RunStarted};
use tokio::time::timeout;
use tracing::debug;

use super::Claimed;
use crate::agent::{Agent, AgentError, Exec, Program, feed};
use crate::fault;
use crate::node::Host;
use crate::tasks::Tasks;
use crate::transport::Transport;
use crate::wall::BoxFuture;

/// A program that runs.
pub(super) struct Begun {
    pub(super) exec: Exec,
    /// Sends its input, where there is any.
    pub(super) feed: Option<BoxFuture<'static, ()>>,
    pub(super) started: RunStarted,
}

/// Why no program runs.
pub(super) enum BeginError {
    /// It cannot be started.
    Refused(NodeFault),
    /// The guest is gone or broke the protocol.
    Lost(AgentError),
}

/// What it takes to begin, taken out of the owner's hands.
struct Beginning {
    agent: Agent,
    transport: Arc<Transport>,
    tasks: Tasks,
    spec: Arc<RunSpec>,
    started: RunStarted,
}

/// Tells the agent about its run, writes the files that come with it, and starts the program.
pub(super) fn begin(
    host: &Host,
    spec: &Arc<RunSpec>,
    claimed: Option<&mut Claimed>,
) -> impl Future<Output = Result<Box<Begun>, BeginError>> + use<> {
    let within = host.deadlines.agent;
    let beginning = claimed.and_then(|claimed| {
        let agent = claimed.machine.take_agent()?;
        let capabilities = claimed.machine.hold().wall().capabilities();
        let started = RunStarted {
            sandbox: claimed.machine.sandbox().clone(),
            wall: capabilities.kind,
            accelerated: capabilities.accelerated,
            parked: claimed.parked,
            fences: claimed.machine.fences().to_vec(),
        };
        let transport = Arc::clone(claimed.machine.transport());
        Some(Beginning { agent, transport, tasks: host.tasks.clone(), spec: Arc::clone(spec), started })
    });
    async move {
        let beginning = beginning.ok_or(BeginError::Lost(AgentError::Broken("the agent was used before")))?;
        beginning.carry_out(within).await
    }
}

impl Beginning {
    async fn carry_out(self, within: Duration) -> Result<Box<Begun>, BeginError> {
        match timeout(within, self.start()).await {
            Ok(begun) => begun,
            Err(_elapsed) => Err(BeginError::Lost(AgentError::Broken("it does not answer"))),
        }
    }

    async fn start(self) -> Result<Box<Begun>, BeginError> {
        let Self { mut agent, transport, tasks, spec, mut started } = self;
        let init = InitRequest {
            generation: GENERATION,
            env: spec.env.clone(),
            mounts: spec.mounts.iter().map(|mount| mount.at.clone()).collect(),
            root: spec.root,
            open_files: spec.limits.open_files,
        };
        started.fences.extend(agent.init(&init).await.map_err(|cause| match cause {
            // A machine mounts its slices here.
            AgentError::Refused { said, .. } if !spec.mounts.is_empty() => {
                debug!(run = %spec.run, said, "mounts refused");
                BeginError::Refused(fault::unmounted())
            }
            other => BeginError::Lost(other),
        })?);
        bailey_crash::point(Point::GuestGreeted);
        for file in &spec.files {
            agent.write_file(file).await.map_err(|cause| match cause {
                AgentError::Refused { refusal, said } => {
                    debug!(run = %spec.run, %refusal, said, "file refused");
                    BeginError::Refused(fault::of_file(refusal, file.at.as_str()))
                }
                other => BeginError::Lost(other),
            })?;
        }
        let cwd = spec.cwd.as_ref().map(bailey_protocol::path::SandboxPath::as_str);
        let program = Program::new(&spec.command, cwd, !spec.stdin.is_empty())
            .ok_or_else(|| BeginError::Refused(fault::invalid("the command is empty")))?;
        let exec = agent.start(&program).await.map_err(|cause| match cause {
            AgentError::Refused { refusal, said } => {
                debug!(run = %spec.run, %refusal, said, "program refused");
                let program = spec.command.first().map_or("", String::as_str);
                BeginError::Refused(fault::of_refusal(refusal, program, cwd))
            }
            other => BeginError::Lost(other),
        })?;
        bailey_crash::point(Point::ProgramStarted);
        let pid = exec.pid();
        let feed = (!spec.stdin.is_empty()).then(|| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                if let Err(cause) = input(&transport, &tasks, pid, &spec.stdin).await {
                    debug!(run = %spec.run, cause = &cause as &dyn std::error::Error, "input not taken");
                }
            })
        });
        Ok(Box::new(Begun { exec, feed, started }))
    }
}

async fn input(transport: &Transport, tasks: &Tasks, pid: u32, bytes: &[u8]) -> Result<(), AgentError> {
    feed(Agent::connect(transport, tasks).await?, pid, bytes).await
}
