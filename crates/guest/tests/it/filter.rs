//! The user filters: against a naive reading of their table (K35), and against the kernel (K06, K08, K10, K11, K13).

use std::collections::HashSet;

use bailey_guest::exec::filter::{compile, fence, table};
use bailey_sys::seccomp::probe::{NEEDED, probe};
use bailey_sys::seccomp::{Answer, Check, Program, Row};

const X86_64: u32 = 0xC000_003E;
const NOSYS: Answer = Answer::Errno(38);
const PERM: Answer = Answer::Errno(1);

/// What a filter sees of a call.
#[derive(Debug, Clone, Copy)]
struct Data {
    number: u32,
    arch: u32,
    arguments: [u64; 6],
}

impl Data {
    fn word(&self, offset: u32) -> u32 {
        let mut bytes = [0_u8; 64];
        bytes[0..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.arch.to_le_bytes());
        for (place, argument) in bytes[16..].chunks_exact_mut(8).zip(self.arguments) {
            place.copy_from_slice(&argument.to_le_bytes());
        }
        let at = usize::try_from(offset).unwrap();
        assert_eq!(at % 4, 0);
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }
}

/// Runs a filter as the kernel would; notes each instruction and each side of each branch.
fn interpret(code: &[(u16, u8, u8, u32)], data: &Data, seen: &mut HashSet<(usize, bool)>) -> u32 {
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let (op, jump_true, jump_false, k) = code[at];
        let mut took = true;
        let next = match op {
            0x20 => {
                accumulator = data.word(k);
                at + 1
            }
            0x54 => {
                accumulator &= k;
                at + 1
            }
            0x05 => at + 1 + usize::try_from(k).unwrap(),
            0x15 | 0x35 => {
                took = if op == 0x15 { accumulator == k } else { accumulator >= k };
                at + 1 + usize::from(if took { jump_true } else { jump_false })
            }
            0x06 => {
                seen.insert((at, true));
                return k;
            }
            other => panic!("instruction {other:#x}"),
        };
        seen.insert((at, took));
        at = next;
    }
}

fn naive(data: &Data) -> Answer {
    if data.arch != X86_64 || data.number >= 0x4000_0000 {
        return Answer::Kill;
    }
    let holds = |rows: &[Row]| {
        rows.iter().any(|row| {
            let low = |argument: u8| u32::try_from(data.arguments[usize::from(argument)] & 0xffff_ffff).unwrap();
            let check = |check: &Check| match *check {
                Check::Is(argument, value) => low(argument) == value,
                Check::Not(argument, value) => low(argument) != value,
                Check::Masked(argument, mask, value) => low(argument) & mask == value,
            };
            row.number == i64::from(data.number)
                && (row.when.is_empty() || row.when.iter().any(|checks| checks.iter().all(check)))
        })
    };
    if holds(table::KILL) {
        Answer::Kill
    } else if holds(table::DENY) {
        PERM
    } else if holds(table::ALLOW) {
        Answer::Allow
    } else {
        NOSYS
    }
}

/// The strictest answer of the stack; of two errnos the one of the later filter.
fn stacked(programs: &[Vec<(u16, u8, u8, u32)>], data: &Data, seen: &mut [HashSet<(usize, bool)>]) -> Answer {
    let mut strictest = 0x7fff_0000;
    for (program, seen) in programs.iter().zip(seen).rev() {
        let answer = interpret(program, data, seen);
        if (answer & 0xffff_0000).cast_signed() < (strictest & 0xffff_0000_u32).cast_signed() {
            strictest = answer;
        }
    }
    match strictest & 0xffff_0000 {
        0x7fff_0000 => Answer::Allow,
        0x0005_0000 => Answer::Errno(u16::try_from(strictest & 0xffff).unwrap()),
        0x8000_0000 => Answer::Kill,
        other => panic!("answer {other:#x}"),
    }
}

/// Every value that the table compares with, and its neighbours.
fn interesting() -> Vec<u64> {
    let mut values: HashSet<u64> = [0, 1, u64::from(u32::MAX), u64::MAX, 1 << 32].into();
    for row in table::ALLOW.iter().chain(table::DENY) {
        for check in row.when.iter().flat_map(|checks| checks.iter()) {
            let (mask, value) = match *check {
                Check::Is(_, value) | Check::Not(_, value) => (0, value),
                Check::Masked(_, mask, value) => (mask, value),
            };
            for value in [u64::from(value), u64::from(value | !mask), u64::from(mask)] {
                values.extend([value, value.wrapping_sub(1), value + 1, value | 1 << 40]);
            }
        }
    }
    let mut values: Vec<u64> = values.into_iter().collect();
    values.sort_unstable();
    values
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn k35_the_programs_answer_as_a_naive_reading_of_the_table() {
    let programs: Vec<Vec<_>> = compile().unwrap().iter().map(|program| program.instructions().collect()).collect();
    let mut seen = vec![HashSet::new(); programs.len()];
    let mut check = |data: Data| assert_eq!(stacked(&programs, &data, &mut seen), naive(&data), "{data:x?}");
    let values = interesting();
    let mut random = Random(0x1234_5678_9abc_def1);
    let pick = |random: &mut Random| values[usize::try_from(random.next() % values.len() as u64).unwrap()];
    for number in 0..700 {
        for arch in [X86_64, 0x4000_0003, 0] {
            check(Data { number, arch, arguments: [0; 6] });
        }
        check(Data { number: number | 0x4000_0000, arch: X86_64, arguments: [0; 6] });
        for _ in 0..400 {
            let arguments = std::array::from_fn(|_| pick(&mut random));
            check(Data { number, arch: X86_64, arguments });
        }
    }
    // Each list of checks exactly met, and missed by one argument at a time.
    for row in table::ALLOW.iter().chain(table::DENY).chain(table::KILL) {
        let number = u32::try_from(row.number).unwrap();
        for checks in row.when {
            let mut met = [0_u64; 6];
            for check in *checks {
                match *check {
                    Check::Is(argument, value) | Check::Masked(argument, _, value) => {
                        met[usize::from(argument)] = value.into();
                    }
                    Check::Not(argument, value) => met[usize::from(argument)] = u64::from(!value),
                }
            }
            check(Data { number, arch: X86_64, arguments: met });
            for only in *checks {
                let mut missed = met;
                match *only {
                    Check::Is(argument, value) | Check::Masked(argument, _, value) => {
                        missed[usize::from(argument)] = u64::from(!value);
                    }
                    Check::Not(argument, value) => missed[usize::from(argument)] = value.into(),
                }
                check(Data { number, arch: X86_64, arguments: missed });
            }
            for argument in 0..6 {
                for _ in 0..8 {
                    let mut missed = met;
                    missed[argument] = pick(&mut random);
                    check(Data { number, arch: X86_64, arguments: missed });
                }
            }
        }
    }
    for _ in 0..300_000 {
        let number = u32::try_from(random.next() & 0xffff_ffff).unwrap();
        let arguments = std::array::from_fn(|_| random.next());
        check(Data { number, arch: X86_64, arguments });
    }
    for (program, seen) in programs.iter().zip(&seen) {
        for (at, (op, ..)) in program.iter().enumerate() {
            assert!(seen.contains(&(at, true)), "instruction {at} never ran, or never jumped");
            assert!(!matches!(op, 0x15 | 0x35) || seen.contains(&(at, false)), "branch {at} always jumped");
        }
    }
}

fn ask(programs: &[Program], calls: &[(i64, [u64; 6])]) -> Vec<Answer> {
    probe(programs, calls).unwrap()
}

#[test]
fn k06_golden_sweep_of_every_call_number() {
    let programs = compile().unwrap();
    // `uretprobe` and `uprobe` are let past every filter by the kernel itself; without a probe they are a SIGILL.
    let past = [335, 336];
    let askable = |number: &i64| !NEEDED.contains(number) && !past.contains(number);
    let numbers: Vec<i64> = (0..600).filter(askable).collect();
    let calls: Vec<_> = numbers.iter().map(|number| (*number, [0; 6])).collect();
    let mut allowed = Vec::new();
    for (number, answer) in numbers.iter().zip(ask(&programs, &calls)) {
        let data = Data { number: u32::try_from(*number).unwrap(), arch: X86_64, arguments: [0; 6] };
        assert_eq!(answer, naive(&data), "call {number}");
        if answer == Answer::Allow {
            allowed.push(*number);
        }
    }
    assert!(allowed.len() <= 230, "{} calls are allowed", allowed.len());
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

#[test]
fn k08_x32_and_new_namespaces_and_odd_options_are_refused_by_the_kernel() {
    let programs = compile().unwrap();
    let mut rows: Vec<((i64, [u64; 6]), Answer)> = vec![
        ((0x4000_0000 | libc::SYS_socket, [1, 1, 0, 0, 0, 0]), Answer::Kill),
        ((libc::SYS_clone, [17, 0, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_clone3, [0; 6]), NOSYS),
        ((libc::SYS_unshare, [0x1000_0000, 0, 0, 0, 0, 0]), PERM),
        ((libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_personality, [0x4_0000, 0, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0]), Answer::Allow),
        ((libc::SYS_prlimit64, [1, 7, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_prlimit64, [0, 4, 0x1_0000_0000, 0, 0, 0]), NOSYS),
        ((libc::SYS_prlimit64, [0, 0x1_0000_0004, 1, 0, 0, 0]), NOSYS),
        ((libc::SYS_setrlimit, [4, 1, 0, 0, 0, 0]), NOSYS),
        ((libc::SYS_setrlimit, [7, 1, 0, 0, 0, 0]), Answer::Allow),
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
    let programs: Vec<Vec<_>> = compile().unwrap().iter().map(|program| program.instructions().collect()).collect();
    let answer = |call: i64, arguments: [u64; 6]| {
        let data = Data { number: u32::try_from(call).unwrap(), arch: X86_64, arguments };
        stacked(&programs, &data, &mut vec![HashSet::new(); programs.len()])
    };
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
