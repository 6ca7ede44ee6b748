//! What a virtual machine monitor may do: QEMU with either accelerator, and nothing that its machine does not take.
//!
//! One allow-list, else ENOSYS. No new process, no socket beside those that it was handed and what connects to them, no
//! mount, no namespace, no look at others. Measured by running Debian's QEMU (see the tests).

use bailey_sys::seccomp::{Answer, Check, CompileError, Program, Row};

use super::ENOSYS;
use crate::cage::program::EXEC_FD;

/// Calls that are run whatever their arguments.
#[rustfmt::skip]
pub(super) const ALLOWED: [i64; 106] = [
    // Files: read, write, open, stat, seek, sync, cut; links and names are of `/tmp`.
    0, 1, 2, 3, 4, 5, 6, 8, 17, 18, 19, 20, 21, 74, 75, 77, 79, 87, 89, 137, 138, 217, 221, 257, 262, 263, 267, 269,
    285, 295, 296, 332,
    // Descriptors, and waiting on them: poll, dup, select, epoll, eventfd, signalfd, timerfd, pipe.
    7, 32, 270, 271, 232, 233, 281, 283, 286, 287, 289, 290, 291, 292, 293,
    // Sockets that are there: accept4, sendto, recvfrom, sendmsg, recvmsg, shutdown, names, getsockopt.
    288, 44, 45, 46, 47, 48, 51, 52, 55,
    // Memory.
    9, 10, 11, 12, 25, 26, 27, 28, 319, 324,
    // Signals and timers.
    13, 14, 15, 127, 128, 130, 131, 222, 223, 224, 225, 226, 35, 219, 228, 229, 230, 96,
    // Threads and their end: futex, scheduling, robust lists, names of itself.
    24, 60, 231, 186, 202, 204, 218, 234, 273, 334,
    // Itself and its machine: ids, usage, memory, chance.
    39, 63, 97, 98, 99, 100, 102, 104, 107, 108, 158, 318,
];

/// The fork of a thread: it shares everything, and no namespace is made.
const THREAD: u32 = 0x0001_0000;
const NAMESPACES: u32 = 0x7E02_0000;
/// Has a listener decide about calls.
const NEW_LISTENER: u32 = 8;
/// The descriptor itself is meant, and no path.
const EMPTY_PATH: u32 = 0x1000;

pub(super) const fn only(number: i64, when: &'static [&'static [Check]]) -> Row {
    Row { number, when }
}

/// Calls of which a part is allowed.
const CHECKED: [Row; 2] = [
    only(56, &[&[Check::Masked(0, NAMESPACES | THREAD, THREAD)]]),
    // prctl: the thread's name, no_new_privs, a tighter filter, names of memory, what may be asked. Not the signal by which
    // it dies with the jail.
    only(
        157,
        &[
            &[Check::Is(0, 15)],
            &[Check::Is(0, 16)],
            &[Check::Is(0, 3)],
            &[Check::Is(0, 22)],
            &[Check::Is(0, 23)],
            &[Check::Is(0, 38)],
            &[Check::Is(0, 39)],
            &[Check::Is(0, 0x5356_4D41)],
        ],
    ),
];

/// Those of which the same part is allowed to a kernel in user space.
pub(super) const SHARED: [Row; 5] = [
    // ioctl: FIONBIO, FIONREAD, FIOCLEX, whether it is a terminal, and KVM, which takes a device that only some have.
    only(
        16,
        &[
            &[Check::Is(1, 0x5421)],
            &[Check::Is(1, 0x541B)],
            &[Check::Is(1, 0x5451)],
            &[Check::Is(1, 0x5401)],
            &[Check::Masked(1, 0xFF00, 0xAE00)],
        ],
    ),
    // fcntl: copies, flags, locks of an open file, seals. No owner or signal of a descriptor, no lease, no watch.
    only(
        72,
        &[
            &[Check::Masked(1, !7, 0)],
            &[Check::Masked(1, !3, 36)],
            &[Check::Is(1, 1030)],
            &[Check::Masked(1, !1, 1032)],
            &[Check::Is(1, 1034)],
        ],
    ),
    // Its own limits.
    only(302, &[&[Check::Is(0, 0)]]),
    // A tighter filter, and how libraries find out that there is such a thing (mode 0 is refused to who has a filter).
    only(317, &[&[Check::Is(0, 1), Check::Masked(1, NEW_LISTENER, 0)], &[Check::Is(0, 0)], &[Check::Is(0, 2)]]),
    // Its own start: see `EXEC_FD`.
    only(322, &[&[Check::Is(0, EXEC_FD.unsigned_abs()), Check::Is(4, EMPTY_PATH)]]),
];

fn rows() -> impl Iterator<Item = Row> {
    ALLOWED.into_iter().map(super::row).chain(CHECKED).chain(SHARED)
}

/// The filter.
///
/// # Errors
/// When the table is too large: a bug.
pub(crate) fn filters() -> Result<Vec<Program>, CompileError> {
    Ok(vec![Program::compile(rows(), Answer::Allow, Answer::Errno(ENOSYS), true)?])
}

#[cfg(test)]
mod tests {
    use bailey_sys::seccomp::model::{Data, Stack};

    use super::*;

    #[test]
    fn k35_the_program_answers_as_a_naive_reading_of_its_table() {
        let rows: Vec<Row> = rows().collect();
        let naive = |data: &Data| match data {
            data if data.is_foreign() => Answer::Kill,
            data if data.is_in(&rows) => Answer::Allow,
            _ => Answer::Errno(ENOSYS),
        };
        Stack::new(&filters().unwrap()).compare(&rows, naive).unwrap();
        let distinct: std::collections::BTreeSet<i64> = rows.iter().map(|row| row.number).collect();
        assert_eq!(distinct.len(), rows.len(), "a number stands twice");
    }

    #[test]
    fn k06_what_leads_out_of_a_process_is_not_in_the_table() {
        let mut stack = Stack::new(&filters().unwrap());
        let mut answer = |number: u32, arguments: [u64; 6]| stack.answer(&Data::call(number, arguments)).unwrap();
        // fork, vfork, execve, clone3; socket, socketpair, connect, bind, listen; ptrace, process_vm, pidfd, kcmp; mounts,
        // roots, namespaces; bpf, perf, io_uring, userfaultfd, keys; kill, processes' priorities, files by handle.
        for number in [
            57, 58, 59, 435, 41, 53, 42, 49, 50, 101, 310, 311, 434, 438, 424, 312, 155, 161, 165, 166, 272, 308, 428,
            429, 430, 431, 432, 433, 442, 298, 321, 323, 425, 426, 427, 248, 249, 250, 62, 129, 141, 144, 303, 304,
            447, 444, 105, 106, 117, 119, 126, 160, 133, 259,
        ] {
            assert_eq!(answer(number, [0; 6]), Answer::Errno(ENOSYS), "{number}");
        }
        assert_eq!(answer(56, [0x003d_0f00, 0, 0, 0, 0, 0]), Answer::Allow, "a thread");
        assert_eq!(answer(56, [17, 0, 0, 0, 0, 0]), Answer::Errno(ENOSYS), "a process");
        assert_eq!(answer(56, [0x1001_0000, 0, 0, 0, 0, 0]), Answer::Errno(ENOSYS), "a namespace");
        assert_eq!(answer(322, [2048, 0, 0, 0, 0x1000, 0]), Answer::Allow);
        assert_eq!(answer(322, [5, 0, 0, 0, 0x1000, 0]), Answer::Errno(ENOSYS));
        assert_eq!(answer(322, [2048, 0, 0, 0, 0, 0]), Answer::Errno(ENOSYS));
        for command in [8, 9, 10, 15, 1024, 1025, 1026, 1031] {
            assert_eq!(answer(72, [3, command, 0, 0, 0, 0]), Answer::Errno(ENOSYS), "fcntl {command}");
        }
    }
}
