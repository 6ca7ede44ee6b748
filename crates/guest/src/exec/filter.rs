//! The seccomp filters of every exec, compiled once from [`table`].

use bailey_sys::seccomp::{Answer, CompileError, Program};
use sha2::{Digest, Sha256};

pub mod table;

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// The compiled filters, in the order in which they are installed: of two errnos the one of the later filter counts.
///
/// # Errors
/// When the table does not compile.
pub fn compile() -> Result<Vec<Program>, CompileError> {
    let rows = |table: &'static [bailey_sys::seccomp::Row]| table.iter().copied();
    Ok(vec![
        Program::compile(rows(table::ALLOW), Answer::Allow, Answer::Errno(ENOSYS), true)?,
        Program::compile(rows(table::KILL), Answer::Kill, Answer::Allow, true)?,
        // Last: it refuses the installing of filters.
        Program::compile(rows(table::DENY), Answer::Errno(EPERM), Answer::Allow, true)?,
    ])
}

/// Names the filters among the fences: `seccomp:` and the first 8 hex digits of a hash over their instructions.
#[must_use]
pub fn fence(programs: &[Program]) -> String {
    let mut hash = Sha256::new();
    for program in programs {
        for (code, jump_true, jump_false, operand) in program.instructions() {
            hash.update(code.to_be_bytes());
            hash.update([jump_true, jump_false]);
            hash.update(operand.to_be_bytes());
        }
    }
    let digits: String = hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("seccomp:{digits}")
}
