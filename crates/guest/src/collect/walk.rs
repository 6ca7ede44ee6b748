//! Which paths changed, and how.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use bailey_protocol::change::{FieldTooLong, Header, NoticeReason};
use bailey_protocol::path::{MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_DEPTH};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::layer;
use super::output::Output;

/// The layers of one mount.
pub(crate) struct Layers {
    /// What was written.
    pub(crate) upper: OwnedFd,
    /// What the code saw at the end.
    pub(crate) merged: OwnedFd,
    /// What it saw at the start.
    pub(crate) lower: OwnedFd,
}

/// Why the stream cannot be completed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    #[error("read `{}`: {errno}", String::from_utf8_lossy(path))]
    Read { errno: Errno, path: Vec<u8> },
    #[error("a file became shorter while it was read")]
    Shrunk,
    #[error("write the stream: {0}")]
    Write(io::Error),
    #[error("too many changes")]
    TooMany,
    #[error(transparent)]
    Encode(#[from] FieldTooLong),
}

/// A folder that was touched, on the way from the root.
struct Level {
    /// Length of its path.
    path: usize,
    /// Whether the reader knows that it exists.
    announced: bool,
    /// Subfolders still to be visited, last one first, each with whether the lower layer has it.
    subfolders: Vec<(Box<[u8]>, bool)>,
}

struct Walk<'a> {
    layers: &'a Layers,
    output: &'a mut Output,
    path: Vec<u8>,
    levels: Vec<Level>,
    /// Files with several names, by their number in the upper layer.
    linked: HashSet<u64>,
    buffers: (Vec<u8>, Vec<u8>),
}

/// The folder being looked at, in each layer.
struct Folders {
    upper: OwnedFd,
    merged: OwnedFd,
    lower: Option<OwnedFd>,
}

/// Writes every change. Returns at the first error; nothing is skipped silently.
pub(super) fn walk(layers: &Layers, output: &mut Output) -> Result<(), WalkError> {
    let buffers = (vec![0; 128 * 1024], vec![0; 128 * 1024]);
    let mut walk = Walk { layers, output, path: Vec::new(), levels: Vec::new(), linked: HashSet::new(), buffers };
    walk.enter(true, true)?;
    while let Some(level) = walk.levels.last_mut() {
        let parent = level.path;
        match level.subfolders.pop() {
            None => {
                walk.levels.pop();
            }
            Some((name, in_lower)) => {
                walk.path.truncate(parent);
                walk.push_name(&name);
                walk.enter(in_lower, false)?;
            }
        }
    }
    Ok(())
}

impl Walk<'_> {
    /// Looks at the folder at `self.path`, and puts its subfolders on the list.
    fn enter(&mut self, in_lower: bool, root: bool) -> Result<(), WalkError> {
        let here = self.path.clone();
        let failed = |errno| WalkError::Read { errno, path: here.clone() };
        let folders = Folders {
            upper: layer::open_folder(&self.layers.upper, &here).map_err(failed)?,
            merged: layer::open_folder(&self.layers.merged, &here).map_err(failed)?,
            lower: match in_lower {
                true => Some(layer::open_folder(&self.layers.lower, &here).map_err(failed)?),
                false => None,
            },
        };
        // A new folder was announced when its parent was looked at.
        self.levels.push(Level { path: here.len(), announced: root || !in_lower, subfolders: Vec::new() });
        let names = layer::names(&folders.upper, |_| true).map_err(failed)?;
        self.hidden(&folders, &names)?;
        for name in names {
            self.path.truncate(here.len());
            self.entry(&folders, &name)?;
        }
        self.path.truncate(here.len());
        if let Some(level) = self.levels.last_mut() {
            level.subfolders.reverse();
        }
        Ok(())
    }

    /// A folder that was deleted and made again hides all that the lower layer has under its name, and overlay's
    /// mark for that is not visible here. It hides all or nothing, so one name that is in the lower layer only
    /// tells.
    fn hidden(&mut self, folders: &Folders, touched: &[Box<[u8]>]) -> Result<(), WalkError> {
        let Some(lower) = &folders.lower else {
            return Ok(());
        };
        let here = self.path.clone();
        let failed = |errno| WalkError::Read { errno, path: here.clone() };
        let untouched = |name: &[u8]| touched.binary_search_by(|other| (**other).cmp(name)).is_err();
        let mut probe = None;
        layer::each_name(lower, |name| {
            probe = untouched(name).then(|| name.to_vec());
            probe.is_none()
        })
        .map_err(failed)?;
        let Some(probe) = probe else {
            return Ok(());
        };
        if layer::stat(&folders.merged, &probe).map_err(failed)?.is_some() {
            return Ok(());
        }
        for name in layer::names(lower, untouched).map_err(failed)? {
            self.path.truncate(here.len());
            self.push_name(&name);
            self.delete()?;
        }
        self.path.truncate(here.len());
        Ok(())
    }

    /// Compares one touched name.
    fn entry(&mut self, folders: &Folders, name: &[u8]) -> Result<(), WalkError> {
        if self.path.len() + 1 + name.len() > MAX_PATH_BYTES
            || self.levels.len() > MAX_PATH_DEPTH
            || name.len() > MAX_NAME_BYTES
        {
            // Named by the folder, whose path fits.
            let path = if self.path.is_empty() { b"." } else { &*self.path.clone() };
            return self.output.write(&Header::Notice { path, reason: NoticeReason::PathTooLong });
        }
        self.push_name(name);
        let here = self.path.clone();
        let failed = |errno| WalkError::Read { errno, path: here.clone() };
        let lower = match &folders.lower {
            Some(lower) => layer::stat(lower, name).map_err(failed)?,
            None => None,
        };
        let Some(merged) = layer::stat(&folders.merged, name).map_err(failed)? else {
            return if lower.is_some() { self.delete() } else { Ok(()) };
        };
        let same_kind = lower.filter(|lower| layer::kind(lower) == layer::kind(&merged));
        if lower.is_some() && same_kind.is_none() {
            self.delete()?;
        }
        match layer::kind(&merged) {
            FileType::Directory => self.folder(name, &merged, same_kind.is_some()),
            FileType::RegularFile => self.file(folders, name, &merged, same_kind),
            FileType::Symlink => self.link(folders, name, same_kind.is_some()),
            FileType::Fifo => self.dropped(same_kind.is_some(), NoticeReason::Fifo),
            FileType::Socket => self.dropped(same_kind.is_some(), NoticeReason::Socket),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                self.dropped(same_kind.is_some(), NoticeReason::Device)
            }
        }
    }

    fn folder(&mut self, name: &[u8], merged: &Stat, in_lower: bool) -> Result<(), WalkError> {
        if !in_lower {
            self.announce()?;
            self.output.write(&Header::Directory { path: &self.path })?;
            self.special_bits(merged)?;
        }
        if let Some(level) = self.levels.last_mut() {
            level.subfolders.push((name.into(), in_lower));
        }
        Ok(())
    }

    fn file(&mut self, folders: &Folders, name: &[u8], merged: &Stat, lower: Option<Stat>) -> Result<(), WalkError> {
        let here = self.path.clone();
        let failed = |errno| WalkError::Read { errno, path: here.clone() };
        let size = u64::try_from(merged.st_size).unwrap_or(u64::MAX);
        let upper = layer::stat(&folders.upper, name).map_err(failed)?;
        let again = upper.is_some_and(|upper| upper.st_nlink > 1 && !self.linked.insert(upper.st_ino));
        if lower.is_some_and(|lower| self.is_same(folders, name, merged, &lower).unwrap_or(false)) {
            return Ok(());
        }
        if !self.output.fits(size) {
            return self.dropped(lower.is_some(), NoticeReason::TooLarge);
        }
        let file = layer::open_file(&folders.merged, name).map_err(failed)?;
        self.announce()?;
        self.output.write(&Header::File { path: &self.path, executable: is_executable(merged), size })?;
        self.output.content(&file, size, &mut self.buffers.0)?;
        if again {
            self.notice(NoticeReason::HardLink)?;
        }
        if layer::has_xattrs(&file) {
            self.notice(NoticeReason::Xattr)?;
        }
        self.special_bits(merged)
    }

    /// Whether a file was only copied up: same content, same executable bit.
    fn is_same(&mut self, folders: &Folders, name: &[u8], merged: &Stat, lower: &Stat) -> Result<bool, Errno> {
        let Some(lower_folder) = &folders.lower else {
            return Ok(false);
        };
        if merged.st_size != lower.st_size || is_executable(merged) != is_executable(lower) {
            return Ok(false);
        }
        let (new, old) = (layer::open_file(&folders.merged, name)?, layer::open_file(lower_folder, name)?);
        let (a, b) = &mut self.buffers;
        loop {
            let (read_a, read_b) = (layer::read_full(&new, a)?, layer::read_full(&old, b)?);
            if a.get(..read_a) != b.get(..read_b) {
                return Ok(false);
            }
            if read_a == 0 {
                return Ok(merged.st_mode & 0o7000 == 0 && !layer::has_xattrs(&new));
            }
        }
    }

    fn link(&mut self, folders: &Folders, name: &[u8], in_lower: bool) -> Result<(), WalkError> {
        let here = self.path.clone();
        let failed = |errno| WalkError::Read { errno, path: here.clone() };
        let target = layer::link_target(&folders.merged, name).map_err(failed)?;
        if let Some(lower) = folders.lower.as_ref().filter(|_| in_lower)
            && layer::link_target(lower, name).map_err(failed)? == target
        {
            return Ok(());
        }
        self.announce()?;
        self.output.write(&Header::Symlink { path: &self.path, target: &target })
    }

    /// What a tree cannot hold: what was there is gone, and the caller is told why nothing takes its place.
    fn dropped(&mut self, in_lower: bool, reason: NoticeReason) -> Result<(), WalkError> {
        if in_lower {
            self.delete()?;
        }
        self.notice(reason)
    }

    fn special_bits(&mut self, stat: &Stat) -> Result<(), WalkError> {
        if stat.st_mode & 0o7000 == 0 { Ok(()) } else { self.notice(NoticeReason::SpecialBits) }
    }

    fn notice(&mut self, reason: NoticeReason) -> Result<(), WalkError> {
        self.output.write(&Header::Notice { path: &self.path, reason })
    }

    fn delete(&mut self) -> Result<(), WalkError> {
        self.announce()?;
        self.output.write(&Header::Delete { path: &self.path })
    }

    /// Names the folders above that were kept, once, before the first change below them.
    fn announce(&mut self) -> Result<(), WalkError> {
        for level in &mut self.levels {
            if !level.announced {
                level.announced = true;
                let path = self.path.get(..level.path).unwrap_or_default();
                self.output.write(&Header::Directory { path })?;
            }
        }
        Ok(())
    }

    fn push_name(&mut self, name: &[u8]) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }
}

fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o100 != 0
}
