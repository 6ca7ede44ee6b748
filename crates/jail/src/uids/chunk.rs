//! Which jail of the host holds which chunk of uid ranges.
//!
//! A chunk is a file `/run/bailey/uids/{number}` that holds the name of the ledger it was given to. The jail keeps
//! a lock on it while it lives. A chunk without a lock may be taken over once nothing lives in its ledger's
//! cgroups: that, not the end of its jail, is the proof that its uids are dead.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use bailey_protocol::jail::{JailFault, JailFaultKind};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, ftruncate, openat};
use rustix::io::Errno;

use super::CHUNKS;
use crate::cgroup::group::populated;
use crate::fault::{OrFault, fault};
use crate::{files, ledger};

/// A chunk that this jail holds.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Its number.
    pub(crate) number: u32,
    _lock: OwnedFd,
}

/// Takes a chunk: the one held before if it is free, else the first that is.
///
/// # Errors
/// When every chunk is taken or some process of an earlier holder may still live.
pub(crate) fn take(folder: &OwnedFd, cgroups: &OwnedFd, ledger: &str, before: Option<u32>) -> Result<Chunk, JailFault> {
    let step = "take a chunk of user ids";
    // Start where the name says, so that jails that start together do not all try the same ones.
    let start = u32::from_str_radix(ledger.get(..4).unwrap_or("0"), 16).unwrap_or(0) % CHUNKS;
    let spread = (0..CHUNKS).map(|number| (start + number) % CHUNKS);
    for number in before.filter(|number| *number < CHUNKS).into_iter().chain(spread) {
        if let Some(chunk) = try_take(folder, cgroups, ledger, number).or_internal(step)? {
            return Ok(chunk);
        }
    }
    Err(fault(JailFaultKind::Exhausted, step, "all are taken"))
}

fn try_take(folder: &OwnedFd, cgroups: &OwnedFd, ledger: &str, number: u32) -> Result<Option<Chunk>, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = openat(folder, number.to_string().as_str(), flags, Mode::from_raw_mode(0o600))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    let mut file = File::from(lock);
    let mut holder = String::new();
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    (&mut file).take(64).read_to_string(&mut holder).map_err(io)?;
    if !holder.is_empty() && holder != ledger && may_live(cgroups, &holder)? {
        return Ok(None);
    }
    ftruncate(&file, 0)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    file.write_all(ledger.as_bytes()).map_err(io)?;
    Ok(Some(Chunk { number, _lock: file.into() }))
}

/// Whether a process of that ledger may still run.
fn may_live(cgroups: &OwnedFd, holder: &str) -> Result<bool, Errno> {
    if !ledger::is_name(holder) {
        return Ok(true);
    }
    match files::read(cgroups, format!("{holder}/cgroup.events").as_str()) {
        Ok(events) => Ok(populated(&events)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
