//! G01: what a kernel can be denied while it runs, and what it was started without. The first changes the whole
//! machine, so both are for the one of `machine` alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use bailey_protocol::jail::JailOp;
use bailey_protocol::limits::Limits;
use tempfile::TempDir;

use crate::harness::{Jail, config, fixture, new_sandbox};

/// How a jail, or its first cage, is refused.
fn refusal() -> String {
    refusal_on(&std::env::temp_dir())
}

/// The same, with its data in a folder of that one.
fn refusal_on(folder: &Path) -> String {
    let data = TempDir::new_in(folder).unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut jail = Jail::start_with(&config(data.path()), &format!("exec 2>{};", log.path().display()));
    let limits = Limits::default();
    let park = JailOp::Park { sandbox: new_sandbox(), template: fixture().digest.clone(), limits };
    jail.send_if_there(park);
    let Some((reply, descriptors)) = jail.receive() else {
        assert_eq!(jail.wait_for_refusal(), Some(1));
        return std::fs::read_to_string(log.path()).unwrap();
    };
    let fault = reply.result.unwrap_err();
    assert!(descriptors.is_empty());
    jail.leave();
    format!("{fault:?}")
}

/// A number of namespaces that is put back in the end.
struct Count(PathBuf, String);

impl Count {
    fn of_none(kind: &str) -> Self {
        let path = Path::new("/proc/sys/user").join(format!("max_{kind}_namespaces"));
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "0").unwrap();
        Self(path, before)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        std::fs::write(&self.0, &self.1).unwrap();
    }
}

#[test]
fn g01_what_a_kernel_is_denied_is_refused_by_its_name() {
    if std::env::var_os("BAILEY_JAIL_FIXTURE").is_none() {
        eprintln!("changes the whole machine, so it runs in that of `machine`");
        return;
    }
    for (kind, step) in [
        ("user", "user namespaces are switched off"),
        ("mnt", "make a mount namespace"),
        ("pid", "make the namespaces"),
        ("net", "make the namespaces"),
        ("ipc", "make the namespaces"),
        ("uts", "make the namespaces"),
        ("time", "make the namespaces"),
        ("cgroup", "make a cgroup namespace"),
    ] {
        let _none = Count::of_none(kind);
        let said = refusal();
        assert!(said.contains(step), "{kind}: {said}");
    }
    for module in ["overlay", "erofs"] {
        let busybox = |words: &[&str]| assert!(Command::new("/bin/busybox").args(words).status().unwrap().success());
        busybox(&["rmmod", module]);
        let said = refusal();
        assert!(said.contains(&format!("no {module} file system")), "{said}");
        busybox(&["insmod", &format!("/modules/{module}.ko")]);
    }
    // A tmpfs can map owners from Linux 6.3 on.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    if ["6.1.", "6.2."].iter().any(|old| release.starts_with(old)) {
        let said = refusal_on(Path::new("/run"));
        assert!(said.contains("map the owners of the data folder"), "{said}");
    }
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    jail.park();
    jail.leave();
}

#[test]
fn g01_what_a_kernel_was_started_without_is_refused_by_its_name() {
    let Ok(missing) = std::env::var("BAILEY_JAIL_MISSING") else {
        eprintln!("needs a kernel that was started without something, so it runs in that of `machine`");
        return;
    };
    let said = refusal();
    assert!(said.contains(&missing), "{said}");
}
