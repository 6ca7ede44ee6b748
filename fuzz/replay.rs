//! Replays a target's corpus and a bounded, seeded run of mutations of it: what `make test` does where `make fuzz` would
//! go on. Each crate that has targets includes this file in its tests.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test fails by panicking")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest input that mutation makes.
const MAX_INPUT: usize = 64 * 1024;
/// Longest time for one input, in a debug build on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Values that lengths, sizes and counts are wrong at.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Runs `target` over every file of `fuzz/corpus/NAME`, then over `rounds` mutations of them. The same corpus makes the
/// same inputs.
pub(crate) fn target(name: &str, rounds: u32, target: fn(&[u8])) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "fuzz/corpus/{name} is empty");
    for (file, input) in &corpus {
        run(&format!("{name}/{file}"), input, target);
    }
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let seed = |chance: &mut Chance| corpus[chance.below(corpus.len())].1.clone();
        let mut input = seed(&mut chance);
        for _ in 0..=chance.below(4) {
            mutate(&mut input, &seed(&mut chance), &mut chance);
        }
        input.truncate(MAX_INPUT);
        run(&format!("{name}, round {round}"), &input, target);
    }
}

/// Writes seeds that are bytes to the corpus where `UPDATE_SEEDS` is set; compares them with what is there where not.
#[allow(dead_code, reason = "not every crate that includes this file has such seeds")]
pub(crate) fn seeds(name: &str, seeds: &[(&str, Vec<u8>)]) {
    for (file, bytes) in seeds {
        let path = folder(name).join(file);
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            fs::create_dir_all(folder(name)).unwrap();
            fs::write(&path, bytes).unwrap();
        }
        let kept = fs::read(&path).unwrap_or_default();
        assert!(kept == *bytes, "fuzz/corpus/{name}/{file} is not what its test makes: run that with UPDATE_SEEDS=1");
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

/// The files of a target, by name.
pub(crate) fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap());
    let read = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    let mut corpus: Vec<_> = files.map(read).collect();
    corpus.sort();
    corpus
}

fn run(what: &str, input: &[u8], target: fn(&[u8])) {
    #[allow(clippy::disallowed_methods, reason = "a limit of the test, far from what is usual")]
    let begun = Instant::now();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        eprintln!("{what} fails with {} bytes: \"{}\"", input.len(), input.escape_ascii());
        resume_unwind(panic);
    }
    assert!(begun.elapsed() < MAX_TIME, "{what} takes {:?}: \"{}\"", begun.elapsed(), input.escape_ascii());
}

/// A xorshift generator.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Any number below `end`; 0 where there is none.
    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end.max(1)
    }
}

fn mutate(input: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    let most = 1 + chance.below(64);
    let length = chance.below(most).min(input.len() - at);
    match chance.below(8) {
        0 if at < input.len() => input[at] ^= 1 << chance.below(8),
        1 if at < input.len() => input[at] = chance.next() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..at + length)),
        4 => {
            let copy = input[at..at + length].to_vec();
            (0..=chance.below(8)).for_each(|_| drop(input.splice(at..at, copy.iter().copied())));
        }
        5 => {
            let from = chance.below(other.len() + 1);
            let to = from + chance.below(other.len() - from + 1);
            drop(input.splice(at..at + length, other[from..to].iter().copied()));
        }
        6 => {
            let value = EDGES[chance.below(EDGES.len())];
            let width = 1 << chance.below(4);
            let bytes =
                if chance.below(2) == 0 { value.to_le_bytes() } else { value.rotate_right(width * 8).to_be_bytes() };
            let end = (at + width as usize).min(input.len());
            drop(input.splice(at..end, bytes.into_iter().take(width as usize)));
        }
        _ => {
            let bytes: Vec<u8> = (0..=chance.below(8)).map(|_| chance.next() as u8).collect();
            drop(input.splice(at..at, bytes));
        }
    }
}
