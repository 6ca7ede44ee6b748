//! Giving a parked cage to a run: limits, then slices.
//!
//! No tenant's code has run in the cage yet; its files are the template's. Even so nothing in it is resolved by a
//! privileged path walk: mount points are opened step by step, beneath the root, following no link.

use std::os::fd::{AsFd, OwnedFd};

use bailey_crash::Point;
use bailey_protocol::guest::AGENT_PATH;
use bailey_protocol::jail::{CAGE_UID_BASE, CageMount, JailFault};
use bailey_protocol::limits::{Limits, MAX_MOUNT_DEPTH, MAX_MOUNTS};
use bailey_protocol::path::SandboxPath;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};

use super::disk::{Layer, Upper, idmapped};
use super::facts;
use super::layers::visit;
use super::park::Workshop;
use super::userns::{self, USER};
use super::{Cage, Phase};
use crate::fault::{OrFault, invalid};
use crate::files;
use crate::uids::Base;

/// Places that a slice may not cover, lie in, or contain.
const RESERVED: [&str; 4] = ["/proc", "/dev", "/sys", "/run/bailey"];

/// One mounted slice.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The merged view.
    pub(crate) merged: OwnedFd,
    /// The lower layer, idmapped.
    pub(crate) lower: OwnedFd,
    /// What was written, if the code may write.
    pub(crate) upper: Option<Upper>,
}

/// Checks what a claim asks for before anything is changed.
///
/// # Errors
/// Names what is wrong with it.
pub(crate) fn check(mounts: &[CageMount], lowers: &[OwnedFd], shop: &Workshop) -> Result<(), JailFault> {
    let step = "check the mounts";
    if mounts.len() > MAX_MOUNTS {
        return Err(invalid(step, format!("more than {MAX_MOUNTS}")));
    }
    if mounts.len() != lowers.len() {
        return Err(invalid(step, format!("{} mounts came with {} descriptors", mounts.len(), lowers.len())));
    }
    for (number, mount) in mounts.iter().enumerate() {
        let at = mount.at.as_str();
        // They are made one by one, while every other cage waits.
        if at.split('/').count() > MAX_MOUNT_DEPTH + 1 {
            return Err(invalid(step, format!("a mount is more than {MAX_MOUNT_DEPTH} folders deep")));
        }
        if at == "/" || RESERVED.iter().any(|place| overlap(at, place)) || overlap(at, AGENT_PATH) {
            return Err(invalid(step, format!("`{at}` is reserved")));
        }
        if let Some(other) = mounts.iter().take(number).find(|other| overlap(at, other.at.as_str())) {
            return Err(invalid(step, format!("`{at}` overlaps `{}`", other.at)));
        }
    }
    lowers.iter().try_for_each(|lower| check_lower(lower, shop))
}

/// Whether one path contains the other.
fn overlap(a: &str, b: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    within(a, b) || within(b, a)
}

/// A lower layer is a folder of the right owner on the data folder's own file system.
fn check_lower(lower: &OwnedFd, shop: &Workshop) -> Result<(), JailFault> {
    let step = "check the lower layers";
    let stat = fstat(lower).or_invalid(step)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(invalid(step, "one is not a folder"));
    }
    if stat.st_uid != shop.slice_owner {
        return Err(invalid(step, format!("one belongs to uid {}", stat.st_uid)));
    }
    if stat.st_dev != shop.slice_device {
        return Err(invalid(step, "one lies outside the data folder's file system"));
    }
    Ok(())
}

/// Puts the limits in force and mounts the slices. A cage in which a step fails must be destroyed.
///
/// # Errors
/// Names the step.
pub(crate) fn claim(
    shop: &Workshop,
    cage: &mut Cage,
    limits: &Limits,
    mounts: &[CageMount],
    lowers: &[OwnedFd],
) -> Result<(), JailFault> {
    cage.parts.disk.resize(limits).or_fence("resize the disk")?;
    if cage.group.change_limits(&shop.tree, limits)? {
        cage.parts.facts.tell(&shop.machine, limits).or_fence("tell the cage of its machine")?;
    }
    // The threads that a program has by now would stay where they are; its own machine tells what it was granted.
    if let (Some(init), None) = (&cage.init, &cage.program) {
        facts::keep_on(init.pid, &cage.processors).or_fence("give the cage its processors")?;
    }
    bailey_crash::point(Point::LimitsSet);
    if !mounts.is_empty() {
        mount_slices(shop, cage, mounts, lowers)?;
    }
    cage.phase = Phase::Claimed;
    Ok(())
}

fn mount_slices(shop: &Workshop, cage: &mut Cage, mounts: &[CageMount], lowers: &[OwnedFd]) -> Result<(), JailFault> {
    // A mount can only be cloned in its own namespace.
    let Some(idmap) = cage.parts.slice_userns.as_ref().map(AsFd::as_fd) else {
        return Err(invalid("mount the slices", "the cage takes none"));
    };
    let clones =
        visit(&shop.mounts, &shop.node_mounts, || lowers.iter().map(|lower| idmapped(lower, "", idmap)).collect());
    let clones: Vec<OwnedFd> = clones.or_fence("map the owners of a slice")?;
    let mut places = Vec::with_capacity(mounts.len());
    for (number, (mount, lower)) in mounts.iter().zip(clones).enumerate() {
        cage.parts.slices.push(build_slice(cage, number, mount, lower)?);
        places.push(mount_point(cage, &mount.at)?);
    }
    let Some(namespace) = &cage.parts.mounts else {
        return Err(invalid("mount the slices", "the cage has ended"));
    };
    bailey_crash::point(Point::SlicesBuilt);
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    let mut pairs = cage.parts.slices.iter().zip(&places);
    let moved = visit(&shop.mounts, namespace, || {
        pairs.try_for_each(|(slice, place)| move_mount(&slice.merged, "", place, "", flags))
    });
    moved.or_fence("mount the slices")?;
    bailey_crash::point(Point::SlicesMounted);
    Ok(())
}

fn build_slice(cage: &Cage, number: usize, mount: &CageMount, lower: OwnedFd) -> Result<Slice, JailFault> {
    let step = "build a slice";
    let parts = &cage.parts;
    if mount.writable {
        let upper = parts.disk.upper(&format!("slice-{number}"), cage.base.0 + USER).or_fence(step)?;
        let merged = parts.disk.overlay(&lower, Layer::Writable(&upper)).or_fence(step)?;
        return Ok(Slice { merged, lower, upper: Some(upper) });
    }
    let merged = parts.disk.overlay(&lower, Layer::Empty(&parts.empty)).or_fence(step)?;
    Ok(Slice { merged, lower, upper: None })
}

/// Opens a mount point, making what is missing of it.
fn mount_point(cage: &Cage, path: &SandboxPath) -> Result<OwnedFd, JailFault> {
    let step = "make a mount point";
    let mut at: Option<OwnedFd> = None;
    for name in path.as_str().split('/').filter(|name| !name.is_empty()) {
        let parent = at.as_ref().unwrap_or(&cage.parts.root);
        let next = match open_inside(parent, name) {
            Err(Errno::NOENT) => make_inside(cage, parent, name).or_fence(step)?,
            Err(errno @ (Errno::NOTDIR | Errno::LOOP | Errno::XDEV)) => {
                return Err(invalid(step, format!("`{path}` leads through something else than folders: {errno}")));
            }
            other => other.or_fence(step)?,
        };
        at = Some(next);
    }
    at.ok_or_else(|| invalid(step, "it is the root"))
}

fn open_inside(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(parent, name, flags, Mode::empty(), resolve)
}

fn make_inside(cage: &Cage, parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    let made = open_inside(parent, name)?;
    let (uid, gid) = (Uid::from_raw(cage.base.0), Gid::from_raw(cage.base.0));
    chownat(&made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    Ok(made)
}

/// Makes sure that the file system that slices lie on can map their owners. A tmpfs cannot before Linux 6.3.
pub(crate) fn verify_owners(folder: &OwnedFd) -> Result<(), Errno> {
    let map = userns::for_slices(0, Base(CAGE_UID_BASE))?;
    idmapped(folder, "", map.as_fd()).map(drop)
}

/// The file system that slices must lie on.
pub(crate) fn device_of(folder: &OwnedFd) -> Result<u64, Errno> {
    files::open_folder(folder, ".").and_then(|folder| Ok(fstat(&folder)?.st_dev))
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn paths_overlap_by_whole_names() {
        assert!(overlap("/data", "/data"));
        assert!(overlap("/data/x", "/data"));
        assert!(overlap("/run", "/run/bailey"));
        assert!(!overlap("/data", "/database"));
        assert!(!overlap("/runs", "/run/bailey"));
        assert!(!overlap("/development", "/dev"));
    }
}
