//! Seccomp filters: compiled from constant tables, installed in order, for good.
//!
//! A filter has one answer for what its table matches and one for everything else. Several are stacked: of all
//! answers the kernel takes the strictest (kill, then errno, then allow), and of two errnos the one of the filter
//! that was installed last. Programs are compiled before a fork; [`install`] allocates nothing and may be called
//! after it.

use rustix::io::Errno;

use crate::last_errno;

mod assemble;
pub mod model;
pub mod probe;

/// First system call number of the x32 interface; numbers from here on belong to it.
pub const X32_BIT: u32 = 0x4000_0000;

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Let it through.
    Allow,
    /// Do not run it and return this errno.
    Errno(u16),
    /// Kill the whole process.
    Kill,
}

/// How one argument is compared. Only its low 32 bits count: the kernel's own code ignores the others there, and
/// a filter that looks at them can be passed by setting one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Check {
    /// Argument number, value.
    Is(u8, u32),
    /// Argument number, value.
    Not(u8, u32),
    /// Argument number, mask, value: the bits under the mask are these.
    Masked(u8, u32, u32),
}

/// One call in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// The call's number.
    pub number: i64,
    /// Matches if all checks of any one of these lists hold; an empty table matches always.
    pub when: &'static [&'static [Check]],
}

/// A compiled filter.
#[derive(Clone)]
pub struct Program(Vec<libc::sock_filter>);

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program of {} instructions", self.0.len())
    }
}

/// A table does not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// What is matched and what is not would get the same answer.
    #[error("compile a seccomp table: both answers are the same")]
    SameAnswers,
    /// Not a call of this architecture, or a check of an argument that no call has.
    #[error("compile a seccomp table: the row of call {0} cannot be")]
    Number(i64),
    /// More instructions than the kernel takes, or than a jump reaches.
    #[error("compile a seccomp table: {0} instructions are too many")]
    TooLong(usize),
}

impl Program {
    /// Compiles a table. Calls of another architecture are killed; x32 calls too if `kill_x32`, else they get the
    /// answer for calls that the table does not hold.
    ///
    /// # Errors
    /// When the answers are the same, a row makes no sense, or the table is larger than a filter may be.
    pub fn compile(
        rows: impl IntoIterator<Item = Row>,
        matched: Answer,
        otherwise: Answer,
        kill_x32: bool,
    ) -> Result<Self, CompileError> {
        assemble::assemble(rows, matched, otherwise, kill_x32).map(Self)
    }

    /// The instructions as (code, jump if true, jump if false, operand), for tests that interpret them.
    pub fn instructions(&self) -> impl Iterator<Item = (u16, u8, u8, u32)> {
        self.0.iter().map(|i| (i.code, i.jt, i.jf, i.k))
    }
}

/// Sets `no_new_privs` and installs the programs, first one first, for every thread of the process. Makes system
/// calls only, so it may be called between fork and exec. Every program must allow what installing the next one
/// takes: `prctl` and `seccomp`.
///
/// # Errors
/// When the kernel refuses a program, or a thread cannot be synchronised. Earlier programs then stay in force.
pub fn install(programs: &[Program]) -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    for program in programs {
        let length = u16::try_from(program.0.len()).unwrap_or(u16::MAX);
        let header = libc::sock_fprog { len: length, filter: program.0.as_ptr().cast_mut() };
        // SAFETY: the header points at `length` live instructions; the kernel only reads them, and copies them
        // before it returns.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const header,
            )
        };
        match answer {
            0 => {}
            // A thread that has filters of its own: its id comes back.
            1.. => return Err(Errno::SRCH),
            _ => return Err(last_errno()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_answers_do_not_compile() {
        assert!(Program::compile([], Answer::Allow, Answer::Allow, true).is_err());
    }

    #[test]
    fn a_filter_answers_for_the_calls_of_its_table() {
        let row = Row { number: libc::SYS_sysinfo, when: &[] };
        let deny = Program::compile([row], Answer::Errno(77), Answer::Allow, true).unwrap();
        // Own process: filters are for good.
        match fork() {
            0 => {
                let installed = install(&[deny]).is_ok();
                // SAFETY: a null pointer is never reached: the filter answers first.
                let answer = unsafe { libc::syscall(libc::SYS_sysinfo, 0) };
                let denied = answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(77);
                // SAFETY: ends the forked child without running the test harness's exit handlers.
                unsafe { libc::_exit(i32::from(!(installed && denied))) }
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for our own child; `status` is a live out-pointer.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(waited, child);
                assert_eq!(status, 0);
            }
        }
    }

    fn fork() -> i32 {
        // SAFETY: the child only makes system calls and ends by `_exit`.
        unsafe { libc::fork() }
    }
}
