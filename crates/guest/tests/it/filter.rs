//! The user filters: against a naive reading of their table (K35), and against the kernel (K06, K08, K10, K11, K13).

use std::collections::HashSet;

use bailey_guest::exec::filter::{compile, fence, table};
use bailey_sys::seccomp::model::{Data, Stack};
use bailey_sys::seccomp::probe::{NEEDED, probe};
use bailey_sys::seccomp::{Answer, Program, Row};

const NOSYS: Answer = Answer::Errno(38);
const PERM: Answer = Answer::Errno(1);

/// `uretprobe` and `uprobe` are let past every filter by the kernel itself; without a probe they are a SIGILL.
const PAST: [i64; 2] = [335, 336];

fn naive(data: &Data) -> Answer {
    if data.is_foreign() || data.is_in(table::KILL) {
        Answer::Kill
    } else if data.is_in(table::DENY) {
        PERM
    } else if data.is_in(table::ALLOW) {
        Answer::Allow
    } else {
        NOSYS
    }
}

#[test]
fn k35_the_programs_answer_as_a_naive_reading_of_the_table() {
    let rows: Vec<Row> = table::ALLOW.iter().chain(table::DENY).chain(table::KILL).copied().collect();
    Stack::new(&compile().unwrap()).compare(&rows, naive).unwrap();
}

fn ask(programs: &[Program], calls: &[(i64, [u64; 6])]) -> Vec<Answer> {
    probe(programs, calls).unwrap()
}

#[test]
fn k06_golden_sweep_of_every_call_number() {
    let programs = compile().unwrap();
    let askable = |number: &i64| !NEEDED.contains(number) && !PAST.contains(number);
    let numbers: Vec<i64> = (0..600).filter(askable).collect();
    let calls: Vec<_> = numbers.iter().map(|number| (*number, [0; 6])).collect();
    let mut allowed = Vec::new();
    for (number, answer) in numbers.iter().zip(ask(&programs, &calls)) {
        let data = Data::call(u32::try_from(*number).unwrap(), [0; 6]);
        assert_eq!(answer, naive(&data), "call {number}");
        if answer == Answer::Allow {
            allowed.push(*number);
        }
    }
    // Some of them only with other arguments than zeros.
    let names: HashSet<i64> = table::ALLOW.iter().map(|row| row.number).collect();
    assert!(names.len() <= 200, "{} calls are allowed", names.len());
    // The numbers themselves, checked in: a change of the table is a change of this list.
    let golden: Vec<i64> = include_str!("allowed.txt").split_whitespace().map(|text| text.parse().unwrap()).collect();
    assert_eq!(allowed, golden);
    // What must be denied whatever else changes.
    let denied = [
        321, 298, 323, 248, 249, 250, 101, 310, 311, 312, 438, 440, 303, 304, 165, 166, 155, 161, 428, 429, 430, 431,
        432, 433, 442, 308, 272, 175, 176, 313, 246, 320, 169, 167, 168, 163, 179, 443, 103, 172, 173, 164, 227, 305,
        170, 300, 154, 237, 238, 256, 279, 447, 278, 425, 426, 427, 435,
    ];
    let calls = denied.map(|number| (number, [0; 6]));
    for ((number, _), answer) in calls.iter().zip(ask(&programs, &calls)) {
        assert_ne!(answer, Answer::Allow, "call {number}");
    }
    for number in 462..600 {
        assert!(!allowed.contains(&number), "call {number} is new");
    }
}

/// What code in a real cage is answered (the golden file of the hostile suite) is what a reading of the table says. The
/// kernel may itself refuse what the filters let through.
#[test]
fn k06_the_golden_file_of_the_cage_says_what_the_table_says() {
    let golden = include_str!("../../../bailey/tests/hostile/golden/numbers.txt");
    let mut compared = 0;
    let rows = golden.lines().filter_map(|line| line.split_once(" zero: "));
    for (number, answer) in rows.map(|(number, answer)| (number.parse::<u32>().unwrap(), answer)) {
        if PAST.contains(&number.into()) {
            continue;
        }
        let data = Data::call(number, [0; 6]);
        let said = match naive(&data) {
            Answer::Allow => continue,
            Answer::Kill => "SIGSYS",
            NOSYS => "ENOSYS",
            PERM => "EPERM",
            Answer::Errno(_) => unreachable!(),
        };
        assert_eq!(answer, said, "call {number}");
        compared += 1;
    }
    assert!(compared > 380, "{compared}");
}

#[test]
fn k08_x32_and_new_namespaces_and_odd_options_are_refused_by_the_kernel() {
    let programs = compile().unwrap();
    let mut rows: Vec<((i64, [u64; 6]), Answer)> = vec![
        ((0x4000_0000 | libc::SYS_socket, [1, 1, 0, 0, 0, 0]), Answer::Kill),
        ((libc::SYS_clone, [17, 0, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_clone3, [0; 6]), NOSYS),
        ((libc::SYS_unshare, [0x1000_0000, 0, 0, 0, 0, 0]), PERM),
        ((libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_prlimit64, [1, 7, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_prlimit64, [0, 4, 0x1_0000_0000, 0, 0, 0]), NOSYS),
        ((libc::SYS_prlimit64, [0, 0x1_0000_0004, 1, 0, 0, 0]), NOSYS),
        ((libc::SYS_setrlimit, [4, 1, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_setrlimit, [7, 1, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_mknodat, [0, 0, 0x2000, 0, 0, 0]), PERM),
        ((libc::SYS_mknodat, [0, 0, 0x1180, 0, 0, 0]), Answer::Allow),
        // TIOCSTI, with and without high bits; TIOCLINUX; TCGETS.
        ((libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]), PERM),
        ((libc::SYS_ioctl, [0, 0x1_0000_5412, 0, 0, 0, 0]), PERM),
        ((libc::SYS_ioctl, [0, 0x541C, 0, 0, 0, 0]), PERM),
        ((libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_ioctl, [0, 0x8933, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_sendto, [0, 0, 0, 1, 0, 0]), PERM),
        ((libc::SYS_sendto, [0, 0, 0, 0x4000, 0, 0]), Answer::Allow),
        ((libc::SYS_mmap, [0, 4096, 7, 0x22, 0, 0]), Answer::Allow),
        // Huge pages, however they are asked for.
        ((libc::SYS_mmap, [0, 4096, 7, 0x4_0022, 0, 0]), PERM),
        ((libc::SYS_mmap, [0, 4096, 7, 0x5404_0022, 0, 0]), PERM),
        ((libc::SYS_memfd_create, [0, 1, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_memfd_create, [0, 21 << 26 | 4, 0, 0, 0, 0]), PERM),
        ((libc::SYS_shmget, [0, 4096, 0o1600, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_shmget, [0, 4096, 0o5600, 0, 0, 0]), PERM),
    ];
    for flag in [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000_u64] {
        rows.push(((libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0]), PERM));
    }
    // K11: TCP_ULP, UDP_ENCAP, IPsec policies, multicast, packet filters, anything of AF_ALG.
    for (level, option) in [(6, 31), (17, 100), (0, 17), (41, 35), (0, 35), (41, 20), (1, 26), (1, 50), (279, 1)] {
        rows.push(((libc::SYS_setsockopt, [0, level, option, 0, 0, 0]), PERM));
    }
    rows.push(((libc::SYS_setsockopt, [0, 6, 1, 0, 0, 0]), Answer::Allow));
    // K13: no priority inheritance, with any flags.
    for op in [6_u64, 7, 8, 11, 12, 13] {
        for flags in [0, 128, 256, 384] {
            rows.push(((libc::SYS_futex, [0, op | flags, 0, 0, 0, 0]), NOSYS));
        }
    }
    for op in [0_u64, 1, 3, 4, 5, 9, 10] {
        rows.push(((libc::SYS_futex, [0, op | 128, 0, 0, 0, 0]), Answer::Allow));
    }
    let calls: Vec<_> = rows.iter().map(|(call, _)| *call).collect();
    for ((call, wanted), answer) in rows.iter().zip(ask(&programs, &calls)) {
        assert_eq!(answer, *wanted, "{call:x?}");
    }
}

#[test]
fn k10_socket_families() {
    let programs = compile().unwrap();
    let mut rows = Vec::new();
    for domain in 0..64_u64 {
        for kind in [1_u64, 2, 3, 5] {
            for flags in [0, 0x8_0800] {
                let unix = domain == 1 && kind != 3;
                let inet = [2, 10].contains(&domain) && [1, 2].contains(&kind);
                let answer = |yes: bool| if yes { Answer::Allow } else { NOSYS };
                rows.push(((libc::SYS_socket, [domain, kind | flags, 0, 0, 0, 0]), answer(unix || inet)));
                rows.push(((libc::SYS_socketpair, [domain, kind | flags, 0, 0, 0, 0]), answer(unix)));
            }
        }
    }
    // MPTCP, SCTP, L2TP, ICMP are protocols of the allowed types.
    for (kind, protocol) in [(1, 262), (1, 132), (2, 115), (2, 1), (2, 136)] {
        rows.push(((libc::SYS_socket, [2, kind, protocol, 0, 0, 0]), NOSYS));
    }
    let calls: Vec<_> = rows.iter().map(|(call, _)| *call).collect();
    for ((call, wanted), answer) in rows.iter().zip(ask(&programs, &calls)) {
        assert_eq!(answer, *wanted, "{call:x?}");
    }
}

/// The prober needs the two calls itself, so the filters are read and not asked.
#[test]
fn k30_filters_of_the_codes_own_are_refused() {
    let mut programs = Stack::new(&compile().unwrap());
    let mut answer =
        |call: i64, arguments| programs.answer(&Data::call(u32::try_from(call).unwrap(), arguments)).unwrap();
    for high in [0, 1 << 32] {
        assert_eq!(answer(libc::SYS_seccomp, [high | 1, 0, 0, 0, 0, 0]), PERM);
        assert_eq!(answer(libc::SYS_prctl, [22, high | 2, 0, 0, 0, 0]), PERM);
    }
    // Strict mode has no filter; asking what there is costs nothing.
    assert_eq!(answer(libc::SYS_seccomp, [0; 6]), Answer::Allow);
    assert_eq!(answer(libc::SYS_prctl, [22, 1, 0, 0, 0, 0]), Answer::Allow);
    assert_eq!(answer(libc::SYS_prctl, [21, 0, 0, 0, 0, 0]), Answer::Allow);
}

#[test]
fn the_fence_names_the_table_and_is_stable() {
    let programs = compile().unwrap();
    let name = fence(&programs);
    assert_eq!(name, fence(&compile().unwrap()));
    assert_ne!(name, fence(&programs[..2]));
}

#[test]
fn t06_no_page_that_tenants_share_is_evicted_and_no_table_of_the_hosts_is_filled() {
    let programs = compile().unwrap();
    let calls = [
        (libc::SYS_fadvise64, [3, 0, 0, 4, 0, 0]),
        (libc::SYS_fadvise64, [3, 0, 0, 4 | 1 << 32, 0, 0]),
        (libc::SYS_madvise, [0, 4096, 20, 0, 0, 0]),
        (libc::SYS_madvise, [0, 4096, 21, 0, 0, 0]),
        (libc::SYS_setsockopt, [3, 41, 32, 0, 0, 0]),
    ];
    assert_eq!(ask(&programs, &calls), [PERM; 5]);
    // What programs say of their own memory and of what they will read.
    let calls = [
        (libc::SYS_fadvise64, [3, 0, 0, 2, 0, 0]),
        (libc::SYS_fadvise64, [3, 0, 0, 3, 0, 0]),
        (libc::SYS_madvise, [0, 4096, 4, 0, 0, 0]),
        (libc::SYS_madvise, [0, 4096, 8, 0, 0, 0]),
    ];
    assert_eq!(ask(&programs, &calls), [Answer::Allow; 4]);
}
