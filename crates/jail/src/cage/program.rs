//! A program that isolates by itself, with a cage around it: a virtual machine monitor, a kernel in user space.
//!
//! It is PID 1 of its cage and everything in there is its own, but it is no better than what it isolates: whoever breaks
//! out of it is in a cage with less than any other has. Its root is an image of the operator's, read-only, with a small
//! `/tmp`; it is a user without capabilities, has no interface that is up, and whatever it speaks to it was handed at its
//! start.
//!
//! A machine monitor is one process with threads, behind Landlock. A kernel in user space makes processes and puts them into
//! namespaces of their own, in which it mounts: Landlock would forbid that, the filter does not, and so its cage has
//! whatever else another has and no more of the kernel than it takes (see [`super::filter`]).

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use bailey_protocol::id::TemplateDigest;
use bailey_protocol::jail::{JailFault, Profile};
use bailey_protocol::limits::{MAX_PROGRAM_BYTES, MAX_PROGRAM_FDS, MAX_PROGRAM_WORDS};
use bailey_sys::exec::StringVector;
use bailey_sys::landlock::{self, Grant, Rights};
use rustix::fs::{
    FileType, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags, fcntl_add_seals, fstat, memfd_create, openat2,
};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use crate::fault::{OrFault, invalid};

/// Number of the first descriptor that a program was handed.
pub(crate) const FIRST_FD: usize = 3;

/// Number of the descriptor that a program is executed by, and the most files that it may have open: so nothing can get
/// this number again, and the filter of a machine monitor lets nothing else be executed.
///
/// What remains possible is to execute by an absolute path, for which the kernel looks at no descriptor. Landlock leaves
/// only the program itself and its loader for that, and either is then what the first was: the same user, the same
/// filter, the same paths and descriptors, and nothing that the process could not do before.
pub(crate) const EXEC_FD: i32 = 2048;

/// How much of what a program says on its standard error is kept.
const WORDS: usize = 4096;

/// What the beginning of a program has to hold of its format.
const HEAD: usize = 4096;

/// What `Launch` asks for.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) image: TemplateDigest,
    pub(crate) profile: Profile,
    /// Absolute path in the image.
    path: String,
    /// With its own name first.
    pub(crate) arguments: StringVector,
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) words: OwnedFd,
}

/// A file, wherever it is found.
pub(crate) type Place = (u64, u64);

/// What is known of a program that was started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) profile: Profile,
    /// Its file.
    pub(crate) file: Place,
    /// What it was handed, in order.
    pub(crate) handed: Vec<Place>,
    /// Its standard error.
    words: OwnedFd,
}

impl Program {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// Names what is wrong with it.
    pub(crate) fn check(
        (image, profile): (TemplateDigest, Profile),
        command: Vec<String>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, JailFault> {
        let step = "check the command";
        let bytes: usize = command.iter().map(|word| word.len().saturating_add(1)).sum();
        if command.len() > MAX_PROGRAM_WORDS || bytes > MAX_PROGRAM_BYTES {
            return Err(invalid(step, format!("it has {} words and {bytes} bytes", command.len())));
        }
        let path = command.first().cloned().unwrap_or_default();
        if !path.starts_with('/') || path.split('/').any(|name| name == "..") {
            return Err(invalid(step, format!("`{path}` is no absolute path")));
        }
        let words = command.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>().or_invalid(step)?;
        if descriptors.len() > MAX_PROGRAM_FDS {
            return Err(invalid(step, format!("it came with {} descriptors", descriptors.len())));
        }
        descriptors.iter().try_for_each(check_descriptor)?;
        let arguments = StringVector::new(words);
        let words = make_words().or_internal("make room for its last words")?;
        Ok(Self { image, profile, path, arguments, descriptors, words })
    }

    /// What is known of it once it was started from that file.
    pub(crate) fn remember(&self, file: &OwnedFd) -> Result<Running, Errno> {
        Ok(Running {
            profile: self.profile,
            file: place(file)?,
            handed: self.descriptors.iter().map(place).collect::<Result<_, _>>()?,
            words: rustix::io::fcntl_dupfd_cloexec(&self.words, 3)?,
        })
    }

    /// Its file and the loader that it names, in the image.
    ///
    /// # Errors
    /// When it is not there, or no program of this machine.
    pub(crate) fn find(&self, root: &OwnedFd) -> Result<Executable, JailFault> {
        let step = "find the program";
        let in_vain = |errno: Errno| invalid(step, format!("`{}`: {errno}", self.path));
        let program = open_inside(root, &self.path, OFlags::PATH).map_err(in_vain)?;
        let mut head = Vec::new();
        let readable = open_inside(root, &self.path, OFlags::RDONLY | OFlags::NONBLOCK).map_err(in_vain)?;
        if FileType::from_raw_mode(fstat(&readable).or_internal(step)?.st_mode) != FileType::RegularFile {
            return Err(invalid(step, format!("`{}` is no file", self.path)));
        }
        File::from(readable).take(HEAD as u64).read_to_end(&mut head).or_invalid(step)?;
        let loader = loader(&head).ok_or_else(|| invalid(step, format!("`{}` is no program", self.path)))?;
        let loader = loader.map(|path| open_inside(root, path, OFlags::PATH)).transpose().map_err(in_vain)?;
        Ok(Executable { program, loader })
    }
}

/// What has to be executed to start a program.
#[derive(Debug)]
pub(crate) struct Executable {
    /// The program's own file.
    pub(crate) program: OwnedFd,
    /// What the kernel starts in its place, if it is linked with libraries.
    loader: Option<OwnedFd>,
}

impl Executable {
    /// The fence around the paths of a virtual machine monitor: it may read its image, write to `/tmp` and use its
    /// devices. Where it is to have `/dev/kvm`, that is one more node and one more grant, with control commands.
    pub(crate) fn fence(
        &self,
        root: &OwnedFd,
        scratch: &OwnedFd,
        dev: &OwnedFd,
    ) -> Result<OwnedFd, landlock::LandlockError> {
        let places = [(root, Rights::Read), (scratch, Rights::Keep), (dev, Rights::Use)];
        let executed = [&self.program].into_iter().chain(&self.loader).map(|file| (file, Rights::Execute));
        let grants = places.into_iter().chain(executed);
        let grants: Vec<_> = grants.map(|(beneath, rights)| Grant { beneath: beneath.as_fd(), rights }).collect();
        landlock::prepare(&grants)
    }
}

impl Running {
    /// What its standard input and output are, if not the null device.
    pub(crate) fn line(&self) -> Option<Place> {
        match self.profile {
            Profile::Vmm => None,
            Profile::Sentry => self.handed.first().copied(),
        }
    }

    /// What it has said on its standard error, as far as there was room.
    pub(crate) fn last_words(&self) -> String {
        let mut bytes = [0; WORDS];
        let file = rustix::io::fcntl_dupfd_cloexec(&self.words, 3).map(File::from);
        // Nothing but its own words is lost where they cannot be read.
        let count = file.ok().and_then(|file| file.read_at(&mut bytes, 0).ok()).unwrap_or(0);
        let said = bytes.get(..count).unwrap_or(&[]);
        String::from_utf8_lossy(said).trim_matches(['\0', '\n', ' ']).to_owned()
    }
}

/// Where a file is. The same for a descriptor of it and for a link to that in `/proc`.
fn place(file: &OwnedFd) -> Result<Place, Errno> {
    fstat(file).map(|found| (found.st_dev, found.st_ino))
}

/// A file in memory that neither grows nor shrinks: whatever is written to it, it takes no more room.
fn make_words() -> Result<OwnedFd, Errno> {
    let words = memfd_create("words", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&words, WORDS as u64)?;
    fcntl_add_seals(&words, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(words)
}

/// What leads out of the cage is none of what may be handed in: no folder, no device, no socket of a network. A file has
/// no more rights by this than it had for the node.
fn check_descriptor(descriptor: &OwnedFd) -> Result<(), JailFault> {
    let step = "check the descriptors";
    let kind = FileType::from_raw_mode(fstat(descriptor).or_invalid(step)?.st_mode);
    let is_local = || socket_domain(descriptor).is_ok_and(|domain| domain == AddressFamily::UNIX);
    match kind {
        FileType::RegularFile | FileType::Fifo => Ok(()),
        FileType::Socket if is_local() => Ok(()),
        other => Err(invalid(step, format!("one is a {other:?} that may not be handed in"))),
    }
}

/// Opens a file of an image, whose links lead nowhere else.
fn open_inside(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// The loader that an ELF file of 64 bits names; nothing if it names none. No answer for what is no such file.
fn loader(head: &[u8]) -> Option<Option<&str>> {
    const LOADER: u32 = 3;
    if head.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(number(head, 32, 8)?).ok()?;
    let (size, count) = (usize::try_from(number(head, 54, 2)?).ok()?, number(head, 56, 2)?);
    for entry in 0..usize::try_from(count).ok()? {
        let header = head.get(entry.checked_mul(size)?.checked_add(table)?..)?;
        if number(header, 0, 4)? == u64::from(LOADER) {
            let start = usize::try_from(number(header, 8, 8)?).ok()?;
            let length = usize::try_from(number(header, 32, 8)?).ok()?;
            let name = head.get(start..start.checked_add(length)?)?.strip_suffix(b"\0")?;
            return std::str::from_utf8(name).ok().filter(|path| path.starts_with('/')).map(Some);
        }
    }
    Some(None)
}

/// An integer of `bytes` bytes, the least one first.
fn number(from: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = from.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mut bytes: Vec<u8>, changes: &[(usize, &[u8])]) -> Vec<u8> {
        for (at, change) in changes {
            bytes.splice(*at..at + change.len(), change.iter().copied());
        }
        bytes
    }

    #[test]
    fn the_loader_of_a_program_is_found_and_nothing_is_read_beyond_its_head() {
        // One header, which names a loader.
        let header: [(usize, &[u8]); 7] =
            [(0, b"\x7fELF\x02\x01"), (32, &[64]), (54, &[56]), (56, &[1]), (64, &[3]), (72, &[120]), (96, &[8])];
        let good = with(with(vec![0; 160], &header), &[(120, b"/lib/ld\0")]);
        assert_eq!(loader(&good), Some(Some("/lib/ld")));
        assert_eq!(loader(&with(good.clone(), &[(64, &[1])])), Some(None));
        for cut in 0..128 {
            assert_eq!(loader(good.get(..cut).unwrap()), None, "{cut}");
        }
        for (at, value) in [(0, 0), (4, 1), (5, 2), (39, 255), (79, 255), (103, 255), (96, 7), (120, b'l'), (33, 1)] {
            assert_eq!(loader(&with(good.clone(), &[(at, &[value])])), None, "{at}");
        }
    }

    #[test]
    fn a_command_has_bounds() {
        let check = |command: &[&str]| {
            let command = command.iter().map(|word| (*word).to_owned()).collect();
            Program::check(("0".repeat(64).parse().unwrap(), Profile::Vmm), command, Vec::new()).map(drop)
        };
        check(&["/bin/program", "argument", ""]).unwrap();
        let long = "x".repeat(MAX_PROGRAM_BYTES);
        let many = vec!["/x"; MAX_PROGRAM_WORDS + 1];
        for bad in [&[][..], &[""], &["program"], &["/a/../b"], &["/a\0b"], &["/a", "b\0"], &["/a", &long], &many] {
            check(bad).unwrap_err();
        }
    }
}
