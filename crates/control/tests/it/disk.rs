//! A disk in memory that fails when it is told to, and that forgets what was never synced when its power goes.
//!
//! What a call changed is in `now`; `kept` is what a sync made durable; `since` is what came after it. When the power
//! goes, each change of `since` is there or not by itself, a write perhaps in part: no file system promises more.

// The tree's tests have this file at another place of theirs.
#[path = "disk/served.rs"]
mod served;
#[path = "disk/state.rs"]
mod state;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::mem::ManuallyDrop;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{BackgroundSession, Config, MountOption};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use served::Served;
pub use state::Fault;
use state::State;

/// A process that serves disks. Not the test's own: one that ends with files open on a file system that it serves itself
/// never ends.
pub struct Disks {
    process: Child,
    orders: Mutex<(UnixStream, BufReader<UnixStream>)>,
    _folder: TempDir,
}

/// A mounted disk. Its files are gone with it.
pub struct Disk<'a> {
    disks: &'a Disks,
    path: PathBuf,
}

/// What is asked of the process: the place of a disk, and what to do with it.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Empty,
    /// The same files on another disk.
    Copy(PathBuf),
    /// See [`Disk::without_power`].
    WithoutPower(PathBuf, u64),
    Arm(PathBuf, Fault, u64, bool),
    Disarm(PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Mounted(PathBuf),
    Failed(u64),
    Done,
}

const SOCKET: &str = "BAILEY_TEST_DISKS";

impl Disks {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("orders");
        let listener = UnixListener::bind(&socket).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "disk::serves_disks"])
            .env(SOCKET, &socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (stream, _) = listener.accept().unwrap();
        let orders = Mutex::new((stream.try_clone().unwrap(), BufReader::new(stream)));
        Self { process, orders, _folder: folder }
    }

    fn order(&self, order: &Order) -> Answer {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let line = serde_json::to_string(order).unwrap();
        orders.0.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        orders.1.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn mounted(&self, order: &Order) -> Disk<'_> {
        match self.order(order) {
            Answer::Mounted(path) => Disk { disks: self, path },
            other => panic!("{order:?}: {other:?}"),
        }
    }

    pub fn empty(&self) -> Disk<'_> {
        self.mounted(&Order::Empty)
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Disk<'_> {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the call number `at` fail of those that the fault hits from now on; with `lasts`, and all after it.
    pub fn arm(&self, fault: Fault, at: u64, lasts: bool) {
        assert!(matches!(self.disks.order(&Order::Arm(self.path.clone(), fault, at, lasts)), Answer::Done));
    }

    /// Has no more call fail; says how many did.
    pub fn disarm(&self) -> u64 {
        match self.disks.order(&Order::Disarm(self.path.clone())) {
            Answer::Failed(count) => count,
            other => panic!("{other:?}"),
        }
    }

    pub fn copy(&self) -> Self {
        self.disks.mounted(&Order::Copy(self.path.clone()))
    }

    /// What is left when the power goes now. The seed says of each change that was not synced whether it is there.
    pub fn without_power(&self, seed: u64) -> Self {
        self.disks.mounted(&Order::WithoutPower(self.path.clone(), seed))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.disks.order(&Order::Remove(self.path.clone()));
        }
    }
}

/// One disk in the process that serves them.
struct Mounted {
    state: Arc<Mutex<State>>,
    mount: TempDir,
    /// Ends with the last who has a file open.
    _session: ManuallyDrop<BackgroundSession>,
}

impl Mounted {
    fn new(state: State) -> Self {
        let state = Arc::new(Mutex::new(state));
        let mount = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faulty".to_owned()), MountOption::NoDev, MountOption::NoSuid];
        let session = fuser::spawn_mount(Served(Arc::clone(&state)), mount.path(), &config).unwrap();
        Self { state, mount, _session: ManuallyDrop::new(session) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(self.mount.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// What [`Disks::start`] starts; it ends when nobody gives orders any more.
#[test]
fn serves_disks() {
    // Asked for by nobody: a part of other tests.
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let stream = UnixStream::connect(socket).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let mut disks: BTreeMap<PathBuf, Mounted> = BTreeMap::new();
    for line in BufReader::new(stream).lines() {
        let mount = |state: State, disks: &mut BTreeMap<PathBuf, Mounted>| {
            let mounted = Mounted::new(state);
            let path = mounted.mount.path().to_owned();
            disks.insert(path.clone(), mounted);
            Answer::Mounted(path)
        };
        let answer = match serde_json::from_str(&line.unwrap()).unwrap() {
            Order::Empty => mount(State::empty(), &mut disks),
            Order::Copy(path) => {
                let state = disks[&path].state().clone();
                mount(state, &mut disks)
            }
            Order::WithoutPower(path, seed) => {
                let mut state = disks[&path].state().clone();
                state.lose_power(seed);
                mount(state, &mut disks)
            }
            Order::Arm(path, fault, at, lasts) => {
                let mut state = disks[&path].state();
                state.armed = Some((fault, at, lasts));
                state.failed = 0;
                Answer::Done
            }
            Order::Disarm(path) => {
                let mut state = disks[&path].state();
                state.armed = None;
                Answer::Failed(state.failed)
            }
            Order::Remove(path) => {
                disks.remove(&path);
                Answer::Done
            }
        };
        let line = serde_json::to_string(&answer).unwrap();
        answers.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
