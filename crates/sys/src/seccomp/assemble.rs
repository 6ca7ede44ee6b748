//! From a table to the instructions of a filter.
//!
//! The kernel runs a new filter once for every call number when it is installed, and every exec installs filters:
//! so the number is found by binary search, and neighbours with the same answer share one leaf. All jumps lead
//! forward.

use super::{Answer, Check, CompileError, Row, X32_BIT};

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
const ARCH_X86_64: u32 = 0xC000_003E;
/// Most instructions that the kernel takes.
const MOST: usize = 4096;

/// What happens from one number on, up to the next entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaf {
    Answer(Answer),
    /// Any of these lists.
    Checks(Vec<&'static [Check]>),
}

/// Assembles a program for a table; see [`super::Program::compile`].
pub(super) fn assemble(
    rows: impl IntoIterator<Item = Row>,
    matched: Answer,
    otherwise: Answer,
    kill_x32: bool,
) -> Result<Vec<libc::sock_filter>, CompileError> {
    if matched == otherwise {
        return Err(CompileError::SameAnswers);
    }
    let leaves = leaves(rows, matched, otherwise)?;
    let mut program = vec![
        plain(LOAD, ARCH_OFFSET),
        branch(IF_EQUAL, ARCH_X86_64, 1, 0),
        answer(Answer::Kill),
        plain(LOAD, NUMBER_OFFSET),
    ];
    if kill_x32 {
        program.extend([branch(IF_AT_LEAST, X32_BIT, 0, 1), answer(Answer::Kill)]);
    }
    program.extend(search(&leaves, matched, otherwise)?);
    if program.len() > MOST { Err(CompileError::TooLong(program.len())) } else { Ok(program) }
}

/// The table as a sorted list of borders; the first is 0.
fn leaves(
    rows: impl IntoIterator<Item = Row>,
    matched: Answer,
    otherwise: Answer,
) -> Result<Vec<(u32, Leaf)>, CompileError> {
    let mut table = std::collections::BTreeMap::<u32, Leaf>::new();
    for row in rows {
        let number = u32::try_from(row.number).ok().filter(|number| *number < X32_BIT);
        let number = number.ok_or(CompileError::Number(row.number))?;
        if row.when.iter().flat_map(|checks| checks.iter()).any(|check| check.parts().0 > 5) {
            return Err(CompileError::Number(row.number));
        }
        let leaf = table.entry(number).or_insert_with(|| Leaf::Checks(Vec::new()));
        match leaf {
            Leaf::Answer(_) => {}
            Leaf::Checks(_) if row.when.is_empty() => *leaf = Leaf::Answer(matched),
            Leaf::Checks(checks) => checks.extend(row.when),
        }
    }
    let mut borders = vec![(0, Leaf::Answer(otherwise))];
    let mut put = |number: u32, leaf: Leaf| match borders.last_mut() {
        Some((last, known)) if *last == number => *known = leaf,
        Some((_, known)) if *known == leaf => {}
        _ => borders.push((number, leaf)),
    };
    let mut free = 0;
    for (number, leaf) in table {
        if number > free {
            put(free, Leaf::Answer(otherwise));
        }
        put(number, leaf);
        free = number + 1;
    }
    put(free, Leaf::Answer(otherwise));
    Ok(borders)
}

fn search(leaves: &[(u32, Leaf)], matched: Answer, otherwise: Answer) -> Result<Vec<libc::sock_filter>, CompileError> {
    let (left, right) = leaves.split_at(leaves.len() / 2);
    let [(border, _), ..] = right else {
        return Ok(vec![answer(otherwise)]);
    };
    if left.is_empty() {
        return right.first().map_or_else(|| Ok(vec![answer(otherwise)]), |(_, leaf)| leaf.code(matched, otherwise));
    }
    let left = search(left, matched, otherwise)?;
    let mut code = match u8::try_from(left.len()) {
        Ok(length) => vec![branch(IF_AT_LEAST, *border, length, 0)],
        Err(_far) => {
            let length = u32::try_from(left.len()).map_err(|_far| CompileError::TooLong(left.len()))?;
            vec![branch(IF_AT_LEAST, *border, 0, 1), plain(JUMP, length)]
        }
    };
    code.extend(left);
    code.extend(search(right, matched, otherwise)?);
    Ok(code)
}

impl Leaf {
    fn code(&self, matched: Answer, otherwise: Answer) -> Result<Vec<libc::sock_filter>, CompileError> {
        let lists = match self {
            Self::Answer(known) => return Ok(vec![answer(*known)]),
            Self::Checks(lists) => lists,
        };
        let mut code = Vec::new();
        // The argument that is loaded whichever way this point was reached.
        let mut loaded = None;
        for checks in lists {
            let start = code.len();
            let mut failing = Vec::new();
            for check in checks.iter() {
                let (argument, mask, value, wanted) = check.parts();
                if loaded != Some(argument) || mask != u32::MAX {
                    code.push(plain(LOAD, ARGUMENTS_OFFSET + 8 * u32::from(argument)));
                }
                if mask == u32::MAX {
                    loaded = Some(argument);
                } else {
                    code.push(plain(AND, mask));
                    loaded = None;
                }
                failing.push((code.len(), wanted));
                code.push(branch(IF_EQUAL, value, 0, 0));
            }
            code.push(answer(matched));
            // The next list is reached from each check; only one of one leaves the same argument loaded.
            if checks.len() != 1 {
                loaded = None;
            }
            let end = code.len();
            for (at, wanted) in failing {
                let skip = u8::try_from(end - at - 1).map_err(|_far| CompileError::TooLong(end - start))?;
                if let Some(instruction) = code.get_mut(at) {
                    *(if wanted { &mut instruction.jf } else { &mut instruction.jt }) = skip;
                }
            }
        }
        code.push(answer(otherwise));
        Ok(code)
    }
}

impl Check {
    /// Argument, mask, value, and whether the value is wanted or not.
    fn parts(self) -> (u8, u32, u32, bool) {
        match self {
            Self::Is(argument, value) => (argument, u32::MAX, value, true),
            Self::Not(argument, value) => (argument, u32::MAX, value, false),
            Self::Masked(argument, mask, value) => (argument, mask, value, true),
        }
    }
}

fn plain(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn answer(answer: Answer) -> libc::sock_filter {
    plain(
        RETURN,
        match answer {
            Answer::Allow => libc::SECCOMP_RET_ALLOW,
            Answer::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
            Answer::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        },
    )
}
