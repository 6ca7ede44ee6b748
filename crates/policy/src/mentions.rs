//! The paths that policies speak of: what a file or link would stand in the way of.
//!
//! A rule about `/tenants/acme/.platform/config` is no rule about `/tenants/acme/.platform`. But a link in the place of
//! that folder leads whoever asks for the first path elsewhere. So who may not write the first may not put a link or
//! file in the place of a folder above it either, and that has to be asked, as nobody else would notice.

use std::collections::BTreeSet;
use std::ops::Bound;

use bailey_protocol::path::TreePath;
use serde_json::Value;

/// What wildcards stand for where a path is made of a pattern.
const ANYTHING: [&str; 2] = ["", "x"];

/// All paths and patterns of paths in a set of policies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mentions {
    paths: BTreeSet<String>,
    patterns: BTreeSet<Pattern>,
}

/// Characters, and `None` where any may stand.
type Pattern = Vec<Option<char>>;

impl Mentions {
    /// Any text that is a path may be one, wherever it stands: a literal, an entity's id, a member of a set.
    pub(crate) fn take(&mut self, value: &Value) {
        match value {
            Value::String(text) if text.starts_with("/tenants/") => drop(self.paths.insert(text.clone())),
            Value::Array(items) => items.iter().for_each(|item| self.take(item)),
            Value::Object(fields) => {
                if let Some(Value::Array(pattern)) = fields.get("like").and_then(|like| like.get("pattern")) {
                    let pattern: Pattern = pattern.iter().flat_map(elements).collect();
                    self.patterns.insert(pattern);
                }
                fields.values().for_each(|field| self.take(field));
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Paths strictly below `path`, in the same store, that a policy is about. A pattern counts where it names the
    /// last name of `path` itself: one such as `*/.env` is about what is called so wherever it is, and about no folder.
    pub(crate) fn below(&self, path: &TreePath) -> Vec<TreePath> {
        let prefix = format!("{path}/");
        let from: Bound<&str> = Bound::Excluded(&prefix);
        let literal = self.paths.range::<str, _>((from, Bound::Unbounded)).take_while(|text| text.starts_with(&prefix));
        let named = prefix.trim_end_matches('/').rsplit('/').next().map_or(0, |name| name.chars().count() + 2);
        let made = self.patterns.iter().flat_map(|pattern| completions(pattern, &prefix, named));
        let texts: BTreeSet<String> = literal.cloned().chain(made).collect();
        texts
            .iter()
            .filter_map(|text| text.parse().ok())
            .filter(|found: &TreePath| found.repo() == path.repo())
            .collect()
    }
}

fn elements(element: &Value) -> Vec<Option<char>> {
    match element {
        Value::Object(fields) => match fields.get("Literal") {
            Some(Value::String(text)) => text.chars().map(Some).collect(),
            _ => vec![None],
        },
        // "Wildcard", and what a later version may have: anything.
        _ => vec![None],
    }
}

/// Texts that begin with `prefix` and that `pattern` matches, where its last `named` characters are letters of the
/// pattern's own.
fn completions(pattern: &Pattern, prefix: &str, named: usize) -> Vec<String> {
    let mut places = Vec::new();
    reach(&mut places, pattern, 0, 0);
    let mut next = Vec::new();
    for c in prefix.chars() {
        for (place, own) in places.drain(..) {
            match pattern.get(place) {
                Some(Some(wanted)) if *wanted == c => reach(&mut next, pattern, place + 1, own + 1),
                Some(None) => reach(&mut next, pattern, place, 0),
                Some(Some(_)) | None => {}
            }
        }
        std::mem::swap(&mut places, &mut next);
        if places.is_empty() {
            return Vec::new();
        }
    }
    let ends = places.into_iter().filter(|(_, own)| *own >= named);
    ends.flat_map(|(place, _)| {
        let rest = pattern.get(place..).unwrap_or_default();
        ANYTHING.map(|anything| {
            let rest: String = rest.iter().map(|c| c.map_or(anything.to_owned(), String::from)).collect();
            format!("{prefix}{rest}")
        })
    })
    .collect()
}

/// Places in a pattern that a text may lead to, in their order, each with how many of the last characters were the
/// pattern's own. They are few: behind the first wildcard as many as there are letters, before it one.
type Places = Vec<(usize, usize)>;

/// A wildcard may stand for nothing.
fn reach(places: &mut Places, pattern: &Pattern, mut place: usize, own: usize) {
    loop {
        match places.iter_mut().rev().find(|(at, _)| *at <= place) {
            Some((at, best)) if *at == place && *best >= own => return,
            Some((at, best)) if *at == place => *best = own,
            _ => places.push((place, own)),
        }
        if !matches!(pattern.get(place), Some(None)) {
            return;
        }
        place += 1;
    }
}

#[cfg(test)]
mod tests {
    use cedar_policy::PolicySet;

    use super::*;

    fn below(condition: &str, path: &str) -> Vec<String> {
        let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
        let set: PolicySet = text.parse().unwrap();
        let mut mentions = Mentions::default();
        set.policies().for_each(|policy| mentions.take(&policy.to_json().unwrap()));
        mentions.below(&path.parse().unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_named_below_a_path_is_found_however_it_is_written() {
        let wanted = ["/tenants/a/.platform/config"];
        for condition in [
            r#"resource.path == "/tenants/a/.platform/config""#,
            r#"resource == Path::"/tenants/a/.platform/config""#,
            r#"["/tenants/b", "/tenants/a/.platform/config"].contains(resource.path)"#,
            r#"resource.path like "*/.platform/config""#,
            r#"resource.path like "/tenants/*/.platform/config""#,
            r#"!(resource.path like "/tenants/a/.platform/config") || resource.path == "x""#,
        ] {
            assert_eq!(below(condition, "/tenants/a/.platform"), wanted, "{condition}");
            assert!(below(condition, "/tenants/a/.platform/config").is_empty(), "{condition}");
            assert!(below(condition, "/tenants/a/.platformx").is_empty(), "{condition}");
        }
        let deep = r#"resource.path == "/tenants/a/x/y/z""#;
        assert_eq!(below(deep, "/tenants/a/x"), ["/tenants/a/x/y/z"]);
        assert!(below(deep, "/tenants/b/x").is_empty());
        assert!(below(r#"resource.path == "/tenants/a/users/u/x""#, "/tenants/a").is_empty());
    }

    #[test]
    fn a_pattern_is_completed_to_a_path() {
        let at = |pattern: &str, path: &str| below(&format!("resource.path like \"{pattern}\""), path);
        assert_eq!(at("/tenants/a/plans/*", "/tenants/a/plans"), ["/tenants/a/plans/x"]);
        assert_eq!(at("/tenants/a/plans*", "/tenants/a/plans"), Vec::<String>::new());
        assert_eq!(at("*/plans/*/q?", "/tenants/a/plans"), ["/tenants/a/plans/x/q?"]);
        assert_eq!(
            at("/tenants/*/plans/2030/*.md", "/tenants/a/plans/2030"),
            ["/tenants/a/plans/2030/.md", "/tenants/a/plans/2030/x.md"]
        );
        assert_eq!(
            at("/tenants/*/plans/2030/*.md", "/tenants/a/plans"),
            ["/tenants/a/plans/2030/.md", "/tenants/a/plans/2030/x.md"]
        );
    }

    /// Patterns are the tenant's, and each file that a run changes is looked for in them: what a pattern costs may not grow
    /// with letters that a policy is not weighed by.
    #[test]
    fn a_pattern_is_followed_only_where_the_path_leads() {
        let pattern: Pattern = "/tenants/a/".repeat(400).chars().map(Some).collect();
        let mut places = Vec::new();
        reach(&mut places, &pattern, 0, 0);
        assert_eq!(places, [(0, 0)]);
        let floating: Pattern = [None, Some('a'), None, None, Some('b')].into();
        let mut places = Vec::new();
        reach(&mut places, &floating, 0, 0);
        assert_eq!(places, [(0, 0), (1, 0)]);
        reach(&mut places, &floating, 2, 1);
        assert_eq!(places, [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]);
        reach(&mut places, &floating, 2, 0);
        assert_eq!(places.len(), 5);
    }

    #[test]
    fn a_pattern_that_is_about_no_folder_forbids_none() {
        let at = |pattern: &str, path: &str| below(&format!("resource.path like \"{pattern}\""), path);
        for pattern in ["*/.env", "*.pem", "*", "/tenants/a/*/secret", "/tenants/*"] {
            assert!(at(pattern, "/tenants/a/notes.txt").is_empty(), "{pattern}");
        }
    }
}
