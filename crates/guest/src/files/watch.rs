//! Watching folders for changes. Events wait in the kernel's queue, whose size is fixed, until they are asked for.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, inotify};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::sync::mpsc;

use super::entry::{Names, describe};
use super::path;
use crate::agent::connect::{Code, Messages, RpcError, envelope};
use crate::descriptor::{Watched, watch as watch_descriptor};

/// Most watchers that poll.
const MAX_WATCHERS: usize = 64;
/// Most folders that one recursive watch covers.
const MAX_FOLDERS: usize = 8192;
/// Most events of one answer; the rest waits.
const MAX_EVENTS: usize = 4096;

/// One watched folder, or tree of folders.
#[derive(Debug)]
pub struct Watch {
    queue: Watched,
    root: String,
    recursive: bool,
    include_entry: bool,
    /// Path below the root of each folder, empty for the root itself.
    folders: HashMap<i32, String>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// When it is no folder, or there are too many watches.
    pub fn new(root: String, recursive: bool, include_entry: bool) -> Result<Self, RpcError> {
        let failed = |errno: Errno| RpcError::from_errno(errno, "watch", root.as_bytes());
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let queue = inotify::init(flags).map_err(failed)?;
        let queue = watch_descriptor(queue, Interest::READABLE)
            .map_err(|error| RpcError::new(Code::ResourceExhausted, format!("watch `{root}`: {error}")))?;
        let mut watch = Self { queue, root: root.clone(), recursive, include_entry, folders: HashMap::new() };
        watch.add(String::new(), &mut Vec::new()).map_err(failed)?;
        Ok(watch)
    }

    /// Adds a folder and, if recursive, those below it. Entries found below a folder that came later are events:
    /// they may have been made before the watch was.
    fn add(&mut self, below: String, found: &mut Vec<(String, &'static str)>) -> Result<(), Errno> {
        let mut pending = vec![below];
        while let Some(below) = pending.pop() {
            if self.folders.len() >= MAX_FOLDERS {
                return Err(Errno::NOSPC);
            }
            let folder = self.absolute(&below);
            let open = path::open(None, &folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            let wanted = inotify::WatchFlags::CREATE
                | inotify::WatchFlags::MODIFY
                | inotify::WatchFlags::DELETE
                | inotify::WatchFlags::MOVED_FROM
                | inotify::WatchFlags::MOVED_TO
                | inotify::WatchFlags::ATTRIB
                | inotify::WatchFlags::ONLYDIR;
            let number = inotify::add_watch(self.queue.get_ref(), &*folder, wanted)?;
            self.folders.insert(number, below.clone());
            if !self.recursive {
                continue;
            }
            for entry in rustix::fs::Dir::read_from(&open)?.flatten() {
                let Ok(name) = entry.file_name().to_str() else { continue };
                if name == "." || name == ".." || found.len() >= MAX_EVENTS {
                    continue;
                }
                let child = join(&below, name);
                found.push((child.clone(), "EVENT_TYPE_CREATE"));
                if entry.file_type() == rustix::fs::FileType::Directory {
                    pending.push(child);
                }
            }
        }
        Ok(())
    }

    /// Takes what is in the queue.
    fn take(&mut self) -> Vec<Value> {
        let mut events: Vec<(String, &'static str)> = Vec::new();
        let mut added = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(self.queue.get_ref(), &mut buffer);
        while events.len() < MAX_EVENTS {
            let Ok(event) = reader.next() else { break };
            let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) else { continue };
            let Some(folder) = self.folders.get(&event.wd()) else { continue };
            let Some(kind) = kind(event.events()) else { continue };
            let child = join(folder, name);
            if event.events().contains(inotify::ReadFlags::ISDIR) && kind == "EVENT_TYPE_CREATE" && self.recursive {
                added.push(child.clone());
            }
            events.push((child, kind));
        }
        for folder in added {
            // It may be gone again.
            let _gone = self.add(folder, &mut events);
        }
        let names = if self.include_entry { Names::read() } else { Names::default() };
        events.into_iter().map(|(name, kind)| self.event(&name, kind, &names)).collect()
    }

    fn event(&self, name: &str, kind: &'static str, names: &Names) -> Value {
        let mut event = json!({ "name": name, "type": kind });
        if self.include_entry
            && let (Ok(entry), Some(fields)) = (describe(&self.absolute(name), names), event.as_object_mut())
        {
            fields.insert("entry".to_owned(), json!(entry));
        }
        event
    }

    fn absolute(&self, below: &str) -> String {
        if below.is_empty() { self.root.clone() } else { format!("{}/{below}", self.root.trim_end_matches('/')) }
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn kind(flags: inotify::ReadFlags) -> Option<&'static str> {
    use inotify::ReadFlags;
    let table = [
        (ReadFlags::CREATE | ReadFlags::MOVED_TO, "EVENT_TYPE_CREATE"),
        (ReadFlags::MODIFY, "EVENT_TYPE_WRITE"),
        (ReadFlags::DELETE, "EVENT_TYPE_REMOVE"),
        (ReadFlags::MOVED_FROM, "EVENT_TYPE_RENAME"),
        (ReadFlags::ATTRIB, "EVENT_TYPE_CHMOD"),
    ];
    table.into_iter().find(|(bits, _)| flags.intersects(*bits)).map(|(_, kind)| kind)
}

/// The events of a watch as a stream of answers. The watch ends with its reader.
#[must_use]
pub fn stream(mut watch: Watch, keepalive: Duration) -> Messages {
    let (sender, receiver) = mpsc::channel(4);
    tokio::task::spawn_local(async move {
        if sender.send(envelope(&json!({ "start": {} }))).await.is_err() {
            return;
        }
        loop {
            for event in watch.take() {
                if sender.send(envelope(&json!({ "filesystem": event }))).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                ready = watch.queue.readable() => match ready {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_broken) => return,
                },
                () = sender.closed() => return,
            }
        }
    });
    Messages::new(receiver, keepalive, envelope(&json!({ "keepalive": {} })))
}

/// Watches for callers that poll.
#[derive(Debug, Default)]
pub struct Watchers {
    next: u64,
    watches: HashMap<String, Watch>,
}

impl Watchers {
    /// Keeps a watch and names it.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add(&mut self, watch: Watch) -> Result<String, RpcError> {
        if self.watches.len() >= MAX_WATCHERS {
            let message = format!("{MAX_WATCHERS} watchers are the limit; remove one");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        self.next += 1;
        let id = format!("w{}", self.next);
        self.watches.insert(id.clone(), watch);
        Ok(id)
    }

    /// What happened since the last call.
    ///
    /// # Errors
    /// When there is no such watch.
    pub fn drain(&mut self, id: &str) -> Result<Vec<Value>, RpcError> {
        self.watches.get_mut(id).map(Watch::take).ok_or_else(|| unknown(id))
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// When there is no such watch.
    pub fn remove(&mut self, id: &str) -> Result<(), RpcError> {
        self.watches.remove(id).map(drop).ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> RpcError {
    RpcError::new(Code::NotFound, format!("watcher with id {id} not found"))
}
