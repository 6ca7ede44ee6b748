//! What enters shaped like a credential: in the files that a change brings, and in what a run is asked to do. Told by
//! rule and position; whether it may enter, policy says.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read as _};
use std::ops::ControlFlow;

use bailey_protocol::api::{EntryKind, Notice, RunRequest};
use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::VersionId;
use bailey_protocol::node::SessionFile;
use bailey_protocol::path::text_of;
use bailey_tree::Store;

use super::below::MAX_STEPS;
use super::unseen::Puts;
use crate::api_error::ApiError;
use crate::credential_scan::{self, Finding, MAX_SCANNED, ScanReader};

/// Most files of one change that are looked at.
const MAX_FILES: usize = 20_000;
/// Most bytes of one change that are looked at.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// Most files that are told.
const MAX_TOLD: usize = 100;

/// The rule of what was not looked at, or not to its end.
pub(super) const NOT_SCANNED: &str = "not-scanned";

/// A file that holds what is shaped like a credential, or that was not looked at to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shaped {
    /// From the store's root.
    pub(super) inner: Vec<u8>,
    /// Not empty.
    pub(super) findings: Vec<Finding>,
}

impl Shaped {
    /// For the caller, one for each rule.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let path =
            if self.inner.is_empty() { "the whole change".to_owned() } else { text_of(&self.inner).into_owned() };
        self.findings.iter().map(move |finding| warning(&path, finding))
    }

    /// For a run's result.
    fn notice(&self, root: &str) -> Notice {
        let found = self.findings.iter().map(|Finding { rule, offset }| format!("{rule} at byte {offset}"));
        let detail = Some(found.collect::<Vec<_>>().join(", "));
        let path = format!("{root}/{}", text_of(&self.inner)).trim_end_matches('/').to_owned();
        Notice { path, reason: NoticeReason::CredentialShaped, detail }
    }
}

/// One finding, for people.
pub(super) fn warning(place: &str, Finding { rule, offset }: &Finding) -> String {
    if *rule == NOT_SCANNED {
        return format!("{place}: not looked at for credentials from byte {offset} on ({rule})");
    }
    format!("{place}: shaped like a credential ({rule}) at byte {offset}")
}

/// What was looked at for one change of many versions: equal content once, and all of it within the limits.
#[derive(Debug)]
pub(super) struct Looked {
    limits: Limits,
    /// For finding what changed.
    steps_left: Cell<u64>,
    /// By object id.
    known: HashMap<String, Vec<Finding>>,
}

impl Default for Looked {
    fn default() -> Self {
        Self::within(Limits { files: MAX_FILES, bytes: MAX_BYTES, told: MAX_TOLD })
    }
}

impl Looked {
    fn within(limits: Limits) -> Self {
        Self { limits, steps_left: Cell::new(MAX_STEPS), known: HashMap::new() }
    }

    /// What is found in one file, of which as many bytes are looked at as are left.
    fn at(&mut self, store: &Store, to: &VersionId, inner: &str) -> Result<Vec<Finding>, ApiError> {
        let Some(entry) = store.entry(Some(to), inner)? else { return Ok(Vec::new()) };
        let Some(size) = entry.size else { return Ok(Vec::new()) };
        if let Some(findings) = self.known.get(&entry.id) {
            return Ok(findings.clone());
        }
        let wanted = size.min(MAX_SCANNED);
        let Some(rest) = self.limits.bytes.checked_sub(wanted) else {
            return Ok(vec![Finding { rule: NOT_SCANNED, offset: 0 }]);
        };
        self.limits.bytes = rest;
        let mut scanned = ScanReader::new(store.read(to, inner)?.take(wanted));
        io::copy(&mut scanned, &mut io::sink()).map_err(ApiError::internal)?;
        let mut findings = scanned.finish();
        if size > wanted {
            findings.push(Finding { rule: NOT_SCANNED, offset: wanted });
        }
        self.known.insert(entry.id, findings.clone());
        Ok(findings)
    }
}

/// Warnings for the caller, as many as are told.
pub(super) fn warnings<'a>(shaped: impl IntoIterator<Item = &'a Shaped>) -> Vec<String> {
    shaped.into_iter().flat_map(Shaped::warnings).take(MAX_TOLD).collect()
}

/// Notices for a run's result, as many as are told.
pub(super) fn notices(shaped: &[Shaped], root: &str) -> impl Iterator<Item = Notice> {
    shaped.iter().take(MAX_TOLD).map(move |shaped| shaped.notice(root))
}

/// What of a change is looked at.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Of one version.
    files: usize,
    /// Of all versions.
    bytes: u64,
    /// Of one version.
    told: usize,
}

/// Looks at every file of `to` that is another in `base`, or is among what the change `puts`, within the limits. A file
/// beyond them, or beyond what is looked at of one, is told as [`NOT_SCANNED`]: nothing passes by not being looked at.
/// Where more than 20,000 files changed, the first of the others stands for all of them, and the root where they are among
/// too many entries to find each. Blocks.
///
/// # Errors
/// When the versions cannot be read.
pub(super) fn shaped(
    store: &Store,
    base: Option<&VersionId>,
    to: &VersionId,
    puts: &Puts,
    looked: &mut Looked,
) -> Result<Vec<Shaped>, ApiError> {
    let limits = looked.limits;
    let mut changed: BTreeSet<Vec<u8>> = BTreeSet::new();
    store.changed_paths_within(base, to, "", &looked.steps_left, &mut |inner, now| {
        if is_file(now) {
            changed.insert(inner.to_vec());
        }
        if changed.len() <= limits.files { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    for inner in puts.iter() {
        if changed.len() <= limits.files && is_file(store.entry(Some(to), &text_of(inner))?.map(|entry| entry.kind)) {
            changed.insert(inner.to_vec());
        }
    }
    if looked.steps_left.get() == 0 {
        return Ok(vec![Shaped { inner: Vec::new(), findings: vec![Finding { rule: NOT_SCANNED, offset: 0 }] }]);
    }
    let (mut found, mut told) = (Vec::new(), 0);
    for (number, inner) in changed.into_iter().enumerate() {
        let findings = if number < limits.files && told < limits.told {
            looked.at(store, to, &text_of(&inner))?
        } else {
            vec![Finding { rule: NOT_SCANNED, offset: 0 }]
        };
        if !findings.is_empty() {
            told += usize::from(findings.iter().any(|finding| finding.rule != NOT_SCANNED));
            found.push(Shaped { inner, findings });
        }
    }
    Ok(found)
}

fn is_file(kind: Option<EntryKind>) -> bool {
    matches!(kind, Some(EntryKind::File | EntryKind::Executable))
}

/// Looks at the program, the environment and the standard input of a run that is asked for, each by the name of its
/// field. The name of a variable is the caller's own and is not told.
pub(super) fn in_request(request: &RunRequest) -> Vec<(&'static str, Finding)> {
    // With its name, as some kinds are known by it.
    let env = request.env.iter().map(|(name, value)| ("env", format!("{name}={value}")));
    let command = request.command.iter().flatten().map(|argument| ("command", argument.clone()));
    let texts = [("code", &request.code), ("stdin", &request.stdin)];
    let texts = texts.into_iter().filter_map(|(field, text)| Some((field, text.clone()?)));
    env.chain(command)
        .chain(texts)
        .flat_map(|(field, text)| credential_scan::scan(text.as_bytes()).into_iter().map(move |found| (field, found)))
        .collect()
}

/// The same for the files that come with a run.
pub(super) fn in_files(files: &[SessionFile]) -> Vec<(&'static str, Finding)> {
    let found = files.iter().flat_map(|file| credential_scan::scan(&file.content));
    found.map(|found| ("files", found)).collect()
}

#[cfg(test)]
mod tests {
    use bailey_tree::{CommitMeta, Trees};

    use super::*;

    /// What is found where `files` are put beside a file that was there.
    fn found(files: &[(&str, &str)], limits: Limits) -> Vec<(String, Vec<&'static str>)> {
        let folder = tempfile::tempdir().unwrap();
        let trees = Trees::open(folder.path()).unwrap();
        let store = trees.store("/tenants/acme".parse::<bailey_protocol::path::TreePath>().unwrap().repo()).unwrap();
        let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 1, message: "x".to_owned(), run: None };
        let mut head = None;
        for (name, content) in files {
            head = Some(store.write_file(head.as_ref(), name, &mut content.as_bytes(), 1 << 20, false, &meta).unwrap());
        }
        let shaped =
            super::shaped(&store, None, &head.unwrap(), &Puts::default(), &mut Looked::within(limits)).unwrap();
        let rules = |one: &Shaped| one.findings.iter().map(|finding| finding.rule).collect();
        shaped.iter().map(|one| (String::from_utf8(one.inner.clone()).unwrap(), rules(one))).collect()
    }

    #[test]
    fn what_is_among_too_many_entries_is_told_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let repo = bailey_protocol::path::RepoId { tenant: "acme".parse().unwrap(), user: None };
        let store = Trees::open(folder.path()).unwrap().store(&repo).unwrap();
        let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 1, message: "x".to_owned(), run: None };
        let head = ["a", "b", "c"].into_iter().fold(None, |head: Option<VersionId>, name| {
            Some(store.write_file(head.as_ref(), name, &mut &b"plain"[..], 10, false, &meta).unwrap())
        });
        for (steps, rules) in [(8, vec![]), (7, vec![NOT_SCANNED])] {
            let mut looked = Looked { steps_left: Cell::new(steps), ..Looked::default() };
            let shaped = shaped(&store, None, &head.clone().unwrap(), &Puts::default(), &mut looked).unwrap();
            let found: Vec<&str> = shaped.iter().flat_map(|one| one.findings.iter().map(|found| found.rule)).collect();
            assert_eq!(found, rules);
            assert!(shaped.iter().flat_map(Shaped::warnings).all(|told| told.starts_with("the whole change: ")));
        }
    }

    #[test]
    fn what_is_not_looked_at_is_told() {
        let all = Limits { files: 10, bytes: 100, told: 10 };
        let files = [("a", "plain text"), ("b", "Plain text"), ("c", "PLAIN text")];
        let unlooked = |name: &str| (name.to_owned(), vec![NOT_SCANNED]);
        assert_eq!(found(&files, all), []);
        assert_eq!(found(&files, Limits { bytes: 20, ..all }), [unlooked("c")]);
        assert_eq!(found(&files, Limits { bytes: 0, ..all }), [unlooked("a"), unlooked("b"), unlooked("c")]);
        assert_eq!(found(&files, Limits { files: 1, ..all }), [unlooked("b")]);
        assert_eq!(found(&files, Limits { told: 0, ..all }), [unlooked("a"), unlooked("b"), unlooked("c")]);
    }
}
