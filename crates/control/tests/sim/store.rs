//! Packs in a folder that fails when fate says so, and that forgets, when the power goes, what was never synced.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailey_tree::TreeError;
use bailey_tree::blob_store::{BlobName, BlobStore, Folder, Part, RangedRead, Scratch};

use crate::fate::{Dice, Fate, Turn};

/// What all stores of one disk have not synced.
#[derive(Debug, Default)]
pub struct Disk(Mutex<BTreeMap<PathBuf, Loose>>);

/// A change of a folder that no sync made durable.
#[derive(Debug)]
enum Loose {
    /// The file is there, or not.
    Put,
    /// Its name is durable, its content is not.
    Content,
    /// The file had this content, and may have it again.
    Removed(Vec<u8>),
}

impl Disk {
    fn loose(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Loose>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power goes: of each change that was not synced chance says whether it is there.
    pub fn lose_power(&self, dice: &mut Dice) {
        for (path, loose) in std::mem::take(&mut *self.loose()) {
            match loose {
                Loose::Put if dice.one_in(2) => drop(std::fs::remove_file(&path)),
                Loose::Content if dice.one_in(2) => {
                    if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                        let length = file.metadata().unwrap().len();
                        file.set_len(dice.below(length)).unwrap();
                    }
                }
                Loose::Removed(content) if dice.one_in(2) => std::fs::write(&path, content).unwrap(),
                Loose::Put | Loose::Content | Loose::Removed(_) => {}
            }
        }
    }
}

/// One store's packs on the disk.
#[derive(Debug)]
pub struct Faulty {
    inner: Folder,
    path: PathBuf,
    disk: Arc<Disk>,
    fate: Arc<Fate>,
}

impl Faulty {
    pub fn new(path: PathBuf, disk: Arc<Disk>, fate: Arc<Fate>) -> Self {
        Self { inner: Folder::new(path.clone()), path, disk, fate }
    }

    fn turn(&self, call: &str, name: Option<&BlobName>) -> Turn {
        self.fate.turn(|| match name {
            Some(name) => format!("store {call} {name}"),
            None => format!("store {call}"),
        })
    }

    /// A call that changes nothing.
    fn ask(&self, call: &'static str, name: Option<&BlobName>) -> Result<(), TreeError> {
        match self.turn(call, name) {
            Turn::Fine | Turn::DiesAfter => Ok(()),
            Turn::Fault | Turn::DiesBefore | Turn::Dead => Err(self.error(call, &io::Error::from_raw_os_error(5))),
        }
    }

    fn error(&self, operation: &'static str, source: &io::Error) -> TreeError {
        let source = io::Error::from_raw_os_error(source.raw_os_error().unwrap_or(5));
        TreeError::Storage { operation, name: self.path.display().to_string(), source }
    }

    fn at(&self, name: &BlobName) -> PathBuf {
        self.path.join(name.to_string())
    }

    /// Publishes the first of `files`, none of them durable.
    fn put_some(&self, files: Vec<(BlobName, Scratch)>) {
        let count = self.fate.dice(|dice| dice.below(files.len() as u64 + 1));
        let some: Vec<_> = files.into_iter().take(usize::try_from(count).unwrap()).collect();
        let names: Vec<BlobName> = some.iter().map(|(name, _)| *name).collect();
        let there: Vec<bool> = names.iter().map(|name| self.at(name).exists()).collect();
        if self.inner.put(some).is_ok() {
            // An index is there only with its pack: then that is durable already.
            let with_index = names.iter().any(|name| name.part == Part::Index);
            let new =
                names.iter().zip(there).filter(|(name, there)| !there && (name.part == Part::Index || !with_index));
            self.disk.loose().extend(new.map(|(name, _)| (self.at(name), Loose::Put)));
        }
    }

    /// The folder was synced: what it lists is durable.
    fn synced(&self) {
        let beside = |path: &Path| path.parent() == Some(&*self.path);
        self.disk.loose().retain(|path, loose| !beside(path) || matches!(loose, Loose::Content));
    }
}

impl BlobStore for Faulty {
    fn scratch(&self) -> Result<Scratch, TreeError> {
        match self.turn("scratch", None) {
            Turn::Fine | Turn::DiesAfter => self.inner.scratch(),
            Turn::Fault if self.fate.dice(|dice| dice.one_in(2)) => {
                // Each write to it finds the disk full.
                let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
                Ok(Scratch::new(full, PathBuf::from("/nonexistent/full")))
            }
            // EMFILE
            Turn::Fault | Turn::DiesBefore | Turn::Dead => {
                Err(self.error("creating", &io::Error::from_raw_os_error(24)))
            }
        }
    }

    fn put(&self, files: Vec<(BlobName, Scratch)>) -> Result<(), TreeError> {
        let names: Vec<BlobName> = files.iter().map(|(name, _)| *name).collect();
        match self.turn("put", names.first()) {
            Turn::Fine | Turn::DiesAfter => {
                self.inner.put(files)?;
                self.synced();
                let sums = names.iter().filter(|name| name.part == Part::Sums);
                self.disk.loose().extend(sums.map(|name| (self.at(name), Loose::Content)));
                Ok(())
            }
            Turn::Fault | Turn::DiesBefore => {
                self.put_some(files);
                let full = self.fate.dice(|dice| dice.one_in(2));
                Err(self.error("syncing", &io::Error::from_raw_os_error(if full { 28 } else { 5 })))
            }
            Turn::Dead => Err(self.error("syncing", &io::Error::from_raw_os_error(5))),
        }
    }

    fn open(&self, name: &BlobName) -> Result<Option<Box<dyn RangedRead>>, TreeError> {
        self.ask("open", Some(name))?;
        let Some(inner) = self.inner.open(name)? else { return Ok(None) };
        Ok(Some(Box::new(FaultyRead { inner, name: *name, fate: Arc::clone(&self.fate) })))
    }

    fn list(&self) -> Result<Vec<BlobName>, TreeError> {
        self.ask("list", None)?;
        let mut names = self.inner.list()?;
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, name: &BlobName) -> Result<(), TreeError> {
        match self.turn("remove", Some(name)) {
            Turn::Fine | Turn::DiesAfter => {
                let path = self.at(name);
                if name.part == Part::Index {
                    self.disk.loose().remove(&path);
                } else if let Ok(content) = std::fs::read(&path) {
                    let mut loose = self.disk.loose();
                    match loose.remove(&path) {
                        // It never was durable.
                        Some(Loose::Put) => {}
                        Some(before @ Loose::Removed(_)) => drop(loose.insert(path, before)),
                        Some(Loose::Content) | None => drop(loose.insert(path, Loose::Removed(content))),
                    }
                }
                self.inner.remove(name)
            }
            Turn::Fault | Turn::DiesBefore | Turn::Dead => {
                Err(self.error("removing", &io::Error::from_raw_os_error(5)))
            }
        }
    }

    fn sweep(&self) -> Result<(), TreeError> {
        self.ask("sweep", None)?;
        self.inner.sweep()
    }
}

#[derive(Debug)]
struct FaultyRead {
    inner: Box<dyn RangedRead>,
    name: BlobName,
    fate: Arc<Fate>,
}

impl RangedRead for FaultyRead {
    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.fate.turn(|| format!("store read {} {offset} {}", self.name, out.len())) {
            Turn::Fine | Turn::DiesAfter => self.inner.read_exact_at(offset, out),
            Turn::Fault | Turn::DiesBefore | Turn::Dead => Err(io::Error::from_raw_os_error(5)),
        }
    }
}

/// A folder on a disk in memory, where there is one: nothing of a simulation has to outlive it.
pub fn scratch_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if File::open(memory).is_ok() && rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}
