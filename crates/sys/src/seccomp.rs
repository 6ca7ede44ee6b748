//! Seccomp filters: compiled from constant tables, installed in order, for good.
//!
//! A filter has one answer for what its table matches and one for everything else. Several are stacked: of all
//! answers the kernel takes the strictest (kill, then errno, then allow), and of two errnos the one of the filter
//! that was installed last. Programs are compiled before a fork; [`install`] allocates nothing and may be called
//! after it.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::last_errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

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
#[derive(Debug, Clone)]
pub struct Program(BpfProgram);

/// A table does not compile.
#[derive(Debug, thiserror::Error)]
#[error("compile a seccomp table: {0}")]
pub struct CompileError(#[from] seccompiler::BackendError);

impl Program {
    /// Compiles a table. Calls of another architecture are killed; x32 calls too if `kill_x32`, else they get the
    /// answer for calls that the table does not hold.
    ///
    /// # Errors
    /// When two answers are the same, or a table is larger than a filter may be.
    pub fn compile(
        rows: impl IntoIterator<Item = Row>,
        matched: Answer,
        otherwise: Answer,
        kill_x32: bool,
    ) -> Result<Self, CompileError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for row in rows {
            let chain = rules.entry(row.number).or_default();
            for checks in row.when {
                let conditions = checks.iter().map(Check::condition).collect::<Result<_, _>>()?;
                chain.push(SeccompRule::new(conditions)?);
            }
        }
        let filter = SeccompFilter::new(rules, otherwise.action(), matched.action(), TargetArch::x86_64)?;
        let mut program: BpfProgram = filter.try_into()?;
        if kill_x32 {
            program.splice(0..0, x32_guard());
        }
        Ok(Self(program))
    }

    /// The instructions as (code, jump if true, jump if false, operand), for tests that interpret them.
    pub fn instructions(&self) -> impl Iterator<Item = (u16, u8, u8, u32)> {
        self.0.iter().map(|i| (i.code, i.jt, i.jf, i.k))
    }
}

impl Check {
    fn condition(&self) -> Result<SeccompCondition, seccompiler::BackendError> {
        let (argument, op, value) = match *self {
            Self::Is(argument, value) => (argument, SeccompCmpOp::Eq, value),
            Self::Not(argument, value) => (argument, SeccompCmpOp::Ne, value),
            Self::Masked(argument, mask, value) => (argument, SeccompCmpOp::MaskedEq(u64::from(mask)), value),
        };
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, u64::from(value))
    }
}

impl Answer {
    fn action(self) -> SeccompAction {
        match self {
            Self::Allow => SeccompAction::Allow,
            Self::Errno(errno) => SeccompAction::Errno(u32::from(errno)),
            Self::Kill => SeccompAction::KillProcess,
        }
    }
}

/// `if number >= X32_BIT { kill }`, to be put before a compiled table.
fn x32_guard() -> [sock_filter; 3] {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
    const RETURN: u16 = 0x06;
    [
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_GREATER_OR_EQUAL, jt: 0, jf: 1, k: X32_BIT },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_KILL_PROCESS },
    ]
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
        let header =
            libc::sock_fprog { len: length, filter: program.0.as_ptr().cast::<libc::sock_filter>().cast_mut() };
        // SAFETY: the header points at `length` live instructions laid out as the kernel's `sock_filter` (seccompiler
        // declares the same `repr(C)` struct); the kernel only reads them, and copies them before it returns.
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
