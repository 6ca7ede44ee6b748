//! The slices of a claimed machine: their layers, and how they are mounted before any code runs.

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::jail::CageMount;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::scratch::{Scratch, Upper};
use super::{Machine, Phase, Step};
use crate::agent::connect::{Code, RpcError};
use crate::exec::identity::User;

/// How much of a slice is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Missing,
    Coming,
    Whole,
}

/// One slice.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) mount: CageMount,
    /// What the node sent.
    pub(super) lower: OwnedFd,
    pub(super) content: Cell<Content>,
    /// What the code writes, where it may.
    pub(super) upper: Option<Upper>,
    /// What the code sees.
    pub(super) merged: OnceCell<OwnedFd>,
}

impl Slice {
    /// Makes its layers, which are the user's.
    pub(super) fn make(scratch: &Scratch, number: usize, mount: CageMount) -> Result<Self, Errno> {
        let owner = User::User.ids().0.as_raw();
        let lower = scratch.lower(&format!("slice-{number}"), owner)?;
        let upper = mount.writable.then(|| scratch.upper(&format!("slice-{number}"), owner)).transpose()?;
        Ok(Self { mount, lower, content: Cell::new(Content::Missing), upper, merged: OnceCell::new() })
    }

    /// Upper, merged and lower layer, if it can be written to and is mounted.
    pub(super) fn layers(&self) -> Option<[BorrowedFd<'_>; 3]> {
        Some([self.upper.as_ref()?.upper.as_fd(), self.merged.get()?.as_fd(), self.lower.as_fd()])
    }
}

impl Machine {
    /// Mounts all slices, once the last one is here.
    pub(crate) fn mount_slices(&self) -> Result<(), RpcError> {
        let refusal = RpcError::new(Code::FailedPrecondition, "the machine is not claimed, or initialised already");
        let Some(claimed) = self.claimed.get() else {
            return Err(refusal);
        };
        if let Some(number) = claimed.slices.iter().position(|slice| slice.content.get() != Content::Whole) {
            return Err(RpcError::new(Code::FailedPrecondition, format!("slice {number} has not come")));
        }
        self.advance((Phase::Claimed, Phase::Ready), refusal, || {
            claimed.scratch.settle(&claimed.limits).step("give the scratch space its size")?;
            let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step("open the root")?;
            for slice in &claimed.slices {
                let merged = self.ground.mount_slice(&claimed.scratch, slice, &root).step("mount a slice")?;
                let _only_once = slice.merged.set(merged);
            }
            Ok(())
        })
    }
}
