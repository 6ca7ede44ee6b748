//! Which lines differ: Myers' greedy algorithm with a bound on its work, since both texts may be hostile.

use std::collections::HashMap;
use std::ops::Range;

/// Most lines that may differ before the whole middle counts as replaced. Work is at most this times the lines, memory
/// its square.
const MAX_DIFFERENCES: usize = 1000;

/// What all comparisons of one answer may cost together, in steps of a few nanoseconds. Once it is spent, the middle of
/// every text counts as replaced.
#[derive(Debug)]
pub(crate) struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(200_000_000)
    }
}

impl Budget {
    fn spend(&mut self, steps: u64) {
        self.0 = self.0.saturating_sub(steps);
    }

    pub(crate) fn spent(&self) -> bool {
        self.0 == 0
    }
}

/// Lines removed from the old text and lines of the new text in their place.
pub(crate) type Hunk = (Range<usize>, Range<usize>);

/// The hunks between two texts, in order; no two of them touch.
pub(super) fn hunks(old: &[&str], new: &[&str], budget: &mut Budget) -> Vec<Hunk> {
    let mut numbers = HashMap::new();
    let mut number = |lines: &[&str]| -> Vec<usize> {
        let intern = |line: &&str| {
            let next = numbers.len();
            *numbers.entry((*line).to_owned()).or_insert(next)
        };
        lines.iter().map(intern).collect()
    };
    let (old, new) = (number(old), number(new));
    budget.spend(4 * (old.len() + new.len()) as u64);
    let same = |pair: &(&usize, &usize)| pair.0 == pair.1;
    let lead = old.iter().zip(&new).take_while(same).count();
    let (old_rest, new_rest) = (old.get(lead..).unwrap_or_default(), new.get(lead..).unwrap_or_default());
    let trail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(same).count();
    let old_mid = old_rest.get(..old_rest.len() - trail).unwrap_or_default();
    let new_mid = new_rest.get(..new_rest.len() - trail).unwrap_or_default();
    let edits = match search(old_mid, new_mid, budget) {
        Some(rounds) => backtrack(&rounds, old_mid.len(), new_mid.len()),
        None => vec![(0..old_mid.len(), 0..new_mid.len())],
    };
    join(edits, lead)
}

/// How far each diagonal got, after each number of differences. Diagonals of round `d` are `-d..=d`, by index `k + d`.
type Rounds = Vec<Vec<usize>>;

fn reach(rounds: &Rounds, round: Option<usize>, diagonal: isize) -> Option<usize> {
    let round = round?;
    let at = diagonal.checked_add_unsigned(round)?;
    rounds.get(round)?.get(usize::try_from(at).ok()?).copied()
}

/// Where diagonal `k` starts in round `d`, and whether it comes from the diagonal above (a line was added).
fn start(rounds: &Rounds, d: usize, k: isize) -> (usize, bool) {
    let (left, above) = (reach(rounds, d.checked_sub(1), k - 1), reach(rounds, d.checked_sub(1), k + 1));
    match (left, above) {
        (None, None) => (0, true),
        (Some(left), Some(above)) if left < above => (above, true),
        (Some(left), _) => (left + 1, false),
        (None, Some(above)) => (above, true),
    }
}

fn search(old: &[usize], new: &[usize], budget: &mut Budget) -> Option<Rounds> {
    let goal = isize::try_from(old.len()).ok()? - isize::try_from(new.len()).ok()?;
    let mut rounds: Rounds = Vec::new();
    for d in 0..=MAX_DIFFERENCES {
        let edge = isize::try_from(d).ok()?;
        let mut reached = vec![0; 2 * d + 1];
        for (cell, k) in reached.iter_mut().step_by(2).zip((-edge..=edge).step_by(2)) {
            let (x, _) = start(&rounds, d, k);
            let y = x.checked_add_signed(-k)?;
            let (old, new) = (old.get(x..).unwrap_or_default(), new.get(y..).unwrap_or_default());
            let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
            budget.spend(same as u64 + 1);
            *cell = x + same;
        }
        if budget.spent() {
            return None;
        }
        rounds.push(reached);
        if reach(&rounds, Some(d), goal).filter(|_| goal.unsigned_abs() <= d && (d - goal.unsigned_abs()) % 2 == 0)
            >= Some(old.len())
        {
            return Some(rounds);
        }
    }
    None
}

/// The single-line edits on the way found, first one first.
fn backtrack(rounds: &Rounds, old: usize, new: usize) -> Vec<Hunk> {
    let mut edits = Vec::new();
    let mut k = old.cast_signed() - new.cast_signed();
    for d in (1..rounds.len()).rev() {
        let (x, added) = start(rounds, d, k);
        let y = x.saturating_add_signed(-k);
        if added {
            edits.push((x..x, y.saturating_sub(1)..y));
            k += 1;
        } else {
            edits.push((x.saturating_sub(1)..x, y..y));
            k -= 1;
        }
    }
    edits.reverse();
    edits
}

/// Edits that touch become one hunk; all move down by the lines before.
fn join(edits: Vec<Hunk>, lead: usize) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for (old, new) in edits {
        let (old, new) = (old.start + lead..old.end + lead, new.start + lead..new.end + lead);
        match hunks.last_mut() {
            Some(last) if last.0.end == old.start && last.1.end == new.start => {
                last.0.end = old.end;
                last.1.end = new.end;
            }
            _ => hunks.push((old, new)),
        }
    }
    hunks.retain(|(old, new)| !old.is_empty() || !new.is_empty());
    hunks
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may fail by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rebuilt<'a>(old: &[&'a str], new: &[&'a str]) -> (Vec<&'a str>, usize) {
        let (mut text, mut at, mut edits) = (Vec::new(), 0, 0);
        for (removed, added) in hunks(old, new, &mut Budget::default()) {
            text.extend_from_slice(&old[at..removed.start]);
            assert_eq!(text.len(), added.start);
            text.extend_from_slice(&new[added.clone()]);
            at = removed.end;
            edits += removed.len() + added.len();
        }
        text.extend_from_slice(&old[at..]);
        (text, edits)
    }

    /// Length of the longest common subsequence, the slow way.
    fn common(a: &[&str], b: &[&str]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut corner = 0;
            for (j, y) in b.iter().enumerate() {
                let up = row[j + 1];
                row[j + 1] = if x == y { corner + 1 } else { up.max(row[j]) };
                corner = up;
            }
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn hunks_rebuild_the_new_text_with_the_fewest_edits(
            old in proptest::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..40),
            new in proptest::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..40),
        ) {
            let (text, edits) = rebuilt(&old, &new);
            prop_assert_eq!(&text, &new);
            prop_assert_eq!(edits, old.len() + new.len() - 2 * common(&old, &new));
        }
    }

    #[test]
    fn a_spent_budget_replaces_the_middle() {
        let (old, new) = (["a", "x", "b", "y", "c"], ["a", "1", "b", "2", "c"]);
        assert_eq!(hunks(&old, &new, &mut Budget(1)), vec![(1..4, 1..4)]);
        assert_eq!(hunks(&old, &new, &mut Budget(1000)), vec![(1..2, 1..2), (3..4, 3..4)]);
    }

    #[test]
    fn texts_that_differ_too_much_are_replaced_as_a_whole() {
        let old: Vec<&str> = ["a", "b"].repeat(5000);
        let new: Vec<&str> = ["b", "c", "d"].repeat(5000);
        let (text, edits) = rebuilt(&old, &new);
        assert_eq!(text, new);
        assert_eq!(edits, old.len() + new.len());
    }
}
