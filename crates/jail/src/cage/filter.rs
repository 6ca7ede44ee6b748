//! Seccomp filters of what the jail itself starts in a cage.
//!
//! PID 1's filter is wider than that of user code: it may make processes, change their user and put further
//! filters on them. What it refuses is refused for every process of the cage. It answers by errno only, so that
//! the narrower filters of user code decide what kills.

pub(crate) mod sentry;
pub(crate) mod vmm;

use bailey_sys::seccomp::{Answer, Check, CompileError, Program, Row};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// `CLONE_NEW…` bits that `clone` takes; the time namespace's is part of the exit signal there.
const NAMESPACES: &[&[Check]] = &[
    &[Check::Masked(0, 0x0002_0000, 0x0002_0000)],
    &[Check::Masked(0, 0x0200_0000, 0x0200_0000)],
    &[Check::Masked(0, 0x0400_0000, 0x0400_0000)],
    &[Check::Masked(0, 0x0800_0000, 0x0800_0000)],
    &[Check::Masked(0, 0x1000_0000, 0x1000_0000)],
    &[Check::Masked(0, 0x2000_0000, 0x2000_0000)],
    &[Check::Masked(0, 0x4000_0000, 0x4000_0000)],
];

/// Refused with EPERM: they reach beyond the cage, or into parts of the kernel that no agent needs.
#[rustfmt::skip]
const REFUSED: [i64; 72] = [
    // Mounts and roots.
    155, 161, 165, 166, 167, 168, 428, 429, 430, 431, 432, 433, 442, 467,
    // Namespaces.
    272, 308,
    // Other processes' memory and descriptors.
    101, 310, 311, 312, 438, 440,
    // Programs in the kernel, tracing, page faults in user space.
    298, 321, 323,
    // Keyrings.
    248, 249, 250,
    // Files by handle, quota, accounting, file system notification for root.
    163, 179, 212, 300, 303, 304, 443,
    // Modules and other kernels.
    174, 175, 176, 177, 178, 246, 313, 320,
    // The machine: power, clocks, names, ports, its log.
    103, 153, 159, 164, 169, 170, 171, 172, 173, 227, 305,
    // Old or odd.
    134, 136, 139, 154, 156, 180, 181, 182, 183, 184, 185, 236,
    // Memory placement, secret memory, pages given away.
    237, 238, 256, 278, 279, 447,
];

/// Answered with ENOSYS, so that libraries fall back. `clone3` is not among them: the agent makes each exec in its
/// cgroup with it. Its flags are behind a pointer, but new namespaces take a capability that PID 1 does not have, or
/// a user namespace, of which the cage may have none; user code's own filter refuses the call.
const ABSENT: [i64; 3] = [425, 426, 427];

/// The filter of a cage's PID 1.
///
/// # Errors
/// When the table is too large: a bug.
pub(crate) fn for_init() -> Result<Vec<Program>, CompileError> {
    Ok(vec![
        Program::compile(absent(), Answer::Errno(ENOSYS), Answer::Allow, true)?,
        Program::compile(refused(), Answer::Errno(EPERM), Answer::Allow, true)?,
    ])
}

const fn row(number: i64) -> Row {
    Row { number, when: &[] }
}

fn absent() -> impl Iterator<Item = Row> {
    // Numbers between the two blocks of calls, and those after what this table was made for.
    ABSENT.into_iter().chain(335..424).chain(457..=466).chain(468..600).map(row)
}

fn refused() -> impl Iterator<Item = Row> {
    REFUSED.into_iter().map(row).chain([Row { number: 56, when: NAMESPACES }])
}

/// What a collector may do: read folders and files, write its pipe, manage its own memory.
#[rustfmt::skip]
const COLLECTOR: [i64; 66] = [
    // Files.
    0, 1, 3, 5, 8, 16, 17, 19, 20, 32, 72, 79, 89, 191, 192, 193, 194, 195, 196, 217, 257, 262, 267, 269, 292, 295, 332, 437, 439,
    21, 4, 6, 2, 138, 137,
    // Memory.
    9, 10, 11, 12, 25, 28,
    // Threads, signals, time.
    7, 13, 14, 15, 24, 34, 35, 39, 131, 186, 202, 204, 218, 228, 230, 231, 60, 234, 273, 271, 334,
    // Identity and start.
    102, 158, 302, 318,
];

/// The filter of a collector: nothing but [`COLLECTOR`], and the calls that start it.
///
/// # Errors
/// When the table is too large: a bug.
pub(crate) fn for_collector() -> Result<Vec<Program>, CompileError> {
    Ok(vec![Program::compile(collecting(), Answer::Allow, Answer::Errno(ENOSYS), true)?])
}

fn collecting() -> impl Iterator<Item = Row> {
    COLLECTOR.into_iter().chain([63, 104, 107, 108, 157, 317, 322]).map(row)
}

#[cfg(test)]
mod tests {
    use bailey_sys::seccomp::model::{Data, Stack};

    use super::*;

    #[test]
    fn k35_the_programs_answer_as_a_naive_reading_of_their_tables() {
        let (absent, refused): (Vec<Row>, Vec<Row>) = (absent().collect(), refused().collect());
        let init = |data: &Data| match data {
            data if data.is_foreign() => Answer::Kill,
            data if data.is_in(&refused) => Answer::Errno(EPERM),
            data if data.is_in(&absent) => Answer::Errno(ENOSYS),
            _ => Answer::Allow,
        };
        let all: Vec<Row> = absent.iter().chain(&refused).copied().collect();
        Stack::new(&for_init().unwrap()).compare(&all, init).unwrap();
        let rows: Vec<Row> = collecting().collect();
        let collector = |data: &Data| match data {
            data if data.is_foreign() => Answer::Kill,
            data if data.is_in(&rows) => Answer::Allow,
            _ => Answer::Errno(ENOSYS),
        };
        Stack::new(&for_collector().unwrap()).compare(&rows, collector).unwrap();
    }

    #[test]
    fn the_tables_compile_and_hold_no_number_twice() {
        for_init().unwrap();
        for_collector().unwrap();
        for table in [&REFUSED[..], &COLLECTOR[..]] {
            let distinct: std::collections::BTreeSet<_> = table.iter().collect();
            assert_eq!(distinct.len(), table.len());
        }
        // Every bit of every namespace but time is refused to `clone`, and nothing else is.
        let bits = NAMESPACES.iter().flat_map(|list| list.iter());
        let mask = bits.fold(0, |sum, check| match check {
            Check::Masked(0, mask, value) if mask == value => sum | mask,
            other => panic!("{other:?}"),
        });
        assert_eq!(mask, 0x7e02_0000);
    }
}
