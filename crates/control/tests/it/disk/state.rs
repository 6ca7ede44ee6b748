//! What is on a disk, what of it a sync made durable, and which call fails next.

#![allow(clippy::cast_possible_truncation, reason = "sizes of small files, on 64 bits")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::UNIX_EPOCH;

use fuser::{Errno, FileAttr, FileType, INodeNo};
use serde::{Deserialize, Serialize};

const ROOT: u64 = 1;
pub(super) const BLOCK: u32 = 4096;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// No room, on whatever takes some.
    Full,
    /// A broken medium, on everything.
    Broken,
    /// No descriptor left, on whatever opens.
    NoDescriptor,
    /// A write that takes half of what it was given, once.
    Short,
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::Full, Self::Broken, Self::NoDescriptor, Self::Short];

    pub(super) fn hits(self, call: Call) -> bool {
        match self {
            Self::Full => matches!(call, Call::Write | Call::Make | Call::Sync),
            Self::Broken => true,
            Self::NoDescriptor => matches!(call, Call::Open | Call::Make),
            Self::Short => call == Call::Write,
        }
    }

    pub(super) fn errno(self) -> Errno {
        match self {
            Self::Full => Errno::ENOSPC,
            Self::Broken | Self::Short => Errno::EIO,
            Self::NoDescriptor => Errno::EMFILE,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Open,
    Read,
    Write,
    /// Files, folders, names.
    Make,
    Remove,
    Sync,
}

#[derive(Debug, Clone)]
pub(super) enum Edit {
    Write(usize, Vec<u8>),
    Cut(usize),
}

impl Edit {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Cut(length) => content.resize(*length, 0),
        }
    }
}

/// Names that change together: what each leads to from now on.
pub(super) type Names = Vec<(OsString, Option<u64>)>;

#[derive(Debug, Clone)]
pub(super) enum Content {
    File { kept: Vec<u8>, since: Vec<Edit>, now: Vec<u8> },
    Folder { kept: BTreeMap<OsString, u64>, since: Vec<Names>, now: BTreeMap<OsString, u64> },
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) mode: u16,
    pub(super) content: Content,
}

impl Node {
    pub(super) fn file(mode: u32) -> Self {
        let content = Content::File { kept: Vec::new(), since: Vec::new(), now: Vec::new() };
        Self { mode: mode as u16 & 0o7777, content }
    }

    pub(super) fn folder(mode: u32) -> Self {
        let content = Content::Folder { kept: BTreeMap::new(), since: Vec::new(), now: BTreeMap::new() };
        Self { mode: mode as u16 & 0o7777, content }
    }

    pub(super) fn sync(&mut self) {
        match &mut self.content {
            Content::File { kept, since, now } => {
                kept.clone_from(now);
                since.clear();
            }
            Content::Folder { kept, since, now } => {
                kept.clone_from(now);
                since.clear();
            }
        }
    }
}

fn rename(names: &mut BTreeMap<OsString, u64>, changes: &Names) {
    for (name, leads_to) in changes {
        match leads_to {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}

#[derive(Debug, Clone)]
pub(super) struct State {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    /// Which call of those that it hits fails, and whether all after it do, too.
    pub(super) armed: Option<(Fault, u64, bool)>,
    /// Calls that failed.
    pub(super) failed: u64,
}

impl State {
    pub(super) fn fails(&mut self, call: Call) -> Option<Fault> {
        let (fault, left, lasts) = self.armed.as_mut()?;
        if !fault.hits(call) {
            return None;
        }
        if *left > 0 {
            *left -= 1;
            return None;
        }
        self.failed += 1;
        let fault = *fault;
        if !*lasts {
            self.armed = None;
        }
        Some(fault)
    }

    pub(super) fn check(&mut self, call: Call) -> Result<(), Errno> {
        self.fails(call).map_or(Ok(()), |fault| Err(fault.errno()))
    }

    pub(super) fn node(&mut self, inode: INodeNo) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&inode.0).ok_or(Errno::ENOENT)
    }

    pub(super) fn names(&mut self, folder: INodeNo) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.node(folder)?.content {
            Content::Folder { now, .. } => Ok(now),
            Content::File { .. } => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn find(&mut self, folder: INodeNo, name: &OsStr) -> Result<INodeNo, Errno> {
        self.names(folder)?.get(name).copied().map(INodeNo).ok_or(Errno::ENOENT)
    }

    pub(super) fn change_names(&mut self, folder: INodeNo, changes: Names) -> Result<(), Errno> {
        match &mut self.node(folder)?.content {
            Content::Folder { since, now, .. } => {
                rename(now, &changes);
                since.push(changes);
                Ok(())
            }
            Content::File { .. } => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn edit(&mut self, inode: INodeNo, edit: Edit) -> Result<(), Errno> {
        match &mut self.node(inode)?.content {
            Content::File { since, now, .. } => {
                edit.apply(now);
                since.push(edit);
                Ok(())
            }
            Content::Folder { .. } => Err(Errno::EISDIR),
        }
    }

    pub(super) fn make(&mut self, folder: INodeNo, name: &OsStr, node: Node) -> Result<FileAttr, Errno> {
        self.check(Call::Make)?;
        if self.names(folder)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, node);
        self.change_names(folder, vec![(name.to_owned(), Some(inode))])?;
        self.about(INodeNo(inode))
    }

    pub(super) fn about(&mut self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let Node { mode, content } = self.node(inode)?;
        let (kind, size) = match content {
            Content::File { now, .. } => (FileType::RegularFile, now.len() as u64),
            Content::Folder { .. } => (FileType::Directory, 0),
        };
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: *mode,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }
}

impl State {
    pub(super) fn empty() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, Node::folder(0o700))]), next: ROOT + 1, armed: None, failed: 0 }
    }

    pub(super) fn lose_power(&mut self, mut seed: u64) {
        let mut lucky = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 63 == 1
        };
        for node in self.nodes.values_mut() {
            match &mut node.content {
                Content::File { kept, since, now } => {
                    for edit in since.drain(..) {
                        match &edit {
                            Edit::Write(at, bytes) if lucky() && !lucky() => {
                                Edit::Write(*at, bytes[..bytes.len() / 2].to_vec()).apply(kept);
                            }
                            edit if lucky() => edit.apply(kept),
                            _ => {}
                        }
                    }
                    now.clone_from(kept);
                }
                Content::Folder { kept, since, now } => {
                    since.drain(..).filter(|_| lucky()).for_each(|changes| rename(kept, &changes));
                    now.clone_from(kept);
                }
            }
        }
        self.armed = None;
    }
}
