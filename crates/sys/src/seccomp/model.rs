//! Programs run as the kernel would run them, beside a naive reading of their tables (K35).

use std::collections::HashSet;

use super::{Answer, Check, Program, Row, X32_BIT};

const X86_64: u32 = 0xC000_003E;

/// What a filter sees of a call.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// Number of the call.
    pub number: u32,
    /// Its architecture, as audit numbers them.
    pub arch: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Data {
    /// A call of this architecture.
    #[must_use]
    pub fn call(number: u32, arguments: [u64; 6]) -> Self {
        Self { number, arch: X86_64, arguments }
    }

    /// Whether every program kills the call, whatever its table says.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.arch != X86_64 || self.number >= X32_BIT
    }

    /// Whether a table holds the call.
    #[must_use]
    pub fn is_in(&self, rows: &[Row]) -> bool {
        let holds = |check: &Check| match *check {
            Check::Is(argument, value) => self.low(argument) == value,
            Check::Not(argument, value) => self.low(argument) != value,
            Check::Masked(argument, mask, value) => self.low(argument) & mask == value,
        };
        let mut same = rows.iter().filter(|row| row.number == i64::from(self.number));
        same.any(|row| row.when.is_empty() || row.when.iter().any(|checks| checks.iter().all(holds)))
    }

    /// The low half of an argument.
    fn low(&self, argument: u8) -> u32 {
        self.arguments.get(usize::from(argument)).map_or(0, |value| halves(*value).0)
    }

    /// A word of `struct seccomp_data`.
    fn word(&self, offset: u32) -> Option<u32> {
        match offset {
            0 => Some(self.number),
            4 => Some(self.arch),
            // The address of the instruction, which no program looks at.
            8 | 12 => Some(0),
            _ => {
                let (low, high) = halves(*self.arguments.get(usize::try_from(offset.checked_sub(16)? / 8).ok()?)?);
                match offset % 8 {
                    0 => Some(low),
                    4 => Some(high),
                    _ => None,
                }
            }
        }
    }
}

/// The low and the high half.
fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// Programs under test, and which sides of their branches ran.
#[derive(Debug)]
pub struct Stack {
    programs: Vec<Vec<(u16, u8, u8, u32)>>,
    seen: Vec<HashSet<(usize, bool)>>,
}

impl Stack {
    /// The programs, in the order in which they are installed.
    #[must_use]
    pub fn new(programs: &[Program]) -> Self {
        let programs: Vec<Vec<_>> = programs.iter().map(|program| program.instructions().collect()).collect();
        Self { seen: vec![HashSet::new(); programs.len()], programs }
    }

    /// The strictest answer; of two errnos the one of the program installed last.
    ///
    /// # Errors
    /// When a program does something that no filter may.
    pub fn answer(&mut self, data: &Data) -> Result<Answer, String> {
        let mut strictest = Answer::Allow;
        for (program, seen) in self.programs.iter().zip(&mut self.seen) {
            strictest = match (strictest, run(program, data, seen)?) {
                (Answer::Kill, _) | (_, Answer::Kill) => Answer::Kill,
                (before, Answer::Allow) => before,
                (_, errno) => errno,
            };
        }
        Ok(strictest)
    }

    /// Compares the programs with a naive reading of their tables: every call number with the values that the tables
    /// compare with and their neighbours, each list of checks met and missed by one, and calls at random; and makes
    /// sure that this ran every instruction and both sides of every branch.
    ///
    /// # Errors
    /// Names the first difference, or what never ran.
    pub fn compare(&mut self, rows: &[Row], naive: impl Fn(&Data) -> Answer) -> Result<(), String> {
        let mut check = |data: Data| match self.answer(&data)? {
            answer if answer == naive(&data) => Ok(()),
            answer => Err(format!("{data:x?}: the programs say {answer:?}, the tables {:?}", naive(&data))),
        };
        let values = interesting(rows);
        let mut random = Random(0x1234_5678_9abc_def1);
        for number in 0..700 {
            for arch in [X86_64, 0x4000_0003, 0] {
                check(Data { number, arch, arguments: [0; 6] })?;
            }
            check(Data::call(number | X32_BIT, [0; 6]))?;
            for _ in 0..400 {
                check(Data::call(number, std::array::from_fn(|_| random.of(&values))))?;
            }
        }
        for row in rows {
            let number = u32::try_from(row.number).map_err(|error| error.to_string())?;
            for checks in row.when {
                let met = checks.iter().fold([0; 6], |arguments, check| with(arguments, check, true));
                check(Data::call(number, met))?;
                for only in *checks {
                    check(Data::call(number, with(met, only, false)))?;
                }
                for turn in 0..48 {
                    let mut missed = met;
                    if let Some(argument) = missed.get_mut(turn % 6) {
                        *argument = random.of(&values);
                    }
                    check(Data::call(number, missed))?;
                }
            }
        }
        for _ in 0..300_000 {
            let number = halves(random.next()).0;
            check(Data::call(number, std::array::from_fn(|_| random.next())))?;
        }
        self.everything_ran()
    }

    fn everything_ran(&self) -> Result<(), String> {
        for (program, seen) in self.programs.iter().zip(&self.seen) {
            for (at, (op, ..)) in program.iter().enumerate() {
                if !seen.contains(&(at, true)) {
                    return Err(format!("instruction {at} never ran, or never jumped"));
                }
                if matches!(op, 0x15 | 0x35) && !seen.contains(&(at, false)) {
                    return Err(format!("branch {at} always jumped"));
                }
            }
        }
        Ok(())
    }
}

/// Runs one program; notes each instruction and each side of each branch.
fn run(program: &[(u16, u8, u8, u32)], data: &Data, seen: &mut HashSet<(usize, bool)>) -> Result<Answer, String> {
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let (op, jump_true, jump_false, k) = *program.get(at).ok_or("it runs past its end")?;
        let mut took = true;
        let mut skip = 0;
        match op {
            0x20 => accumulator = data.word(k).ok_or_else(|| format!("it reads at {k}"))?,
            0x54 => accumulator &= k,
            0x05 => skip = usize::try_from(k).map_err(|error| error.to_string())?,
            0x15 | 0x35 => {
                took = if op == 0x15 { accumulator == k } else { accumulator >= k };
                skip = usize::from(if took { jump_true } else { jump_false });
            }
            0x06 => {
                seen.insert((at, true));
                return match (k >> 16, u16::try_from(k & 0xffff)) {
                    (0x7fff, _) => Ok(Answer::Allow),
                    (0x0005, Ok(errno)) => Ok(Answer::Errno(errno)),
                    (0x8000, _) => Ok(Answer::Kill),
                    _ => Err(format!("it answers {k:#x}")),
                };
            }
            other => return Err(format!("instruction {other:#x}")),
        }
        seen.insert((at, took));
        at += 1 + skip;
    }
}

/// The arguments with one check met, or missed.
fn with(mut arguments: [u64; 6], check: &Check, met: bool) -> [u64; 6] {
    let (argument, value, as_is) = match *check {
        Check::Is(argument, value) | Check::Masked(argument, _, value) => (argument, value, met),
        Check::Not(argument, value) => (argument, value, !met),
    };
    if let Some(place) = arguments.get_mut(usize::from(argument)) {
        *place = if as_is { value } else { !value }.into();
    }
    arguments
}

/// Every value that the tables compare with, and its neighbours.
fn interesting(rows: &[Row]) -> Vec<u64> {
    let mut values: HashSet<u64> = [0, 1, u64::from(u32::MAX), u64::MAX, 1 << 32].into();
    for check in rows.iter().flat_map(|row| row.when.iter()).flat_map(|checks| checks.iter()) {
        let (mask, value) = match *check {
            Check::Is(_, value) | Check::Not(_, value) => (0, value),
            Check::Masked(_, mask, value) => (mask, value),
        };
        for value in [u64::from(value), u64::from(value | !mask), u64::from(mask)] {
            values.extend([value, value.wrapping_sub(1), value + 1, value | 1 << 40]);
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

    fn of(&mut self, values: &[u64]) -> u64 {
        let at = self.next() % values.len().max(1) as u64;
        usize::try_from(at).ok().and_then(|at| values.get(at)).copied().unwrap_or_default()
    }
}
