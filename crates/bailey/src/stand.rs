//! One `true` in one cage, from nothing.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bailey_control::clock::{Clock, Rng};
use bailey_node::checkout::FillError;
use bailey_node::{Deadlines, Node, NodeConfig};
use bailey_protocol::id::{RunId, SandboxId, TemplateName, TreeId};
use bailey_protocol::jail::{SupervisorConfig, TemplateImage, server_fd};
use bailey_protocol::limits::Limits;
use bailey_protocol::node::{Ending, RunSpec, RunUpdate};
use bailey_protocol::path::RepoId;
use bailey_protocol::wall::WallKind;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Proof;
use crate::serve::{Binaries, handover};
use crate::template::{self, Template};

/// Everything together; a wall that takes longer does not work.
const PATIENCE: Duration = Duration::from_secs(60);
const UPDATES: usize = 16;

/// Starts a jail, a node on it, and one run.
pub(super) fn container(binaries: Binaries, template: Template) -> anyhow::Result<Proof> {
    // What goes wrong below is explained by warnings, on standard error.
    let level = tracing::Level::WARN;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    let data = tempfile::tempdir().context("make a temporary data folder")?;
    let digest = template.digest.clone();
    let supervisor = SupervisorConfig {
        data: data.path().join("data"),
        guest_binary: binaries.guest,
        guest_sha256: binaries.guest_sha256,
        templates: vec![TemplateImage { digest: template.digest, image: template.image }],
        server: None,
    };
    let (mut jail, socket) = start_jail(&binaries.jail, &supervisor)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let proof = runtime.block_on(async {
        let checkouts = data.path().join("checkouts");
        let outcome = timeout(PATIENCE, run_true(socket, &digest, &checkouts)).await;
        outcome.unwrap_or_else(|_elapsed| bail!("`true` did not end within {PATIENCE:?}"))
    });
    // Ends what still holds the socket, which is what tells the jail to end.
    runtime.shutdown_timeout(Duration::from_secs(2));
    let ended = jail.wait().context("wait for bailey-jail")?;
    match proof {
        Ok(proof) if ended.success() => Ok(proof),
        Ok(_) => bail!("bailey-jail could not clean up: it ended with {ended}"),
        Err(error) => Err(error.context("no `true` in a cage")),
    }
}

/// `bailey-jail` attached to the socket that comes back. Its own complaints go to our standard error.
fn start_jail(binary: &Path, supervisor: &SupervisorConfig) -> anyhow::Result<(Child, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("make a socket for bailey-jail")?;
    // Out of the way of the number that the jail looks at.
    let apart = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&fd, server_fd::CONFIG + 1);
    let (ours, theirs) = (apart(ours)?, apart(theirs)?);
    let config = handover::sealed(supervisor)?;
    let config_apart = rustix::io::fcntl_dupfd_cloexec(&config, server_fd::CONFIG + 1)?;
    drop(config);
    rustix::io::fcntl_setfd(&config_apart, rustix::io::FdFlags::empty())?;
    bailey_sys::descriptors::place(std::os::fd::AsFd::as_fd(&theirs), server_fd::JAIL).context("place the socket")?;
    let spawned = Command::new(binary)
        .arg(config_apart.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    // Our copy of what the jail now has: while it is open, the jail would not see us go.
    drop(bailey_sys::descriptors::inherit(server_fd::JAIL).context("take back the socket")?);
    Ok((spawned.context("start bailey-jail")?, ours))
}

async fn run_true(
    socket: OwnedFd,
    digest: &bailey_protocol::id::TemplateDigest,
    checkouts: &Path,
) -> anyhow::Result<Proof> {
    let begin = Instant::now();
    let (clock, rng) = (Clock::system(), Rng::system());
    let base: TemplateName = template::NAME.parse()?;
    let mint = {
        let (clock, rng) = (clock.clone(), rng.clone());
        move || SandboxId::mint(clock.now_ms(), rng.bytes().unwrap_or_default())
    };
    let node = Node::start(
        socket,
        NodeConfig {
            source: Arc::new(|_: &RepoId, _: &TreeId, _: &Path| -> Result<(), FillError> {
                Err("doctor mounts nothing".into())
            }),
            repos: Arc::new(|_repo| Err("doctor mounts nothing".into())),
            checkouts: checkouts.to_owned(),
            checkout_bytes: 0,
            templates: BTreeMap::from([(base.clone(), digest.clone())]),
            parked: 0,
            limits: Limits::default(),
            ceiling: Limits::default(),
            deadlines: Deadlines::default(),
            mint: Arc::new(mint),
        },
    )?;
    let spec = RunSpec {
        run: RunId::mint(clock.now_ms(), rng.bytes()?),
        tenant: "doctor".parse()?,
        wall: WallKind::Container,
        template: base,
        command: vec!["true".to_owned()],
        env: BTreeMap::new(),
        cwd: None,
        stdin: Vec::new(),
        files: Vec::new(),
        root: false,
        mounts: Vec::new(),
        limits: Limits::default(),
    };
    let (updates, mut seen) = mpsc::channel(UPDATES);
    let ((), outcome) = tokio::join!(node.run(spec, updates, CancellationToken::new()), watch(&mut seen));
    let fences = outcome?;
    let took = begin.elapsed();
    node.shutdown(Duration::from_secs(1)).await;
    Ok(Proof { took, fences })
}

/// The fences of a run that ended with exit code 0.
async fn watch(updates: &mut mpsc::Receiver<RunUpdate>) -> anyhow::Result<Vec<String>> {
    let mut fences = Vec::new();
    let mut ending = None;
    while let Some(update) = updates.recv().await {
        match update {
            RunUpdate::Started { started } => fences = started.fences,
            RunUpdate::Stopped { stopped } => ending = Some(stopped.ending),
            RunUpdate::Failed { fault } => bail!("{fault}"),
            RunUpdate::Output { .. } | RunUpdate::Changes { .. } | RunUpdate::ChangesEnd { .. } | RunUpdate::Done => {}
        }
    }
    match ending {
        Some(Ending::Exited { code: 0 }) => Ok(fences),
        Some(other) => bail!("`true` ended with {other:?}"),
        None => bail!("the node lost the run"),
    }
}
