//! Removing what an earlier life of the same data folder left: everything below its own cgroups, and nothing else.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bailey_protocol::jail::{JailFault, JailFaultKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::cgroup::group::{folders, populated, remove_folder};
use crate::cgroup::tree::Tree;
use crate::fault::{OrFault, fault};
use crate::server::enter::GROUP;
use crate::start::lock;
use crate::{clock, files, log};

/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills everything in the ledger's cgroups and removes them.
///
/// # Errors
/// When something there does not die.
pub(crate) fn sweep(tree: &Tree) -> Result<(), JailFault> {
    let step = "sweep what an earlier server left";
    let left = folders(&tree.home).or_internal(step)?;
    if !left.is_empty() {
        log::info("sweep", &[("groups", &left.len())]);
    }
    let deadline = clock::now() + PATIENCE;
    files::write(&tree.home, "cgroup.kill", "1").or_internal(step)?;
    while populated(&files::read(&tree.home, "cgroup.events").or_internal(step)?) {
        let Some(rest) = deadline.checked_sub(clock::now()) else {
            return Err(fault(JailFaultKind::Internal, step, "a process there does not die"));
        };
        wait_for_change(tree, rest.min(Duration::from_millis(20))).or_internal(step)?;
        files::write(&tree.home, "cgroup.kill", "1").or_internal(step)?;
    }
    let homes = tree.v1.iter().map(|hierarchy| &hierarchy.home).chain([&tree.home]);
    for home in homes {
        for name in folders(home).or_internal(step)? {
            remove_folder(home, name.as_c_str(), 0).or_internal(step)?;
        }
    }
    Ok(())
}

/// Waits until the kernel says that the group has changed, or a moment.
fn wait_for_change(tree: &Tree, moment: Duration) -> Result<(), Errno> {
    let events = openat(&tree.home, "cgroup.events", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(moment.subsec_nanos()) };
    poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout)).map(drop)
}

/// What a jail leaves in the cgroups when all its cages are gone.
#[derive(Debug)]
pub(crate) struct Traces {
    /// The folder that all ledgers share, in every hierarchy.
    pub(crate) tops: Vec<OwnedFd>,
    pub(crate) ledger: String,
    /// `/run/bailey`.
    pub(crate) shared: OwnedFd,
}

impl Traces {
    /// Removes the ledger's own folders, and the shared ones if no other ledger has any. For the end of a jail.
    pub(crate) fn remove(&self) {
        let Ok(_lock) = lock(&self.shared) else {
            log::warn("cgroups stay", &[("ledger", &self.ledger)]);
            return;
        };
        for top in &self.tops {
            for name in [format!("{}/{GROUP}", self.ledger), self.ledger.clone(), "../bailey".to_owned()] {
                match unlinkat(top, name.as_str(), AtFlags::REMOVEDIR) {
                    // Others use the shared one, and not every hierarchy has a group for the server.
                    Ok(()) | Err(Errno::BUSY | Errno::NOTEMPTY | Errno::NOENT) => {}
                    Err(errno) => log::warn("a cgroup stays", &[("name", &name), ("error", &errno)]),
                }
            }
        }
    }
}
