//! What a kernel in user space may do: gVisor's `runsc` without privileges, with the `ptrace` platform.
//!
//! It puts up a sandbox of its own: processes in namespaces of their own, which mount, change their root and trace others.
//! So more is allowed than to a machine monitor, as measured by `strace` over a start, and the same is missing that is
//! missing everywhere: networks (no socket but local ones, so no netlink for who is root of a namespace either), the newer
//! mount calls, `unshare` and `setns`, and parts of the kernel that no sandbox needs. What runs inside makes no calls to
//! this kernel at all, and runsc narrows what its own parts may do once they are up.

use bailey_sys::seccomp::{Answer, Check, CompileError, Program, Row};

use super::vmm::{self, only};
use super::{ENOSYS, row};

/// Calls that are run whatever their arguments, beside those of a machine monitor.
#[rustfmt::skip]
const ALLOWED: [i64; 35] = [
    // Programs and processes: execve, wait4, waitid, kill, ptrace.
    59, 61, 247, 62, 101,
    // Mounts and roots, for which it takes a namespace of its own: mount, umount, pivot_root, chroot.
    165, 166, 155, 161,
    // Ids, capabilities and limits, of which there is but one, none and less outside of such a namespace.
    95, 105, 106, 110, 112, 116, 117, 118, 119, 120, 125, 126, 160,
    // Files of `/tmp` and of what it mounts: flock, chdir, mkdirat, copy_file_range. Its own root is read-only.
    73, 80, 258, 326,
    // Local sockets: connect, bind, listen.
    42, 49, 50,
    // What a longer life than a start takes: recvmmsg, sendmmsg, getcpu, setaffinity, preadv2, pwritev2.
    299, 307, 309, 203, 327, 328,
];

/// `clone` for a cgroup namespace.
const NEW_CGROUP: u32 = 0x0200_0000;

/// Calls of which a part is allowed.
const CHECKED: [Row; 4] = [
    // A process or a thread, in namespaces of its own but for that one; those of time are none of this call's.
    only(56, &[&[Check::Masked(0, NEW_CGROUP, 0)]]),
    // Local sockets.
    only(41, &[&[Check::Is(0, 1)]]),
    only(53, &[&[Check::Is(0, 1)]]),
    // prctl: the signal for a parent's death, capabilities, a reaper, names, no_new_privs, a tighter filter.
    only(
        157,
        &[
            &[Check::Is(0, 1)],
            &[Check::Is(0, 3)],
            &[Check::Is(0, 4)],
            &[Check::Is(0, 8)],
            &[Check::Is(0, 15)],
            &[Check::Is(0, 16)],
            &[Check::Is(0, 22)],
            &[Check::Is(0, 23)],
            &[Check::Is(0, 24)],
            &[Check::Is(0, 27)],
            &[Check::Is(0, 36)],
            &[Check::Is(0, 38)],
            &[Check::Is(0, 39)],
            &[Check::Is(0, 47)],
            &[Check::Is(0, 0x5356_4D41)],
        ],
    ),
];

fn rows() -> impl Iterator<Item = Row> {
    vmm::ALLOWED.into_iter().chain(ALLOWED).map(row).chain(CHECKED).chain(vmm::SHARED)
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
        let mut stack = Stack::new(&filters().unwrap());
        stack.compare(&rows, naive).unwrap();
        let distinct: std::collections::BTreeSet<i64> = rows.iter().map(|row| row.number).collect();
        assert_eq!(distinct.len(), rows.len(), "a number stands twice");
        // clone3, unshare, setns, newer mount calls, io_uring, bpf, perf, userfaultfd, keys, files by handle, devices.
        let refused = [435, 272, 308, 428, 429, 430, 431, 432, 433, 442, 425, 321, 298, 323, 248, 250, 304, 133, 259];
        for number in refused {
            assert_eq!(stack.answer(&Data::call(number, [0; 6])), Ok(Answer::Errno(ENOSYS)), "{number}");
        }
        for family in [2, 10, 16, 17, 38, 40] {
            assert_eq!(stack.answer(&Data::call(41, [family, 1, 0, 0, 0, 0])), Ok(Answer::Errno(ENOSYS)), "{family}");
        }
    }
}
