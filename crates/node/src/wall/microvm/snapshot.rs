//! A saved machine on disk: authenticated, bound to what made it, and refused by name where it is not what it has to be.
//!
//! ```text
//!  bailey-machine N\n                     N: version of this format
//!  u32, manifest (JSON, see `Made`)
//!  u64, state of the devices
//!  u64 offset, u32 length, bytes …        memory that is not all zeros; then u64::MAX
//!  32 bytes: HMAC-SHA-256 of everything before, by a key that only this node has
//! ```
//!
//! Everything is copied into memory first, and nothing of it looked at or used before the HMAC over the copy was right.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::memory::{self, CHUNK};
use super::{Host, MicrovmConfig, canary};

/// Version of the format, and of what a machine is saved with. Raised whenever either changes.
const FORMAT: u32 = 1;
const MAGIC: &str = "bailey-machine ";
const MAC: usize = 32;
const KEY: usize = 32;
/// Largest manifest, and largest state of devices.
const MAX_MANIFEST: u32 = 64 * 1024;
const MAX_STATE: u64 = 64 * 1024 * 1024;
/// How far two readings of one counter's speed may lie apart, in thousandths.
const DRIFT: u32 = 1;
/// Names in the folder.
const KEY_NAME: &str = "key";
const NAME: &str = "machine";

/// Why there is no saved machine to start from.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is none.
    #[error("there is no snapshot")]
    Missing,
    /// It ends too early.
    #[error("the snapshot is cut off")]
    Truncated,
    /// It was changed, or saved by another node.
    #[error("the snapshot is not this node's, or was changed")]
    Forged,
    /// It is none, or none that could be read whole.
    #[error("the snapshot is none: {0}")]
    Malformed(&'static str),
    /// It was saved by another version of this program.
    #[error("the snapshot has format {found}, and this is format {wanted}")]
    Version {
        /// Its own.
        found: u32,
        /// This one.
        wanted: u32,
    },
    /// It is of something else.
    #[error("the snapshot is of another {0}")]
    Another(&'static str),
    /// Something is in it that must not be.
    #[error("the snapshot would have the secret number {0} in it")]
    Secret(usize),
    /// Others can read the key.
    #[error("`{0}` is the key to snapshots, and others can read it")]
    Exposed(PathBuf),
    /// The folder cannot be used.
    #[error("could not {action} `{path}`")]
    Folder {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// Memory for it cannot be had.
    #[error("no memory for the snapshot")]
    Memory(#[source] io::Error),
    /// The work on it was given up.
    #[error("the work on the snapshot was given up")]
    Lost,
}

/// What a saved machine was made from: one that was made from anything else is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Made {
    template: String,
    image: String,
    kernel: String,
    vmm: String,
    processor: String,
    khz: u32,
    accelerator: String,
    memory_bytes: u64,
    warm: Vec<Vec<String>>,
}

impl Made {
    pub(super) fn new(config: &MicrovmConfig, host: &Host) -> Self {
        Self {
            template: config.template.as_str().to_owned(),
            image: config.image.as_str().to_owned(),
            kernel: config.kernel.clone(),
            vmm: config.vmm.clone(),
            processor: host.processor.clone(),
            khz: host.khz,
            accelerator: host.accelerator.as_str().to_owned(),
            memory_bytes: config.memory_bytes,
            warm: config.warm.clone(),
        }
    }

    /// What is another one in the other.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let apart = self.khz.abs_diff(other.khz);
        let rows = [
            (self.template == other.template, "template"),
            (self.kernel == other.kernel, "kernel"),
            (self.vmm == other.vmm, "monitor"),
            (self.image == other.image, "image"),
            (self.processor == other.processor && apart <= self.khz / 1000 * DRIFT, "processor"),
            (self.accelerator == other.accelerator, "accelerator"),
            (self.memory_bytes == other.memory_bytes, "size"),
            (self.warm == other.warm, "warm-up"),
        ];
        rows.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}

/// What a machine was saved as.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) memory: OwnedFd,
    pub(super) state: OwnedFd,
}

/// A saved machine that can be started from, any number of times. Nobody can change it.
#[derive(Debug)]
pub(super) struct Saved {
    memory: OwnedFd,
    state: OwnedFd,
}

impl Saved {
    /// The memory, for a monitor to have a private view of.
    pub(super) fn memory(&self) -> io::Result<OwnedFd> {
        self.memory.try_clone()
    }

    /// The state of the devices, from its beginning.
    pub(super) fn state(&self) -> io::Result<OwnedFd> {
        memory::again(&self.state)
    }
}

type Sum = Hmac<Sha256>;

/// What this node's snapshots are known by.
pub(super) struct Key {
    /// They themselves may be in no snapshot.
    bytes: [u8; KEY],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The key in this folder; a new one if there is none.
    pub(super) fn ensure(folder: &Path) -> Result<Self, SnapshotError> {
        let path = folder.join(KEY_NAME);
        let failed = |action, cause| SnapshotError::Folder { action, path: path.clone(), cause };
        fs::create_dir_all(folder).map_err(|cause| failed("make the folder of", cause))?;
        match File::open(&path) {
            Ok(file) => {
                let facts = file.metadata().map_err(|cause| failed("look at", cause))?;
                if facts.mode() & 0o077 != 0 {
                    return Err(SnapshotError::Exposed(path));
                }
                let mut bytes = [0; KEY];
                (&file).read_exact(&mut bytes).map_err(|cause| failed("read", cause))?;
                Ok(Self { bytes })
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; KEY];
                rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
                    .map_err(|errno| failed("find bytes for", errno.into()))?;
                write_whole(&path, |file| file.write_all(&bytes)).map_err(|cause| failed("write", cause))?;
                Ok(Self { bytes })
            }
            Err(cause) => Err(failed("open", cause)),
        }
    }

    /// A sum to be made over a snapshot.
    fn sum(&self) -> Result<Sum, SnapshotError> {
        Sum::new_from_slice(&self.bytes).map_err(|_length| SnapshotError::Malformed("its key has no length"))
    }
}

/// Puts a machine on disk in place of what was there, and takes it from there: what machines start from is what is kept.
pub(super) fn store(
    folder: &Path,
    key: &Key,
    made: &Made,
    taken: Taken,
    canaries: &[Vec<u8>],
) -> Result<Saved, SnapshotError> {
    let (memory, state) = (File::from(taken.memory), File::from(taken.state));
    let state_bytes = state.metadata().map_err(SnapshotError::Memory)?.len();
    if state_bytes > MAX_STATE {
        return Err(SnapshotError::Malformed("the state of its devices is too large"));
    }
    let secrets: Vec<Vec<u8>> = canaries.iter().cloned().chain([key.bytes.to_vec()]).collect();
    for (file, bytes) in [(&memory, made.memory_bytes), (&state, state_bytes)] {
        if let Some(number) = canary::find(file, bytes, &secrets).map_err(SnapshotError::Memory)? {
            return Err(SnapshotError::Secret(number));
        }
    }
    let path = folder.join(NAME);
    let failed = |action, cause| SnapshotError::Folder { action, path: path.clone(), cause };
    let manifest = serde_json::to_vec(made).map_err(|odd| failed("describe", odd.into()))?;
    let sum = key.sum()?;
    write_whole(&path, |file| {
        let mut out = Signed { out: BufWriter::with_capacity(CHUNK, file), sum };
        out.add(format!("{MAGIC}{FORMAT}\n").as_bytes())?;
        out.add(&u32::try_from(manifest.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        out.add(&manifest)?;
        let mut devices = vec![0; usize::try_from(state_bytes).unwrap_or(0)];
        state.read_exact_at(&mut devices, 0)?;
        out.add(&state_bytes.to_le_bytes())?;
        out.add(&devices)?;
        memory::each_piece(&memory, made.memory_bytes, |at, piece| {
            out.add(&at.to_le_bytes())?;
            out.add(&u32::try_from(piece.len()).unwrap_or(u32::MAX).to_le_bytes())?;
            out.add(piece)
        })?;
        out.add(&u64::MAX.to_le_bytes())?;
        let Signed { mut out, sum } = out;
        out.write_all(&sum.finalize().into_bytes())?;
        out.flush()
    })
    .map_err(|cause| failed("write", cause))?;
    drop((memory, state));
    load(folder, key, made)
}

/// The machine on disk, if it is this node's and made from just that.
pub(super) fn load(folder: &Path, key: &Key, wanted: &Made) -> Result<Saved, SnapshotError> {
    let path = folder.join(NAME);
    let file = File::open(&path).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => SnapshotError::Missing,
        _ => SnapshotError::Folder { action: "open", path: path.clone(), cause },
    })?;
    let mut input = Checked { input: BufReader::with_capacity(CHUNK, file), sum: key.sum()? };
    input.version()?;
    let manifest = input.number::<4>()?;
    if manifest > u64::from(MAX_MANIFEST) {
        return Err(SnapshotError::Malformed("its manifest is too large"));
    }
    let manifest = input.bytes(manifest)?;
    let state_bytes = input.number::<8>()?;
    if state_bytes > MAX_STATE {
        return Err(SnapshotError::Malformed("the state of its devices is too large"));
    }
    let devices = input.bytes(state_bytes)?;
    let memory = memory::fresh(wanted.memory_bytes).map_err(SnapshotError::Memory)?;
    let into = File::from(memory.try_clone().map_err(SnapshotError::Memory)?);
    loop {
        let at = input.number::<8>()?;
        if at == u64::MAX {
            break;
        }
        let length = input.number::<4>()?;
        if length > CHUNK as u64 || at.checked_add(length).is_none_or(|end| end > wanted.memory_bytes) {
            return Err(SnapshotError::Malformed("it has memory where its machine has none"));
        }
        into.write_all_at(&input.bytes(length)?, at).map_err(SnapshotError::Memory)?;
    }
    input.verify()?;
    let made: Made =
        serde_json::from_slice(&manifest).map_err(|_odd| SnapshotError::Malformed("its manifest is no message"))?;
    if let Some(what) = wanted.difference(&made) {
        return Err(SnapshotError::Another(what));
    }
    let state = memory::fresh(0).map_err(SnapshotError::Memory)?;
    File::from(state.try_clone().map_err(SnapshotError::Memory)?)
        .write_all_at(&devices, 0)
        .map_err(SnapshotError::Memory)?;
    for sealed in [&memory, &state] {
        memory::seal(sealed).map_err(SnapshotError::Memory)?;
    }
    Ok(Saved { memory, state })
}

/// What is written, and the sum over it.
struct Signed<W> {
    out: W,
    sum: Sum,
}

impl<W: Write> Signed<W> {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}

/// What is read, and the sum over it.
struct Checked<R> {
    input: R,
    sum: Sum,
}

impl<R: Read> Checked<R> {
    /// Not authenticated yet, and of no consequence but a refusal.
    fn version(&mut self) -> Result<(), SnapshotError> {
        if self.bytes(MAGIC.len() as u64)? != MAGIC.as_bytes() {
            return Err(SnapshotError::Malformed("it begins as something else"));
        }
        let mut found = 0_u32;
        loop {
            match self.bytes(1)?.first() {
                Some(b'\n') => break,
                Some(digit @ b'0'..=b'9') if found < 1_000_000 => found = found * 10 + u32::from(digit - b'0'),
                _ => return Err(SnapshotError::Malformed("its version is no number")),
            }
        }
        if found == FORMAT { Ok(()) } else { Err(SnapshotError::Version { found, wanted: FORMAT }) }
    }

    fn number<const BYTES: usize>(&mut self) -> Result<u64, SnapshotError> {
        let bytes = self.bytes(BYTES as u64)?;
        Ok(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.input.read_exact(&mut bytes).map_err(cut)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    /// Compares the sum over all that was read with what follows, which has to be the end.
    fn verify(mut self) -> Result<(), SnapshotError> {
        let mut told = [0; MAC];
        self.input.read_exact(&mut told).map_err(cut)?;
        let same = self.sum.verify_slice(&told).is_ok();
        let more = self.input.read(&mut [0; 1]).map_err(cut)?;
        if same && more == 0 { Ok(()) } else { Err(SnapshotError::Forged) }
    }
}

fn cut(cause: io::Error) -> SnapshotError {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Truncated,
        _ => SnapshotError::Memory(cause),
    }
}

/// Writes a file of the node's own as a whole or not at all.
fn write_whole(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let partial = path.with_extension("new");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&partial)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    fill(&mut file)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests;
