//! The jail's own durable record in `DATA/jail/`: one lock and one name.
//!
//! Cages need no record of their own: everything that could outlive a jail lies in cgroups below
//! `bailey/{ledger id}`, and mounts, loop devices and user ids end with the processes in them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use bailey_protocol::jail::{JailFault, JailFaultKind, SERVER_UID};
use rustix::event::{Timespec, poll};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, chmodat, chownat, flock, fstat,
    mkdirat, open, openat, renameat_with,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::fault::{OrFault, fault};
use crate::{clock, files};

const VERSION: u32 = 1;
const MAX_LEDGER: u64 = 64 * 1024;

/// The durable record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    /// Name of this data folder's cgroups.
    id: String,
    /// The uid chunk held last; tried first the next time.
    chunk: Option<u32>,
}

/// The locked data folder.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: OwnedFd,
    _lock: OwnedFd,
    record: Record,
}

/// How long the lock is waited for. A jail that was killed may have left a child between fork and exec, which shares
/// its lock until it notices; whoever starts the server again at once must not be refused for that.
const PATIENCE: Duration = Duration::from_secs(2);

fn take(lock: &OwnedFd) -> Result<(), JailFault> {
    let step = "lock the data folder";
    let deadline = clock::now() + PATIENCE;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if clock::now() < deadline => {
                let moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                poll(&mut [], Some(&moment)).or_internal(step)?;
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(fault(JailFaultKind::Invalid, step, "another server runs on this data folder"));
            }
            Err(errno) => return Err(errno).or_internal(step),
        }
    }
}

impl Ledger {
    /// Makes the data folder and its two parts if they are missing, locks it and reads the record. Returns
    /// `DATA/serve` as well.
    ///
    /// # Errors
    /// When another jail holds the lock, or a folder is not what it should be.
    pub(crate) fn open(data: &Path) -> Result<(Self, OwnedFd), JailFault> {
        let data = make_path(data).or_internal("open the data folder")?;
        let folder = private_folder(&data, "jail", 0).or_internal("open the jail's data folder")?;
        let lock_flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&folder, "lock", lock_flags, Mode::from_raw_mode(0o600))
            .or_internal("open the data folder's lock")?;
        take(&lock)?;
        let serve = private_folder(&data, "serve", SERVER_UID).or_internal("open the server's data folder")?;
        let record = read(&folder)?;
        let ledger = Self { folder, _lock: lock, record };
        ledger.store()?;
        Ok((ledger, serve))
    }

    /// Name of this data folder's cgroups.
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }

    /// The jail's own folder.
    pub(crate) fn folder(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.folder, 3)
    }

    /// The uid chunk that was held last.
    pub(crate) fn chunk(&self) -> Option<u32> {
        self.record.chunk
    }

    /// Records which uid chunk is held.
    pub(crate) fn set_chunk(&mut self, chunk: u32) -> Result<(), JailFault> {
        if self.record.chunk == Some(chunk) {
            return Ok(());
        }
        self.record.chunk = Some(chunk);
        self.store()
    }

    fn store(&self) -> Result<(), JailFault> {
        let step = "write the ledger";
        let text = serde_json::to_vec(&self.record).or_internal(step)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let new = openat(&self.folder, "ledger.new", flags, Mode::from_raw_mode(0o600)).or_internal(step)?;
        let mut new = File::from(new);
        new.write_all(&text).or_internal(step)?;
        new.sync_all().or_internal(step)?;
        renameat_with(&self.folder, "ledger.new", &self.folder, "ledger.json", RenameFlags::empty())
            .or_internal(step)?;
        let folder = openat(&self.folder, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).or_internal(step)?;
        rustix::fs::fsync(folder).or_internal(step)
    }
}

/// Reads the record, or begins one with a fresh random name.
fn read(folder: &OwnedFd) -> Result<Record, JailFault> {
    let step = "read the ledger";
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(folder, "ledger.json", flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Record { version: VERSION, id: random_name()?, chunk: None }),
        Err(errno) => return Err(errno).or_internal(step),
    };
    let mut text = Vec::new();
    file.take(MAX_LEDGER).read_to_end(&mut text).or_internal(step)?;
    let record: Record = serde_json::from_slice(&text).or_internal(step)?;
    if record.version != VERSION || !is_name(&record.id) {
        return Err(fault(JailFaultKind::Internal, step, "it is of another version or damaged"));
    }
    Ok(record)
}

fn random_name() -> Result<String, JailFault> {
    let mut bytes = [0_u8; 8];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let complete = count.or_internal("name the ledger")? == bytes.len();
    if !complete {
        return Err(fault(JailFaultKind::Internal, "name the ledger", "too few random bytes"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a string is a ledger's name: it becomes part of a path.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Opens an absolute folder, made with its parents if missing. The operator chose the path, so links are followed.
fn make_path(path: &Path) -> Result<OwnedFd, Errno> {
    if !path.is_absolute() {
        return Err(Errno::INVAL);
    }
    std::fs::create_dir_all(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a folder that only `owner` may enter, made if missing.
fn private_folder(data: &OwnedFd, name: &str, owner: u32) -> Result<OwnedFd, Errno> {
    match mkdirat(data, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let folder = files::open_folder(data, name)?;
    if FileType::from_raw_mode(fstat(&folder)?.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    chownat(&folder, "", Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)), AtFlags::EMPTY_PATH)?;
    // By the descriptor's own path: chmod takes no O_PATH descriptor, and the name could have changed.
    use std::os::fd::AsRawFd;
    let own_path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    chmodat(CWD, own_path.as_str(), Mode::from_raw_mode(0o700), AtFlags::empty())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_that_could_leave_their_folder_are_refused() {
        assert!(is_name("0123456789abcdef"));
        for bad in ["", "..", "../0123456789abc", "0123456789ABCDEF", "0123456789abcde/", "0123456789abcdef0"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
