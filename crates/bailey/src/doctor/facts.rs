//! What this machine is.

use serde::Serialize;

use crate::serve::host::{KERNEL_TEXT, new_enough, release};

const LANDLOCK: i32 = 2;

/// Facts about the host that decide what works.
#[derive(Debug, Serialize)]
pub(crate) struct HostFacts {
    pub(crate) kernel: String,
    pub(crate) kernel_new_enough: bool,
    pub(crate) root: bool,
    /// `v1`, `v2`, `hybrid` or `none`.
    pub(crate) cgroups: &'static str,
    pub(crate) cgroup_controllers: Vec<String>,
    /// The kernel's Landlock version, 0 where it has none.
    pub(crate) landlock_abi: i32,
    pub(crate) erofs: bool,
    pub(crate) overlay: bool,
    /// For disks that do not fit in memory; nothing is missing without.
    pub(crate) ext4: bool,
}

impl HostFacts {
    pub(crate) fn read() -> Self {
        let kernel = release();
        let file_systems = read("/proc/filesystems");
        // Modules that are not loaded yet count: mounting loads them.
        let has = |name: &str| {
            file_systems.lines().any(|line| line.split_whitespace().last() == Some(name)) || module(name, &kernel)
        };
        let mounts = read("/proc/self/mountinfo");
        let kinds: Vec<&str> = mounts.lines().filter_map(|line| line.split(" - ").nth(1)?.split(' ').next()).collect();
        let cgroups = match (kinds.contains(&"cgroup"), kinds.contains(&"cgroup2")) {
            (true, true) => "hybrid",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        };
        let controllers = read("/proc/cgroups");
        let fields = |line: &str| -> Option<String> {
            let mut fields = line.split_whitespace();
            let name = fields.next()?;
            (fields.nth(2)? == "1" && !name.starts_with('#')).then(|| name.to_owned())
        };
        Self {
            kernel_new_enough: new_enough(&kernel),
            root: rustix::process::geteuid().is_root(),
            cgroups,
            cgroup_controllers: controllers.lines().filter_map(fields).collect(),
            landlock_abi: bailey_sys::landlock::offered(),
            erofs: has("erofs"),
            overlay: has("overlay"),
            ext4: has("ext4"),
            kernel,
        }
    }

    /// What is missing, in words. Empty: nothing.
    pub(crate) fn missing(&self) -> Vec<String> {
        let controller = |name: &str| self.cgroup_controllers.iter().any(|known| known == name);
        let checks = [
            (self.root, "root: run it with sudo".to_owned()),
            (self.kernel_new_enough, format!("Linux {KERNEL_TEXT} or newer: this is {}", self.kernel)),
            (
                self.landlock_abi >= LANDLOCK,
                format!("Landlock, interface {LANDLOCK} or newer: enable it in the kernel and in its `lsm=` list"),
            ),
            (self.erofs, "the file system `erofs`: enable it in the kernel".to_owned()),
            (self.overlay, "the file system `overlay`: enable it in the kernel".to_owned()),
            (self.cgroups != "none", "a mounted cgroup file system".to_owned()),
            (controller("memory"), "the cgroup controller `memory`: enable it on the kernel's command line".to_owned()),
            (controller("pids"), "the cgroup controller `pids`: enable it in the kernel".to_owned()),
            (controller("cpu"), "the cgroup controller `cpu`: enable it in the kernel".to_owned()),
        ];
        checks.into_iter().filter(|(there, _)| !there).map(|(_, what)| what).collect()
    }
}

fn module(name: &str, release: &str) -> bool {
    let listed = read(&format!("/lib/modules/{release}/modules.dep"));
    let file = format!("/{name}.ko");
    listed.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains(&file)))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
