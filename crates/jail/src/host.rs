//! What the jail needs of the host, checked before anything is changed. What cannot be checked ahead (a mount, a
//! namespace) is refused by the step that needs it.

use std::path::Path;

use bailey_protocol::jail::{JailFault, JailFaultKind};
use rustix::fs::CWD;

use crate::fault::{OrFault, fault};
use crate::files;

/// Oldest kernel that has everything.
const OLDEST: (u32, u32) = (6, 1);

/// Namespaces, as the kernel names them in `/proc/self/ns`.
const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

/// Checks the host.
///
/// # Errors
/// Names the first thing that is missing.
pub(crate) fn check() -> Result<(), JailFault> {
    let missing = |what: String| Err(fault(JailFaultKind::Fence, "check the host", what));
    if !rustix::process::geteuid().is_root() {
        return missing("bailey-jail must be root".to_owned());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if version(&release).is_none_or(|found| found < OLDEST) {
        return missing(format!("the kernel is {release}; it must be 6.1 or newer"));
    }
    for kind in NAMESPACES {
        if !Path::new("/proc/self/ns").join(kind).exists() {
            return missing(format!("the kernel has no {kind} namespaces"));
        }
    }
    let allowed = files::read(CWD, "/proc/sys/user/max_user_namespaces").or_fence("check the host")?;
    if allowed.trim() == "0" {
        return missing("user namespaces are switched off (user.max_user_namespaces is 0)".to_owned());
    }
    let started_with = files::read(CWD, "/proc/cmdline").or_fence("check the host")?;
    if let Some(switch) = uncounted(&started_with) {
        return missing(format!("the kernel was started with cgroup.memory={switch}; cages need that counted"));
    }
    let landlock = bailey_sys::landlock::offered();
    if landlock < 2 {
        return missing(format!("the kernel offers Landlock ABI {landlock}; cages need 2"));
    }
    let actions = files::read(CWD, "/proc/sys/kernel/seccomp/actions_avail").or_fence("find seccomp")?;
    for action in ["kill_process", "errno"] {
        if !actions.split_whitespace().any(|known| known == action) {
            return missing(format!("the kernel's seccomp has no {action}"));
        }
    }
    let known = files::read(CWD, "/proc/filesystems").or_fence("check the host")?;
    for kind in ["overlay", "erofs", "tmpfs", "devpts", "proc", "cgroup2"] {
        if !known.lines().any(|line| line.split_whitespace().last() == Some(kind)) && !loadable(kind) {
            return missing(format!("the kernel has no {kind} file system"));
        }
    }
    Ok(())
}

/// The part of a cage's memory that the kernel was told not to count, from its command line.
fn uncounted(command_line: &str) -> Option<&str> {
    let values = command_line.split_whitespace().filter_map(|word| word.strip_prefix("cgroup.memory="));
    values.flat_map(|value| value.split(',')).find(|switch| ["nosocket", "nokmem"].contains(switch))
}

/// Whether a module of the running kernel may bring a file system when it is first mounted.
fn loadable(kind: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let list = Path::new("/lib/modules").join(release).join("modules.dep");
    std::fs::read_to_string(list).is_ok_and(|text| text.contains(&format!("/{kind}.ko")))
}

/// Major and minor number of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{uncounted, version};

    #[test]
    fn g01_a_kernel_told_not_to_count_memory_is_refused() {
        assert_eq!(uncounted("quiet cgroup.memory=nobpf,nokmem ro"), Some("nokmem"));
        assert_eq!(uncounted("cgroup.memory=nosocket"), Some("nosocket"));
        assert_eq!(uncounted("quiet cgroup.memory=nobpf nokmem"), None);
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc-v857"), Some((6, 18)));
        assert_eq!(version("6.1-rc1"), Some((6, 1)));
        assert!(version("5.19.0") < Some((6, 1)));
        assert!(version("10.0") > Some((6, 1)));
        assert_eq!(version("six"), None);
    }
}
