//! The software kernel: gVisor's `runsc` in a cage of the jail's, the guest as its first program.
//!
//! It starts without rights: one user of the cage, no network, no cgroup of its own, and its line on standard input and
//! output. What code does reaches a kernel that is a program, which asks little of the host's. Limits are the cage's, and
//! hold for that program and all that it runs together: see [`cage_limits`]. What the code writes and what is mounted for
//! it is in that program's memory.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use bailey_protocol::guest::AGENT_PATH;
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::{Profile, StopFacts};
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use serde_json::json;
use tokio::net::UnixStream;

use super::jailed::Launch;
use super::streamed::{Streamed, measure};
use super::{BoxFuture, Capabilities, Changes, ClaimOrder, Live, Parked, Wall, WallError};

const MIB: u64 = 1024 * 1024;

/// Memory that the kernel and the servant of its files take beside what the code has.
const OVERHEAD: u64 = 160 * MIB;
/// What it writes to its own disk: its state.
const STATE: u64 = 16 * MIB;
/// Threads of the kernel itself, and those that stand for one of the code's on the host.
const THREADS: u32 = 256;
const THREADS_EACH: u32 = 8;
/// Most threads that a cage may have.
const MOST_THREADS: u32 = 65_536;

/// How it gets hold of what code asks of it. Other ways take what a cage does not give: a device, or a newer release than
/// Debian's.
pub const PLATFORM: &str = "ptrace";

/// How it is started. Standard input and output are the first descriptor that it is handed.
const COMMAND: [&str; 11] = [
    "/runsc",
    "--root=/tmp/state",
    "--rootless",
    "--network=none",
    "--ignore-cgroups",
    "--platform=ptrace",
    "--file-access=exclusive",
    "run",
    "--bundle",
    "/bundle",
    "sandbox",
];

/// The user of a cage's program, whom everything in an image belongs to: `runsc` has it for root inside.
pub const OWNER: u32 = 1000;

/// What the first program keeps: it mounts, and starts programs as others.
const CAPABILITIES: [&str; 11] = [
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_MKNOD",
];

/// What `/bundle/config.json` of an image says: `bailey-guest` is the first program, on the template in `rootfs`. The root
/// is read-only as it is; `runsc` cannot make it so once more in its cage.
#[must_use]
pub fn bundle() -> serde_json::Value {
    let mounts = [("/proc", "proc"), ("/dev", "tmpfs"), ("/tmp", "tmpfs")]
        .map(|(at, kind)| json!({ "destination": at, "type": kind, "source": kind }));
    let namespaces = ["pid", "mount", "ipc", "uts", "network"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": { "uid": 0, "gid": 0 }, "cwd": "/", "env": [],
            "args": [AGENT_PATH, "machine", "--stdio"],
            "capabilities": { "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 1024, "hard": 65_536 }],
        },
        "root": { "path": "rootfs", "readonly": false },
        "hostname": "sandbox", "mounts": mounts, "linux": { "namespaces": namespaces },
    })
}

/// What the wall is made from.
#[derive(Debug, Clone)]
pub struct GvisorConfig {
    /// For each template, the image with `runsc`, a bundle and the template in it.
    pub images: BTreeMap<TemplateDigest, TemplateDigest>,
    /// What `runsc` calls itself.
    pub version: String,
    /// Sandboxes that wait, for each template.
    pub parked: usize,
}

/// Kernels in user space on this host.
#[derive(Debug)]
pub struct GvisorWall {
    streamed: Streamed,
    config: GvisorConfig,
}

impl GvisorWall {
    /// A wall over the images of a configuration.
    #[must_use]
    pub fn new(streamed: Streamed, config: GvisorConfig) -> Self {
        Self { streamed, config }
    }

    async fn park_whole(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> Result<Parked, WallError> {
        if limits.wants_large_disk() {
            return Err(WallError::Unable("its disk is in memory: ask for no more than three quarters of that"));
        }
        let image = self.config.images.get(&template).cloned();
        let image = image.ok_or(WallError::Unable("it has no image of this template"))?;
        let (ours, theirs) = StdUnixStream::pair().map_err(WallError::Descriptor)?;
        ours.set_nonblocking(true).map_err(WallError::Descriptor)?;
        let stream = UnixStream::from_std(ours).map_err(WallError::Descriptor)?;
        let launch = Launch {
            image,
            profile: Profile::Sentry,
            command: COMMAND.map(str::to_owned).to_vec(),
            limits: cage_limits(&limits, 0),
            fds: vec![theirs.into()],
        };
        let wall = Arc::clone(&self) as Arc<dyn Wall>;
        let (hold, mut fences, death) = self.streamed.jail().launch(sandbox, launch, wall).await?;
        // Which kernel it is matters as much as the cage around it.
        fences.extend([format!("runsc:{}", self.config.version), format!("platform:{PLATFORM}")]);
        Ok(Parked { hold, template, fences, stream, death, warm: Vec::new() })
    }

    /// What is mounted is in the kernel's memory, on top of the code's own.
    async fn content(&self, order: &ClaimOrder) -> Result<u64, WallError> {
        let lowers: Vec<_> = order.mounts.iter().map(|mount| Arc::clone(&mount.lower)).collect();
        let measured = self.streamed.jail().tasks().spawn_blocking(move || {
            let mut bytes = 0_u64;
            for (number, lower) in lowers.iter().enumerate() {
                let more = measure(lower).map_err(|cause| WallError::Unreadable { number, cause })?;
                bytes = bytes.saturating_add(more);
            }
            Ok(bytes)
        });
        let number = 0;
        let lost = |panicked| WallError::Unreadable { number, cause: std::io::Error::other(panicked) };
        let bytes = measured.await.map_err(lost)??;
        if bytes > order.limits.memory_bytes {
            return Err(WallError::Unable("what is mounted is in memory: ask for as much memory as the folders take"));
        }
        Ok(bytes)
    }
}

/// The limits of the cage. Of the code's own, time and output hold exactly, memory and CPU together with what the kernel
/// takes; processes are limited by what stands for them on the host.
fn cage_limits(limits: &Limits, content: u64) -> Limits {
    let threads = limits.pids.saturating_mul(THREADS_EACH).saturating_add(THREADS).min(MOST_THREADS);
    Limits {
        memory_bytes: limits.memory_bytes.saturating_add(OVERHEAD).saturating_add(content),
        pids: threads,
        disk_bytes: STATE,
        disk_inodes: 1024,
        open_files: 2048,
        ..*limits
    }
}

impl Wall for GvisorWall {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kind: WallKind::Gvisor, accelerated: None }
    }

    fn park(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> BoxFuture<'static, Result<Parked, WallError>> {
        let jail = self.streamed.jail().clone();
        jail.make(self.park_whole(sandbox, template, limits))
    }

    fn claim<'a>(&'a self, live: &'a Live, order: ClaimOrder) -> BoxFuture<'a, Result<Vec<String>, WallError>> {
        Box::pin(async move {
            let content = self.content(&order).await?;
            let cage = cage_limits(&order.limits, content);
            self.streamed.claim(live, order, cage).await
        })
    }

    fn stop<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<StopFacts, WallError>> {
        Box::pin(self.streamed.stop(live))
    }

    fn collect<'a>(&'a self, live: &'a Live, mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>> {
        Box::pin(async move { Ok(Some(self.streamed.collect(live, mount).await)) })
    }

    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(self.streamed.jail().destroy(sandbox))
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.streamed.jail().lost())
    }
}
