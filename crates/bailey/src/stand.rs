//! A jail and a node of our own, without a server: what `bailey doctor` and `bailey attest` run code on.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bailey_control::clock::{Clock, Rng};
use bailey_node::wall::gvisor::GvisorConfig;
use bailey_node::{CheckoutRoom, Deadlines, Machines, Node, NodeConfig};
use bailey_protocol::id::{RunId, SandboxId, TemplateDigest, TemplateName};
use bailey_protocol::jail::{SupervisorConfig, TemplateImage, server_fd};
use bailey_protocol::limits::Limits;
use bailey_protocol::node::RunSpec;
use bailey_protocol::wall::WallKind;
use bailey_tree::Trees;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::serve::{Binaries, handover, machines};
use crate::template::sentry::Sentry;
use crate::template::{self, Template};
use crate::verb::Interrupts;

/// Longest life of a sandbox here, in milliseconds.
pub(crate) const LONGEST_MS: u64 = 600_000;
/// Bytes of checkouts that are kept while no run holds them: none has a second use here.
const CHECKOUT_ROOM: CheckoutRoom = CheckoutRoom { most: 4 << 30, kept: 0 };

/// What code runs on.
pub(crate) struct Stand {
    pub(crate) node: Node,
    /// Whose files can be mounted.
    pub(crate) trees: Trees,
    /// The jail's process.
    pub(crate) jail: u32,
    /// Where both keep what they need.
    pub(crate) folder: PathBuf,
    wall: WallKind,
    base: TemplateName,
    clock: Clock,
    rng: Rng,
}

impl Stand {
    /// A run of `command` for a tenant, with the ordinary limits.
    pub(crate) fn spec(&self, tenant: &str, command: Vec<String>) -> anyhow::Result<RunSpec> {
        Ok(RunSpec {
            run: RunId::mint(self.clock.now_ms(), self.rng.bytes()?),
            tenant: tenant.parse()?,
            wall: self.wall,
            template: self.base.clone(),
            command,
            env: BTreeMap::new(),
            cwd: None,
            stdin: Vec::new(),
            files: Vec::new(),
            root: false,
            mounts: Vec::new(),
            limits: Limits::default(),
        })
    }
}

/// The wall of a stand, and what it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Behind<'a> {
    /// Nothing beside the template.
    Plain(WallKind),
    /// gVisor.
    Sentry(&'a Sentry),
}

impl<'a> Behind<'a> {
    fn wall(self) -> WallKind {
        match self {
            Self::Plain(wall) => wall,
            Self::Sentry(_) => WallKind::Gvisor,
        }
    }

    fn sentry(self) -> Option<&'a Sentry> {
        match self {
            Self::Plain(_) => None,
            Self::Sentry(sentry) => Some(sentry),
        }
    }
}

/// Starts a jail and a node, does `work`, and ends both. How the jail ended says whether it could clean up.
pub(crate) fn on<T>(
    binaries: &Binaries,
    template: &Template,
    behind: Behind<'_>,
    work: impl AsyncFnOnce(&Stand) -> anyhow::Result<T>,
) -> anyhow::Result<(T, ExitStatus)> {
    // What goes wrong below is explained by warnings, on standard error.
    let level = tracing::Level::WARN;
    let logged = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level);
    // The second stand of a process logs where the first one did.
    let _already = logged.try_init();
    let data = tempfile::tempdir().context("make a temporary data folder")?;
    let supervisor = SupervisorConfig {
        data: data.path().join("data"),
        guest_binary: binaries.guest.clone(),
        guest_sha256: binaries.guest_sha256.clone(),
        templates: vec![TemplateImage { digest: template.digest.clone(), image: template.image.clone() }],
        images: behind.sentry().map(Sentry::as_image).into_iter().collect(),
        large_disks: None,
        server: None,
    };
    let (mut jail, socket) = start_jail(&binaries.jail, &supervisor)?;
    let pid = jail.id();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let done = runtime.block_on(async {
        let stand = start_node(socket, pid, &template.digest, data.path(), behind).await?;
        let mut interrupts = Interrupts::listen()?;
        // Given up in an orderly way: whatever was made for it goes as at its end.
        let done = tokio::select! {
            done = work(&stand) => done,
            () = interrupts.next() => Err(anyhow::anyhow!("it was interrupted")),
        };
        stand.node.shutdown(Duration::from_secs(1)).await;
        done
    });
    // Ends what still holds the socket, which is what tells the jail to end.
    runtime.shutdown_timeout(Duration::from_secs(2));
    let ended = jail.wait().context("wait for bailey-jail")?;
    Ok((done?, ended))
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

async fn start_node(
    socket: OwnedFd,
    jail: u32,
    digest: &TemplateDigest,
    data: &Path,
    behind: Behind<'_>,
) -> anyhow::Result<Stand> {
    let (clock, rng) = (Clock::system(), Rng::system());
    let base: TemplateName = template::NAME.parse()?;
    let trees = Trees::open(&data.join("trees")).context("open a tree")?;
    let mint = {
        let (clock, rng) = (clock.clone(), rng.clone());
        move || SandboxId::mint(clock.now_ms(), rng.bytes().unwrap_or_default())
    };
    let gvisor = behind.sentry().map(|sentry| GvisorConfig {
        images: [(digest.clone(), sentry.digest.clone())].into(),
        version: sentry.version.clone(),
        parked: 0,
    });
    let node = Node::start(
        socket,
        NodeConfig {
            source: Arc::new(trees.clone()),
            repos: bailey_node::git::repos_of(trees.clone()),
            checkouts: data.join("checkouts"),
            checkout_room: CHECKOUT_ROOM,
            templates: BTreeMap::from([(base.clone(), digest.clone())]),
            parked: 0,
            machines: Machines { origins: machines::origins(&clock, &rng), gvisor, microvm: None },
            limits: Limits::default(),
            large_disks: None,
            ceiling: Limits { timeout_ms: LONGEST_MS, ..Limits::default() },
            deadlines: Deadlines::default(),
            mint: Arc::new(mint),
        },
    )
    .await?;
    Ok(Stand { node, trees, jail, folder: data.to_owned(), wall: behind.wall(), base, clock, rng })
}
