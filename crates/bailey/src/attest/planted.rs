//! What the host plants before anything is started: secrets that must not come out, and sockets that must not be reached.

use std::io::{self, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use bailey_control::clock::Rng;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use super::canary::Canary;
use super::world::PLANTED;

/// Number from which descriptors here lie: out of the way of those that a jail is handed.
const APART: i32 = 100;

/// The secrets, and what keeps them where they are.
pub(crate) struct Planted {
    pub(crate) canaries: Vec<Canary>,
    /// Folder of the host, for root alone.
    pub(crate) folder: tempfile::TempDir,
    /// Paths that an attacker is told.
    pub(crate) told: Vec<String>,
    _shared_memory: tempfile::TempPath,
    _leaked: OwnedFd,
    _process: Process,
}

/// A process of the host that holds a secret in its environment. It ends with its standard input.
struct Process {
    child: Child,
    input: Option<OwnedFd>,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

impl Planted {
    pub(crate) fn new(rng: &Rng) -> anyhow::Result<Self> {
        let fresh = |place| anyhow::Ok(Canary::new(place, rng.bytes()?));
        let (file, memory, environment) =
            (fresh("a file of root's")?, fresh("the host's shared memory")?, fresh("a process of the host")?);
        let folder = tempfile::tempdir().context("make a folder for secrets")?;
        let path = folder.path().join(PLANTED);
        std::fs::write(&path, file.text()).context("plant a file")?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        // Left open, as a careless operator's shell would.
        let leaked = fcntl_dupfd_cloexec(std::fs::File::open(&path)?, APART)?;
        fcntl_setfd(&leaked, FdFlags::empty())?;
        let mut shared_memory =
            tempfile::Builder::new().prefix(PLANTED).tempfile_in("/dev/shm").context("plant memory")?;
        shared_memory.write_all(memory.text().as_bytes())?;
        let mut child = Command::new("cat")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("BAILEY_ATTEST_SECRET", environment.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("start a process with a secret")?;
        let input = child.stdin.take().map(|input| fcntl_dupfd_cloexec(&input, APART)).transpose()?;
        let shared_memory = shared_memory.into_temp_path();
        let told = [path.as_path(), &shared_memory, Path::new("/dev/shm"), Path::new("/etc/shadow")];
        Ok(Self {
            told: told.iter().map(|path| path.display().to_string()).collect(),
            canaries: vec![file, memory, environment],
            folder,
            _shared_memory: shared_memory,
            _leaked: leaked,
            _process: Process { child, input },
        })
    }
}

/// Sockets of the host that no sandbox may reach.
pub(crate) struct Listeners {
    tcp: Vec<TcpListener>,
    udp: UdpSocket,
    unix: [UnixListener; 2],
    datagrams: UnixDatagram,
    /// As the attack is told them.
    pub(crate) words: Vec<String>,
}

impl Listeners {
    pub(crate) fn open(folder: &Path, rng: &Rng) -> anyhow::Result<Self> {
        let mut tcp = vec![TcpListener::bind("127.0.0.1:0").context("listen on the loopback")?];
        // A host may be without it.
        tcp.extend(TcpListener::bind("[::1]:0"));
        let udp = UdpSocket::bind("127.0.0.1:0").context("listen on the loopback")?;
        let name = format!("bailey-attest-{:016x}", u64::from_be_bytes(rng.bytes()?));
        let path = folder.join("socket");
        let datagram_name = format!("{name}-datagrams");
        let unix = [
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?).context("listen on an abstract name")?,
            UnixListener::bind(&path).context("listen on a path")?,
        ];
        let datagrams = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&datagram_name)?)?;
        let mut words = Vec::new();
        for (kind, address) in tcp.iter().map(|tcp| ("tcp", tcp.local_addr())).chain([("udp", udp.local_addr())]) {
            let address = address?;
            words.extend([kind.to_owned(), address.ip().to_string(), address.port().to_string()]);
        }
        for name in [format!("@{name}"), format!("@{datagram_name}"), path.display().to_string()] {
            words.extend(["unix".to_owned(), name]);
        }
        tcp.iter().try_for_each(|tcp| tcp.set_nonblocking(true))?;
        unix.iter().try_for_each(|unix| unix.set_nonblocking(true))?;
        udp.set_nonblocking(true)?;
        datagrams.set_nonblocking(true)?;
        Ok(Self { tcp, udp, unix, datagrams, words })
    }

    /// Which were reached since the last look, in words.
    pub(crate) fn reached(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for tcp in &self.tcp {
            while let Some((_, from)) = none_waits(tcp.accept())? {
                found.push(format!("the host's loopback was reached from {from}"));
            }
        }
        while none_waits(self.udp.recv_from(&mut [0; 64]))?.is_some() {
            found.push("a datagram reached the host's loopback".to_owned());
        }
        for unix in &self.unix {
            while none_waits(unix.accept())?.is_some() {
                found.push("a socket of the host was reached by its name".to_owned());
            }
        }
        while none_waits(self.datagrams.recv_from(&mut [0; 64]))?.is_some() {
            found.push("a datagram reached a socket of the host by its name".to_owned());
        }
        Ok(found)
    }
}

fn none_waits<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_reaches_a_socket_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let listeners = Listeners::open(folder.path(), &Rng::system()).unwrap();
        assert_eq!(listeners.reached().unwrap(), Vec::<String>::new());
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let words = &listeners.words;
        let mut kinds = std::collections::BTreeSet::new();
        for (at, word) in words.iter().enumerate() {
            let next = words.get(at + 1).cloned().unwrap_or_default();
            let last = words.get(at + 2).cloned().unwrap_or_default();
            match (word.as_str(), next.strip_prefix('@')) {
                ("tcp", _) => drop(std::net::TcpStream::connect((next.as_str(), last.parse().unwrap())).unwrap()),
                ("udp", _) => drop(udp.send_to(b"x", (next.as_str(), last.parse().unwrap())).unwrap()),
                ("unix", Some(name)) if name.ends_with("-datagrams") => {
                    let end = UnixDatagram::unbound().unwrap();
                    end.connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
                    end.send(b"x").unwrap();
                }
                ("unix", Some(name)) => {
                    let address = SocketAddr::from_abstract_name(name).unwrap();
                    drop(std::os::unix::net::UnixStream::connect_addr(&address).unwrap());
                }
                ("unix", None) => drop(std::os::unix::net::UnixStream::connect(&next).unwrap()),
                _ => continue,
            }
            let reached = listeners.reached().unwrap();
            assert_eq!(reached.len(), 1, "{word} {next}: {reached:?}");
            kinds.insert(word.clone());
        }
        assert_eq!(kinds.len(), 3);
    }

    #[test]
    fn what_is_planted_is_where_it_is_told_to_be() {
        let planted = Planted::new(&Rng::system()).unwrap();
        let read = |path: &str| std::fs::read(path).unwrap();
        let [file, memory, environment] = &planted.canaries[..] else { panic!("{:?}", planted.canaries) };
        assert!(file.is_in(&read(&planted.told[0])) && memory.is_in(&read(&planted.told[1])));
        let environ = format!("/proc/{}/environ", planted._process.child.id());
        // Until it is executed, it is this very program.
        while !environment.is_in(&read(&environ)) {
            std::thread::yield_now();
        }
        let leaked = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&planted._leaked)));
        assert!(leaked.unwrap().to_string_lossy().contains(PLANTED));
    }
}
