//! What the kernel asks of a mounted disk.

#![allow(clippy::cast_possible_truncation, reason = "sizes of small files, on 64 bits")]

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};

use super::state::{BLOCK, Call, Content, Edit, Fault, Node, State};

/// Nothing is remembered by the kernel for longer than a call.
const TTL: Duration = Duration::ZERO;

/// Answers it.
pub(super) struct Served(pub(super) Arc<Mutex<State>>);

impl Served {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers with what the second closure says of a good result, or with the error.
macro_rules! answer {
    ($reply:expr, $result:expr, |$value:pat_param| $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(errno) => $reply.error(errno),
        }
    };
}

impl Filesystem for Served {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.state();
        let found = state.find(parent, name).and_then(|inode| state.about(inode));
        answer!(reply, found, |about| reply.entry(&TTL, &about, Generation(0)));
    }

    fn getattr(&self, _req: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.state().about(inode), |about| reply.attr(&TTL, &about));
    }

    fn setattr(
        &self,
        _req: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        let mut change = || {
            if let Some(size) = size {
                state.check(Call::Write)?;
                state.edit(inode, Edit::Cut(size as usize))?;
            }
            if let Some(mode) = mode {
                state.node(inode)?.mode = mode as u16 & 0o7777;
            }
            state.about(inode)
        };
        answer!(reply, change(), |about| reply.attr(&TTL, &about));
    }

    fn mkdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = self.state().make(parent, name, Node::folder(mode));
        answer!(reply, made, |about| reply.entry(&TTL, &about, Generation(0)));
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.state().make(parent, name, Node::file(mode));
        answer!(reply, made, |about| {
            reply.created(&TTL, &about, Generation(0), FileHandle(0), FopenFlags::empty());
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let removed = state
            .check(Call::Remove)
            .and_then(|()| state.find(parent, name))
            .and_then(|_| state.change_names(parent, vec![(name.to_owned(), None)]));
        answer!(reply, removed, |()| reply.ok());
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let mut remove = || {
            state.check(Call::Remove)?;
            let inode = state.find(parent, name)?;
            if !state.names(inode)?.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
            state.change_names(parent, vec![(name.to_owned(), None)])
        };
        answer!(reply, remove(), |()| reply.ok());
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let mut change = || {
            state.check(Call::Make)?;
            let inode = state.find(parent, name)?;
            if flags.contains(RenameFlags::RENAME_NOREPLACE) && state.find(new_parent, new_name).is_ok() {
                return Err(Errno::EEXIST);
            }
            let (gone, there) = ((name.to_owned(), None), (new_name.to_owned(), Some(inode.0)));
            if parent == new_parent {
                return state.change_names(parent, vec![gone, there]);
            }
            state.change_names(new_parent, vec![there])?;
            state.change_names(parent, vec![gone])
        };
        answer!(reply, change(), |()| reply.ok());
    }

    fn link(&self, _req: &Request, inode: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let mut state = self.state();
        let mut change = || {
            state.check(Call::Make)?;
            if state.find(new_parent, new_name).is_ok() {
                return Err(Errno::EEXIST);
            }
            state.change_names(new_parent, vec![(new_name.to_owned(), Some(inode.0))])?;
            state.about(inode)
        };
        answer!(reply, change(), |about| reply.entry(&TTL, &about, Generation(0)));
    }

    fn open(&self, _req: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.state().check(Call::Open);
        answer!(reply, opened, |()| reply.opened(FileHandle(0), FopenFlags::empty()));
    }

    fn read(
        &self,
        _req: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.state();
        let mut read = || {
            state.check(Call::Read)?;
            match &state.node(inode)?.content {
                Content::File { now, .. } => {
                    let start = now.len().min(offset as usize);
                    Ok(now[start..now.len().min(start + size as usize)].to_vec())
                }
                Content::Folder { .. } => Err(Errno::EISDIR),
            }
        };
        answer!(reply, read(), |bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        _req: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let taken = match state.fails(Call::Write) {
            Some(Fault::Short) => data.len().div_ceil(2),
            Some(fault) => return reply.error(fault.errno()),
            None => data.len(),
        };
        let written = state.edit(inode, Edit::Write(offset as usize, data[..taken].to_vec()));
        answer!(reply, written, |()| reply.written(taken as u32));
    }

    fn flush(&self, _req: &Request, _inode: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, inode: INodeNo, _handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        let mut state = self.state();
        let synced = state.check(Call::Sync).and_then(|()| state.node(inode).map(Node::sync));
        answer!(reply, synced, |()| reply.ok());
    }

    fn fsyncdir(&self, req: &Request, inode: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        self.fsync(req, inode, handle, data, reply);
    }

    fn opendir(&self, _req: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.state().check(Call::Open);
        answer!(reply, opened, |()| reply.opened(FileHandle(0), FopenFlags::empty()));
    }

    fn readdir(&self, _req: &Request, inode: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut state = self.state();
        let listed = state.check(Call::Read).and_then(|()| state.names(inode).cloned());
        answer!(reply, listed, |names| {
            for (place, (name, inode)) in (1..).zip(names).skip(offset as usize) {
                let kind = state.about(INodeNo(inode)).map_or(FileType::RegularFile, |about| about.kind);
                if reply.add(INodeNo(inode), place, kind, &name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _req: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 20;
        reply.statfs(blocks, blocks, blocks, blocks, blocks, BLOCK, 255, BLOCK);
    }
}
