//! Asking the kernel what it answers under filters, without making the calls.
//!
//! A child first installs a marker: a filter that answers every call with an errno that no call has. On top of it
//! come the programs in question. What they allow ends at the marker, of two errnos that of the later filter counts,
//! and a kill is a kill.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use super::{Answer, Program, Row, install};
use crate::last_errno;

/// Not an errno that any call returns.
const MARKER: u16 = 4001;
/// Written before each call; what stays if the call ends the child.
const UNFINISHED: u32 = u32::MAX;
/// Calls that the child itself needs, and that cannot be asked about.
pub const NEEDED: [i64; 3] = [libc::SYS_prctl, libc::SYS_seccomp, libc::SYS_exit_group];

/// One call: its number and arguments.
pub type Call = (i64, [u64; 6]);

/// The answers to the calls, in order.
///
/// # Errors
/// When one of the calls is among [`NEEDED`], or the child cannot do its work.
pub fn probe(programs: &[Program], calls: &[Call]) -> Result<Vec<Answer>, Errno> {
    if calls.iter().any(|(number, _)| NEEDED.contains(number)) {
        return Err(Errno::INVAL);
    }
    let needed = NEEDED.map(|number| Row { number, when: &[] });
    let marker =
        Program::compile(needed, Answer::Allow, Answer::Errno(MARKER), false).map_err(|_table| Errno::INVAL)?;
    let mut answers = Vec::with_capacity(calls.len());
    let shared = Shared::new()?;
    while let Some(rest) = calls.get(answers.len()..).filter(|rest| !rest.is_empty()) {
        let before = answers.len();
        let batch = rest.get(..shared.slots().len().min(rest.len())).unwrap_or_default();
        let killed = run(&marker, programs, batch, shared.slots())?;
        for slot in shared.slots().iter().take(batch.len()) {
            match slot.load(Ordering::Relaxed) {
                UNFINISHED => break,
                value => answers.push(if value == u32::from(MARKER) {
                    Answer::Allow
                } else {
                    Answer::Errno(u16::try_from(value).unwrap_or(u16::MAX))
                }),
            }
        }
        if killed {
            answers.push(Answer::Kill);
        }
        if answers.len() == before {
            return Err(Errno::CHILD);
        }
    }
    Ok(answers)
}

/// Makes the calls in a child; says whether one of them killed it.
fn run(marker: &Program, programs: &[Program], calls: &[Call], slots: &[AtomicU32]) -> Result<bool, Errno> {
    for slot in slots {
        slot.store(UNFINISHED, Ordering::Relaxed);
    }
    // SAFETY: the child makes system calls and stores to shared memory only, and ends by `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => {
            let ready = install(std::slice::from_ref(marker)).is_ok() && install(programs).is_ok();
            if ready {
                for ((number, [a, b, c, d, e, f]), slot) in calls.iter().zip(slots) {
                    // SAFETY: never executed: the marker or a stricter filter answers every call.
                    let answer = unsafe { libc::syscall(*number, *a, *b, *c, *d, *e, *f) };
                    let errno = if answer == -1 { last_errno().raw_os_error() } else { 0 };
                    slot.store(errno.unsigned_abs(), Ordering::Relaxed);
                }
            }
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!ready)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for our own child; `status` is a live out-pointer.
            if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
                return Err(last_errno());
            }
            match (libc::WIFSIGNALED(status), libc::WTERMSIG(status)) {
                (true, libc::SIGSYS) => Ok(true),
                (false, _) if libc::WEXITSTATUS(status) == 0 => Ok(false),
                _ => Err(Errno::CHILD),
            }
        }
    }
}

/// A page that parent and child share.
struct Shared(*mut AtomicU32);

impl Shared {
    const BYTES: usize = 4096;

    fn new() -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED { Err(last_errno()) } else { Ok(Self(page.cast())) }
    }

    fn slots(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is that large, aligned, zero at first, lives as long as `self`, and is only ever
        // accessed as atomics.
        unsafe { std::slice::from_raw_parts(self.0, Self::BYTES / std::mem::size_of::<AtomicU32>()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { libc::munmap(self.0.cast(), Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::Check::Is;

    #[test]
    fn the_kernel_answers_as_the_table_says() {
        let rows = [
            Row { number: libc::SYS_getpid, when: &[] },
            Row { number: libc::SYS_ioctl, when: &[&[Is(1, 7)]] },
            Row { number: libc::SYS_prctl, when: &[] },
            Row { number: libc::SYS_seccomp, when: &[] },
            Row { number: libc::SYS_exit_group, when: &[] },
        ];
        let allow = Program::compile(rows, Answer::Allow, Answer::Errno(38), true).unwrap();
        let kill =
            Program::compile([Row { number: libc::SYS_bpf, when: &[] }], Answer::Kill, Answer::Allow, true).unwrap();
        let high = 7 | 1 << 40;
        let calls = [
            (libc::SYS_getpid, [0; 6]),
            (libc::SYS_getppid, [0; 6]),
            (libc::SYS_bpf, [0; 6]),
            (libc::SYS_ioctl, [0, 7, 0, 0, 0, 0]),
            (libc::SYS_ioctl, [0, high, 0, 0, 0, 0]),
            (libc::SYS_ioctl, [0, 8, 0, 0, 0, 0]),
            (0x4000_0000 | libc::SYS_getpid, [0; 6]),
        ];
        let answers = probe(&[allow, kill], &calls).unwrap();
        let nosys = Answer::Errno(38);
        assert_eq!(answers, [Answer::Allow, nosys, Answer::Kill, Answer::Allow, Answer::Allow, nosys, Answer::Kill]);
    }
}
