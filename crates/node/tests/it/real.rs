//! The real jail, attached to this process, with the real guest and the `base` template.
//!
//! Needs root and what `make test` prepares: the static binaries (`BAILEY_STATIC_DIR`, or `static/` in the target
//! folder) and the template (`BAILEY_CACHE`, or `/var/cache/bailey`).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use bailey_node::wall::gvisor::{self, GvisorConfig};
use bailey_node::wall::microvm::{self as machine, Accelerator, MicrovmConfig, Patience};
use bailey_node::wall::streamed::{Origin, Origins};
use bailey_node::{CheckoutRoom, Deadlines, Machines, Microvm, Node, NodeConfig, git};
use bailey_protocol::guest::AGENT_PATH;
use bailey_protocol::id::TemplateDigest;
use bailey_protocol::jail::{SupervisorConfig, TemplateImage};
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use bailey_tree::Trees;
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::bench::mint;

/// A node over the real jail.
pub(crate) struct Host {
    /// The wall that its runs are behind.
    pub(crate) wall: WallKind,
    pub(crate) runtime: Runtime,
    pub(crate) node: Node,
    pub(crate) trees: Trees,
    pub(crate) jail: Child,
}

/// The host that the contract's cases share. The jail ends with this process and removes what it made.
pub(crate) fn shared() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-contract");
        Host::start(&data, 4)
    })
}

/// The same behind gVisor.
pub(crate) fn shared_gvisor() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-contract-gvisor");
        Host::start_behind(WallKind::Gvisor, &data, 2)
    })
}

/// The same behind machines with a kernel of their own.
pub(crate) fn shared_microvm() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-contract-microvm");
        Host::start_behind(WallKind::Microvm, &data, 2)
    })
}

impl Host {
    /// Starts a jail on a data folder, and a node with so many parked sandboxes.
    pub(crate) fn start(data: &Path, parked: usize) -> Self {
        Self::start_behind(WallKind::Container, data, parked)
    }

    /// The same with this wall, whose sandboxes are the ones that are parked.
    pub(crate) fn start_behind(wall: WallKind, data: &Path, parked: usize) -> Self {
        assert!(rustix::process::geteuid().is_root(), "the real wall needs root: use `make test`");
        std::fs::create_dir_all(data).unwrap();
        if let Some(filter) = setting("RUST_LOG") {
            drop(
                tracing_subscriber::fmt()
                    .with_env_filter(filter.to_string_lossy())
                    .with_writer(std::io::stderr)
                    .try_init(),
            );
        }
        let ours = data.join("attached");
        drop(std::fs::remove_dir_all(&ours));
        let image = (wall == WallKind::Gvisor).then(gvisor_image);
        let machines = (wall == WallKind::Microvm).then(|| microvm(&ours.join("machines"), 1152 << 20));
        let images = image.iter().chain(machines.iter().map(|(image, _)| image)).cloned().collect();
        let (socket, jail, digest) = jail_with(data, images);
        let gvisor = image.map(|image| GvisorConfig {
            images: [(digest.clone(), image.digest)].into(),
            version: "test".to_owned(),
            parked,
        });
        let microvm = machines.map(|(_, config)| Microvm { config, host: processor(), parked });
        let origins: Origins = Arc::new(|| {
            let mut random = [0; Origin::RANDOM];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            Ok(Origin { now_ns: u64::try_from(now.tv_sec).unwrap() * 1_000_000_000, random })
        });
        let runtime = Runtime::new().unwrap();
        let trees = Trees::open(&ours.join("trees")).unwrap();
        let config = NodeConfig {
            source: Arc::new(trees.clone()),
            repos: git::repos_of(trees.clone()),
            checkouts: ours.join("checkouts"),
            checkout_room: CheckoutRoom { most: 1 << 30, kept: 1 << 30 },
            templates: [("base".parse().unwrap(), digest)].into(),
            parked: if wall == WallKind::Container { parked } else { 0 },
            machines: Machines { origins, gvisor, microvm },
            limits: Limits::default(),
            ceiling: Limits { timeout_ms: 600_000, output_bytes: 1 << 30, ..Limits::default() },
            large_disks: None,
            deadlines: Deadlines::default(),
            mint: mint(),
        };
        let node = runtime.block_on(Node::start(socket, config)).unwrap();
        Self { wall, runtime, node, trees, jail }
    }
}

/// A jail on a data folder that has these images beside the template's, the node's end of its socket, and the template that
/// its cages start from.
pub(crate) fn jail_with(data: &Path, images: Vec<TemplateImage>) -> (OwnedFd, Child, TemplateDigest) {
    let (guest, jail) = (binary("bailey-guest"), binary("bailey-jail"));
    let template = template();
    let digest = template.digest.clone();
    let config = SupervisorConfig {
        data: data.to_owned(),
        guest_sha256: sha256(&guest),
        guest_binary: guest,
        templates: vec![template],
        images,
        large_disks: None,
        server: None,
    };
    let (socket, jail) = attach(&jail, &config);
    (socket, jail, digest)
}

/// Starts `bailey-jail` with its two descriptors.
fn attach(binary: &Path, config: &SupervisorConfig) -> (OwnedFd, Child) {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let mut memfd = File::from(rustix::fs::memfd_create("config", MemfdFlags::CLOEXEC).unwrap());
    memfd.write_all(&serde_json::to_vec(config).unwrap()).unwrap();
    // They travel as stdin and stdout, so that no other child of this process sees them.
    let script = "exec 3<&0 4<&1 </dev/null >&2; exec \"$0\" 4";
    let jail = Command::new("sh")
        .args(["-c", script])
        .arg(binary)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(OwnedFd::from(memfd)))
        .spawn()
        .unwrap();
    (ours, jail)
}

fn setting(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn binary(name: &str) -> PathBuf {
    let built = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        target.join("static").join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).join("static")
    };
    let path = setting("BAILEY_STATIC_DIR").unwrap_or_else(built).join(name);
    assert!(path.is_file(), "`{}` is missing: run `make static`", path.display());
    path
}

/// Where images are.
pub(crate) fn cache() -> PathBuf {
    setting("BAILEY_CACHE").unwrap_or_else(|| "/var/cache/bailey".into())
}

/// What the host's processor is.
pub(crate) fn processor() -> machine::Host {
    machine::Host::read(&std::fs::read_to_string("/proc/cpuinfo").unwrap(), Accelerator::Tcg).unwrap()
}

/// The image of the machines, and machines of this size that are kept in a folder.
pub(crate) fn microvm(folder: &Path, memory_bytes: u64) -> (TemplateImage, MicrovmConfig) {
    let cache = cache().join("templates");
    let image = std::fs::read(cache.join("microvm.json"));
    let image = image.expect("no image: run `bailey template prepare --wall microvm`");
    let image: serde_json::Value = serde_json::from_slice(&image).unwrap();
    let text = |name: &str| image[name].as_str().unwrap().to_owned();
    let digest: TemplateDigest = text("digest").parse().unwrap();
    let warm = ["python3", "-c", "import json, random, uuid, secrets"].map(str::to_owned);
    let config = MicrovmConfig {
        template: text("template").parse().unwrap(),
        image: digest.clone(),
        kernel: text("kernel"),
        vmm: text("vmm"),
        memory_bytes,
        folder: folder.to_owned(),
        warm: vec![warm.into()],
        canaries: Vec::new(),
        cold: false,
        patience: Patience::default(),
    };
    (TemplateImage { image: cache.join(format!("{digest}.erofs")), digest }, config)
}

/// An image with the host's `runsc`, the guest and the template, as the product packs it.
fn gvisor_image() -> TemplateImage {
    static IMAGE: OnceLock<TemplateImage> = OnceLock::new();
    IMAGE.get_or_init(pack_gvisor).clone()
}

fn pack_gvisor() -> TemplateImage {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gvisor-image");
    drop(std::fs::remove_dir_all(&folder));
    let (root, packed) = (folder.join("root"), folder.join("image.erofs"));
    let rootfs = root.join("bundle/rootfs");
    std::fs::create_dir_all(root.join("bundle")).unwrap();
    let done = |command: &mut Command| assert!(command.stdin(Stdio::null()).status().unwrap().success(), "{command:?}");
    done(Command::new("fsck.erofs").arg(format!("--extract={}", rootfs.display())).arg(template().image));
    let agent = rootfs.join(AGENT_PATH.trim_start_matches('/'));
    for (from, to) in [(binary("bailey-guest"), agent), ("/usr/bin/runsc".into(), root.join("runsc"))] {
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::write(root.join("bundle/config.json"), gvisor::bundle().to_string()).unwrap();
    let mut pack = Command::new("mkfs.erofs");
    pack.args(["--quiet", "-zlz4"]).args(["uid", "gid"].map(|id| format!("--force-{id}={}", gvisor::OWNER)));
    done(pack.arg(&packed).arg(&root));
    std::fs::set_permissions(&packed, PermissionsExt::from_mode(0o400)).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    TemplateImage { digest: sha256(&packed).parse().unwrap(), image: packed }
}

fn template() -> TemplateImage {
    let cache = cache().join("templates");
    let manifest = std::fs::read(cache.join("base.json")).expect("no template: run `bailey template prepare`");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let digest: TemplateDigest = manifest["digest"].as_str().unwrap().parse().unwrap();
    TemplateImage { image: cache.join(format!("{digest}.erofs")), digest }
}

fn sha256(path: &Path) -> String {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
