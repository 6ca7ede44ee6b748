//! Two texts as a unified diff that `git apply` and `patch` take.

use std::ops::Range;

use super::myers::{Budget, Hunk, hunks};

const CONTEXT: usize = 3;

/// The diff between two texts; a side without a name does not exist.
pub(super) fn render(names: (Option<&str>, Option<&str>), before: &str, after: &str, budget: &mut Budget) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let hunks = hunks(&old, &new, budget);
    let side =
        |prefix, name: Option<&str>| name.map_or("/dev/null".to_owned(), |name| format!("{prefix}/{}", quiet(name)));
    let mut out = format!("--- {}\n+++ {}\n", side("a", names.0), side("b", names.1));
    let mut rest = hunks.as_slice();
    while !rest.is_empty() {
        let joined = rest.windows(2).take_while(|pair| gap(pair) <= 2 * CONTEXT).count() + 1;
        let (group, tail) = rest.split_at_checked(joined).unwrap_or((rest, &[]));
        print_group(&mut out, group, &old, &new);
        rest = tail;
    }
    out
}

/// A name without what would break the two header lines.
fn quiet(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Unchanged lines between two hunks.
fn gap(pair: &[Hunk]) -> usize {
    match pair {
        [(first, _), (second, _)] => second.start.saturating_sub(first.end),
        _ => usize::MAX,
    }
}

/// Hunks that are near enough to share their context.
fn print_group(out: &mut String, group: &[Hunk], old: &[&str], new: &[&str]) {
    let (Some((first_old, first_new)), Some((last_old, last_new))) = (group.first(), group.last()) else {
        return;
    };
    let lead = first_old.start.min(CONTEXT);
    let trail = old.len().saturating_sub(last_old.end).min(CONTEXT);
    let old_span = first_old.start - lead..last_old.end + trail;
    let new_span = first_new.start - lead..last_new.end + trail;
    out.push_str(&format!("@@ -{} +{} @@\n", place(&old_span), place(&new_span)));
    let mut at = old_span.start;
    for (removed, added) in group {
        print(out, ' ', old.get(at..removed.start));
        print(out, '-', old.get(removed.clone()));
        print(out, '+', new.get(added.clone()));
        at = removed.end;
    }
    print(out, ' ', old.get(at..old_span.end));
}

/// `start,length` with lines counted from one; an empty span names the line before it.
fn place(span: &Range<usize>) -> String {
    format!("{},{}", if span.is_empty() { span.start } else { span.start + 1 }, span.len())
}

fn print(out: &mut String, mark: char, lines: Option<&[&str]>) {
    for line in lines.unwrap_or_default() {
        out.push(mark);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests;
