//! Starting a child process with less power than its parent: fork, give up, exec.
//!
//! Everything the child needs is prepared before the fork. After it the child makes system calls only: it allocates
//! nothing, takes no lock and logs nothing. Its order: session, standard descriptors, terminal, signals, limits,
//! bounding set, secure bits, identity, capabilities, folder, every other descriptor closed, filters, exec.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::last_errno;
use crate::seccomp::{self, Program};

/// Strings as `execve` takes them: pointers to each, then a null pointer.
#[derive(Debug)]
pub struct CStrings {
    pointers: Vec<*const c_char>,
    /// INVARIANT: never changed after the pointers were taken.
    _owned: Vec<CString>,
}

impl CStrings {
    /// Takes the strings over.
    #[must_use]
    pub fn new(owned: Vec<CString>) -> Self {
        let pointers = owned.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { pointers, _owned: owned }
    }
}

/// Where the program starts.
#[derive(Debug, Clone, Copy)]
pub enum Folder<'a> {
    /// Resolved by the child, with its own rights.
    Path(&'a CStr),
    /// Already open.
    Open(BorrowedFd<'a>),
}

/// Who the program is, and what it may do as that.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Real, effective and saved user.
    pub uid: Uid,
    /// Real, effective and saved group, and the only supplementary one.
    pub gid: Gid,
    /// Its permitted, effective and bounding set; the inheritable and ambient ones are empty.
    pub capabilities: CapabilitySet,
    /// Set last, with the locks among them. None for a kernel that has neither these nor ambient capabilities.
    pub secure_bits: Option<CapabilitiesSecureBits>,
}

/// What to start, and how.
#[derive(Debug)]
pub struct Command<'a> {
    /// Absolute or relative paths of the program, tried in this order.
    pub programs: &'a [CString],
    /// Arguments, with the program's name first.
    pub arguments: &'a CStrings,
    /// The whole environment.
    pub environment: &'a CStrings,
    /// Where it starts.
    pub folder: Folder<'a>,
    /// Standard input, output and error; none of them may be a standard descriptor of the caller.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input is the terminal that controls the new session.
    pub terminal: bool,
    /// Folder of the cgroup (version 2) that the child is born in, where there are any.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Who it is.
    pub identity: Identity,
    /// Soft and hard limit of each.
    pub limits: &'a [(Resource, u64)],
    /// Installed last, in this order.
    pub filters: &'a [Program],
}

/// A child that was forked, and may still fail to become the program.
#[derive(Debug)]
pub struct Child {
    /// The process; reaping it is up to the caller.
    pub pid: Pid,
    /// Ends without a byte once the program runs; otherwise yields one [`StartFailure`]. It does not block.
    pub report: OwnedFd,
}

/// What the child was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Moving into the cgroup, where it could not be born in it.
    Cgroup = 1,
    /// Starting a session.
    Session,
    /// Putting the standard descriptors in place.
    Stdio,
    /// Taking the terminal.
    Terminal,
    /// Setting limits.
    Limits,
    /// Giving up capabilities and identity.
    Identity,
    /// Entering the working folder.
    Folder,
    /// Closing descriptors.
    Close,
    /// Installing the filters.
    Filters,
    /// Executing the program.
    Exec,
}

/// Why the child did not become the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("start the program: {step:?}: {errno}")]
pub struct StartFailure {
    /// What it was doing.
    pub step: Step,
    /// What the kernel said.
    pub errno: Errno,
}

impl StartFailure {
    /// Reads what came through [`Child::report`]; `None` for no bytes, which means success.
    #[must_use]
    pub fn from_report(bytes: &[u8]) -> Option<Self> {
        let (&step, errno) = bytes.split_first()?;
        let steps = [
            Step::Cgroup,
            Step::Session,
            Step::Stdio,
            Step::Terminal,
            Step::Limits,
            Step::Identity,
            Step::Folder,
            Step::Close,
            Step::Filters,
            Step::Exec,
        ];
        let step = steps.into_iter().find(|s| *s as u8 == step).unwrap_or(Step::Exec);
        let errno = errno.try_into().map_or(0, i32::from_ne_bytes);
        Some(Self { step, errno: Errno::from_raw_os_error(errno) })
    }
}

/// Forks the child into its cgroup and lets it run towards the program. The caller is not blocked.
///
/// # Errors
/// When the fork is refused (`AGAIN`: the limit on processes), or `stdio` holds a standard descriptor.
pub fn start(command: &Command<'_>) -> Result<Child, Errno> {
    if command.stdio.iter().any(|fd| fd.as_raw_fd() <= 2) {
        return Err(Errno::INVAL);
    }
    let (report, report_to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // No handler of the parent may run in the child.
    let before = block_signals();
    let mut procs = None;
    let mut forked = match command.cgroup {
        Some(cgroup) => fork_into(cgroup),
        None => fork(),
    };
    if let (Err(Errno::NOSYS), Some(cgroup)) = (forked, command.cgroup) {
        // Behind a filter that hides `clone3`. Slower: the move waits for other processors.
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(cgroup, c"cgroup.procs", flags, Mode::empty());
        forked = opened.and_then(|file| {
            procs = Some(file);
            fork()
        });
    }
    if let Ok(None) = forked {
        let failure = run(command, procs.as_ref(), report_to.as_raw_fd()).err().unwrap_or((Step::Exec, Errno::IO));
        fail(report_to.as_fd(), failure);
    }
    restore_signals(&before);
    let pid = forked?.ok_or(Errno::SRCH)?;
    rustix::io::ioctl_fionbio(&report, true)?;
    Ok(Child { pid, report })
}

/// The child's way to the program; returns only if it fails.
fn run(command: &Command<'_>, procs: Option<&OwnedFd>, report: RawFd) -> Result<(), (Step, Errno)> {
    let at = |step: Step| move |errno: Errno| (step, errno);
    if let Some(procs) = procs {
        rustix::io::write(procs, b"0").map_err(at(Step::Cgroup))?;
    }
    // Not by rustix, which takes the answer for a process id: gVisor's is 0.
    // SAFETY: takes nothing and touches no memory.
    if unsafe { libc::setsid() } == -1 {
        return Err((Step::Session, last_errno()));
    }
    let [input, output, error] = command.stdio;
    rustix::stdio::dup2_stdin(input).map_err(at(Step::Stdio))?;
    rustix::stdio::dup2_stdout(output).map_err(at(Step::Stdio))?;
    rustix::stdio::dup2_stderr(error).map_err(at(Step::Stdio))?;
    if command.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(at(Step::Terminal))?;
    }
    reset_signals();
    for &(resource, value) in command.limits {
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        rustix::process::setrlimit(resource, limit).map_err(at(Step::Limits))?;
    }
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    become_identity(command.identity).map_err(at(Step::Identity))?;
    match command.folder {
        Folder::Path(path) => rustix::process::chdir(path),
        Folder::Open(folder) => rustix::process::fchdir(folder),
    }
    .map_err(at(Step::Folder))?;
    close_all_but_stdio_and(report).map_err(at(Step::Close))?;
    seccomp::install(command.filters).map_err(at(Step::Filters))?;
    Err((Step::Exec, exec(command)))
}

fn become_identity(identity: Identity) -> Result<(), Errno> {
    for number in 0..64_u32 {
        let bit = CapabilitySet::from_bits_retain(1 << number);
        if identity.capabilities.contains(bit) {
            continue;
        }
        // SAFETY: takes numbers only.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        match dropped {
            0 => {}
            // Beyond the last capability of this kernel.
            _ if last_errno() == Errno::INVAL => break,
            _ => return Err(last_errno()),
        }
    }
    if identity.secure_bits.is_some() {
        rustix::thread::clear_ambient_capability_set()?;
    }
    rustix::thread::set_thread_groups(&[identity.gid])?;
    rustix::thread::set_thread_res_gid(identity.gid, identity.gid, identity.gid)?;
    // Before the change of user, which would take the right to lock them. Where they say `NO_SETUID_FIXUP`, that change
    // leaves the sets alone; all of them are set just below.
    if let Some(bits) = identity.secure_bits {
        rustix::thread::set_capabilities_secure_bits(bits)?;
    }
    rustix::thread::set_thread_res_uid(identity.uid, identity.uid, identity.uid)?;
    let sets = CapabilitySets {
        effective: identity.capabilities,
        permitted: identity.capabilities,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Closes everything from 3 on, but for the report, which becomes 3 and is closed by the exec.
fn close_all_but_stdio_and(report: RawFd) -> Result<(), Errno> {
    const REPORT: RawFd = 3;
    if report != REPORT {
        // SAFETY: whatever 3 was, nothing in this process uses it any more.
        if unsafe { libc::dup3(report, REPORT, libc::O_CLOEXEC) } < 0 {
            return Err(last_errno());
        }
    }
    // SAFETY: the descriptors from 4 on belong to structures of the parent that this process never uses or drops.
    match unsafe { libc::syscall(libc::SYS_close_range, REPORT + 1, libc::c_int::MAX, 0) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Tries the programs in order, as `execvp` does: the first that is there counts.
fn exec(command: &Command<'_>) -> Errno {
    let mut failure = Errno::NOENT;
    for program in command.programs {
        // SAFETY: all three are live, null-terminated, and not changed by anyone.
        unsafe {
            libc::execve(program.as_ptr(), command.arguments.pointers.as_ptr(), command.environment.pointers.as_ptr())
        };
        match last_errno() {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => failure = Errno::ACCESS,
            other => return other,
        }
    }
    failure
}

/// Reports and ends the child. After `close_all_but_stdio_and` the report is descriptor 3, before it `report`.
fn fail(report: BorrowedFd<'_>, (step, errno): (Step, Errno)) -> ! {
    let [a, b, c, d] = errno.raw_os_error().to_ne_bytes();
    let message = [step as u8, a, b, c, d];
    let moved = matches!(step, Step::Filters | Step::Exec);
    let number = if moved { 3 } else { report.as_raw_fd() };
    // SAFETY: writes five live bytes to a descriptor number that holds the report or is closed.
    unsafe { libc::write(number, message.as_ptr().cast(), message.len()) };
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn fork_into(cgroup: BorrowedFd<'_>) -> Result<Option<Pid>, Errno> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let cgroup = u64::try_from(cgroup.as_raw_fd()).map_err(|_negative| Errno::BADF)?;
    let arguments = libc::clone_args {
        flags: CLONE_INTO_CGROUP,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD.unsigned_abs().into(),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup,
    };
    // SAFETY: without CLONE_VM this is a fork: the child has its own copy of all memory. The structure is live and
    // of the size given. The child only makes system calls until it executes a program or exits.
    let answer =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, std::mem::size_of::<libc::clone_args>()) };
    match i32::try_from(answer) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(last_errno()),
    }
}

fn fork() -> Result<Option<Pid>, Errno> {
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is a fork, as in `fork_into`.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match i32::try_from(answer) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(last_errno()),
    }
}

fn block_signals() -> libc::sigset_t {
    let mut all = empty_signals();
    // SAFETY: a live, initialised set.
    unsafe { libc::sigfillset(&raw mut all) };
    let mut before = empty_signals();
    // SAFETY: both sets are live; the kernel reads one and writes the other.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a live set; no old set is asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut()) };
}

fn empty_signals() -> libc::sigset_t {
    // SAFETY: a plain array of integers, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a live set.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}

/// Every signal does what it does by default, and none is blocked.
fn reset_signals() {
    // As the kernel has it: handler, flags, restorer, mask. All zero is the default action. Not by libc, which
    // refuses two of the numbers for its own use.
    let default = [0_usize; 4];
    for signal in 1..=64 {
        // SAFETY: reads a live structure of the right layout; no old action is asked for. Numbers that may not be
        // changed are refused, which is as good.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, 8_usize) };
    }
    restore_signals(&empty_signals());
}
