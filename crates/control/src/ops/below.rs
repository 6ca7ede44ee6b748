//! What policy says of each path that a change to a folder touched: a decision about the folder is one about its own
//! path, and an operator's rule may name one below it, whether that is there or not.
//!
//! A link or file is asked about for what it stands in the way of, too: a rule about `/a/b/c` is one about whoever puts a
//! link at `/a/b`. See `mentioned_below` of the judge for which paths count.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bailey_policy::{Action, Denied, Judge, WriteAction};
use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId, TreePath, text_of};
use bailey_tree::{Store, TakenOver};

use super::entering::{self, Looked, Shaped};
use super::unseen::Puts;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::AuditEntry;
use crate::pace::Pace;
use crate::tree_meta::root_of;

/// Most changed paths that are asked about. More are denied, all of them.
pub(super) const MAX_CHANGED: usize = 20_000;
/// Most entries that are looked at to find those of one piece of work, also where nothing changed. A change in which there
/// are more is denied.
pub(super) const MAX_STEPS: u64 = 20_000_000;
/// Most denied paths that are told: with these, no further one is asked about.
const MAX_DENIED: usize = 100;
/// Most labelled paths below one that are asked about before a link or file takes their place. More are denied.
const MAX_LABELLED_BELOW: usize = 1_000;

/// Decides on changed paths below folders.
#[derive(Debug, Clone)]
pub(super) struct Below {
    caller: Caller,
    asked: Asked,
    folders: Vec<TreePath>,
    /// What the change brings that is shaped like a credential, once it was looked at.
    shaped: Arc<OnceLock<Vec<Shaped>>>,
    /// What counts as changed whether or not it is another.
    puts: Puts,
}

/// As what a changed path is asked about.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// Always this.
    As(WriteAction),
    /// A delete where nothing is there any more, else a write.
    WhatBecameOfIt,
}

/// Why a change may not be made. It is on the audit.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The first denial.
    pub(super) denied: Denied,
    /// The paths in the store that were denied.
    pub(super) paths: Vec<String>,
}

impl Refusal {
    /// For people: which policy, and why. The paths are told apart.
    pub(super) fn reason(&self) -> String {
        let Denied { action, policies, reason, .. } = &self.denied;
        if policies.is_empty() {
            return format!("`{action}` is denied below the folder: {reason}");
        }
        format!("`{action}` is denied below the folder by policy `{}`: {reason}", policies.join("`, `"))
    }
}

impl Below {
    /// Asks for `action` on whatever changed.
    pub(super) fn new(caller: &Caller, action: WriteAction, folders: Vec<TreePath>) -> Self {
        Self::asking(caller, Asked::As(action), folders)
    }

    /// Asks for a delete on what is gone and for a write on all else that changed.
    pub(super) fn writes_and_deletes(caller: &Caller, folders: Vec<TreePath>) -> Self {
        Self::asking(caller, Asked::WhatBecameOfIt, folders)
    }

    fn asking(caller: &Caller, asked: Asked, folders: Vec<TreePath>) -> Self {
        Self { caller: caller.clone(), asked, folders, shaped: Arc::default(), puts: Puts::default() }
    }

    /// Looks at what `to` holds that `base` did not, once: before any lock is held, as it reads the content. Blocks.
    ///
    /// # Errors
    /// When the versions cannot be read.
    pub(super) fn look(&self, store: &Store, base: Option<&VersionId>, to: &VersionId) -> Result<(), ApiError> {
        self.look_among(store, base, to, &mut Looked::default())
    }

    /// The same for one of several versions that come together.
    ///
    /// # Errors
    /// When the versions cannot be read.
    pub(super) fn look_among(
        &self,
        store: &Store,
        base: Option<&VersionId>,
        to: &VersionId,
        looked: &mut Looked,
    ) -> Result<(), ApiError> {
        if matches!(self.asked, Asked::As(WriteAction::Delete)) || self.shaped.get().is_some() {
            return Ok(());
        }
        let mut look = || -> Result<Vec<Shaped>, ApiError> {
            // As they are after purges that were made meanwhile.
            let base = base.map(|base| store.current(base)).transpose()?;
            entering::shaped(store, base.as_ref(), &store.current(to)?, &self.puts, looked)
        };
        // A purge may take away what is just being looked at: then once more, at what is there now.
        let shaped = look().or_else(|_gone| look())?;
        // Whoever was first has seen the same.
        let _seen = self.shaped.set(shaped);
        Ok(())
    }

    /// In whose name it is asked.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What the change puts where the caller may not read.
    pub(super) fn puts(&self) -> &Puts {
        &self.puts
    }

    /// What was found by [`Below::look`].
    pub(super) fn shaped(&self) -> &[Shaped] {
        self.shaped.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Asks about each path that differs between the branch's head and what it is to point to, by the policies in force
    /// now; and about what is shaped like a credential in any case. Blocks.
    ///
    /// # Errors
    /// When the versions or the policies cannot be read.
    pub(super) fn refusal(
        &self,
        control: &Control,
        branch: &BranchName,
        store: &Store,
        head: Option<&VersionId>,
        to: &VersionId,
    ) -> Result<Option<Refusal>, ApiError> {
        self.refusal_of_merge(control, branch, store, (head, to), None, &Cell::new(MAX_STEPS))
    }

    /// The same, where paths that were taken over as they are were judged where they come from: they are not asked about
    /// again, unless policy may say something else of this branch. In as many steps as are left for all that is asked
    /// about together.
    ///
    /// # Errors
    /// When the versions or the policies cannot be read.
    pub(super) fn refusal_of_merge(
        &self,
        control: &Control,
        branch: &BranchName,
        store: &Store,
        (head, to): (Option<&VersionId>, &VersionId),
        taken: Option<&TakenOver<'_>>,
        steps_left: &Cell<u64>,
    ) -> Result<Option<Refusal>, ApiError> {
        let judge = control.wait(control.judge(&self.caller))?;
        let (mut denied, mut paths) = (Vec::new(), Vec::new());
        let pace = control.pace(&self.caller);
        for Shaped { inner, findings } in self.shaped() {
            let judge = judge.clone().holding(findings.iter().map(|finding| finding.rule));
            let asking = Asking { control, below: self, judge: &judge, branch, pace: &pace };
            if let Err(denial) = asking.about_shaped(store, inner) {
                denied.push(denial);
                paths.push(text_of(inner).into_owned());
            }
            if denied.len() >= MAX_DENIED {
                break;
            }
        }
        if self.asked.actions().iter().any(|action| judge.decides_below(*action)) {
            let asking = Asking { control, below: self, judge: &judge, branch, pace: &pace };
            let taken = taken.filter(|_| !self.asked.actions().iter().any(|action| judge.looks_at_branch(*action)));
            match self.changes(store, (head, to), steps_left)? {
                Err(denial) => denied.push(denial),
                Ok(changes) => asking.about_all(&changes, taken, &mut denied, &mut paths),
            }
        }
        // Else the decision about each folder covers all that is below it.
        record(control, &self.caller, &denied);
        Ok(denied.into_iter().next().map(|denied| Refusal { denied, paths }))
    }

    /// Each path below each folder that changed, or counts as changed, or why there are too many of them. Finding them is
    /// cheap, asking about them is not.
    fn changes(
        &self,
        store: &Store,
        (head, to): (Option<&VersionId>, &VersionId),
        steps_left: &Cell<u64>,
    ) -> Result<Result<Vec<Changes<'_>>, Denied>, ApiError> {
        let (mut count, mut all) = (0, Vec::new());
        for folder in &self.folders {
            let mut changed = BTreeMap::new();
            let mut last = None;
            store.changed_paths_within(head, to, folder.inner(), steps_left, &mut |inner, now| {
                (count, last) = (count + 1, now);
                changed.insert(inner.to_vec(), now);
                if count <= MAX_CHANGED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            for inner in self.puts.iter().filter(|inner| holds(folder, inner)) {
                if count > MAX_CHANGED || changed.contains_key(inner) {
                    continue;
                }
                let now = store.entry(Some(to), &text_of(inner))?.map(|entry| entry.kind);
                if now.is_some_and(|now| now != EntryKind::Directory) {
                    (count, last) = (count + 1, now);
                    changed.insert(inner.to_vec(), now);
                }
            }
            let too_many = if count > MAX_CHANGED {
                format!("more than {MAX_CHANGED} paths changed, too many to ask policy about each")
            } else if steps_left.get() == 0 {
                format!("what changed is among more than {MAX_STEPS} entries, too many to look at each")
            } else {
                all.push(Changes { folder, changed });
                continue;
            };
            return Ok(Err(Denied::unasked(self.asked.about(last).into(), folder.as_str(), too_many)));
        }
        Ok(Ok(all))
    }
}

/// What changed below one folder: each path from the store's root, and what it is now.
struct Changes<'a> {
    folder: &'a TreePath,
    changed: BTreeMap<Vec<u8>, Option<EntryKind>>,
}

impl Changes<'_> {
    fn each(&self) -> impl Iterator<Item = (&TreePath, &[u8], Option<EntryKind>)> {
        self.changed.iter().map(|(inner, now)| (self.folder, inner.as_slice(), *now))
    }
}

/// Whether a path of the folder's store is at or below it.
fn holds(folder: &TreePath, inner: &[u8]) -> bool {
    let folder = folder.inner_bytes();
    let rest = inner.strip_prefix(&*folder);
    rest.is_some_and(|rest| folder.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

impl Asked {
    fn actions(self) -> Vec<Action> {
        match self {
            Self::As(action) => vec![action.into()],
            Self::WhatBecameOfIt => vec![Action::TreeWrite, Action::TreeDelete],
        }
    }

    fn about(self, now: Option<EntryKind>) -> WriteAction {
        match (self, now) {
            (Self::As(action), _) => action,
            (Self::WhatBecameOfIt, None) => WriteAction::Delete,
            (Self::WhatBecameOfIt, Some(_)) => WriteAction::Write,
        }
    }
}

/// One change that is asked about.
struct Asking<'a> {
    control: &'a Control,
    below: &'a Below,
    judge: &'a Judge,
    branch: &'a BranchName,
    pace: &'a Pace,
}

impl Asking<'_> {
    /// Asks about each path, until enough are denied.
    fn about_all(
        &self,
        changes: &[Changes<'_>],
        taken: Option<&TakenOver<'_>>,
        denied: &mut Vec<Denied>,
        paths: &mut Vec<String>,
    ) {
        for (folder, inner, now) in changes.iter().flat_map(Changes::each) {
            if taken.is_some_and(|taken| has(taken, inner)) {
                continue;
            }
            if let Err(denial) = self.decide(folder, inner, now) {
                denied.push(denial);
                paths.push(text_of(inner).into_owned());
            }
            if denied.len() >= MAX_DENIED {
                break;
            }
        }
    }

    /// May the path `inner` of the folder's store become that? What no policy can name is denied.
    fn decide(&self, folder: &TreePath, inner: &[u8], now: Option<EntryKind>) -> Result<(), Denied> {
        let action = self.below.asked.about(now);
        let path = named(folder, inner).map_err(|shown| unnamed(action.into(), &shown))?;
        self.ask(action, &path)?;
        match now {
            None | Some(EntryKind::Directory) => Ok(()),
            Some(EntryKind::File | EntryKind::Executable | EntryKind::Symlink) => self.in_the_way(action, &path),
        }
    }

    /// May a file of the store hold what was found in it?
    fn about_shaped(&self, store: &Store, inner: &[u8]) -> Result<(), Denied> {
        let action = self.below.asked.about(Some(EntryKind::File));
        let path = in_store(&store.id().root(), store.id(), inner).map_err(|shown| unnamed(action.into(), &shown))?;
        self.ask(action, &path)
    }

    /// May all be written that cannot be below `path` once something else than a folder is there?
    fn in_the_way(&self, action: WriteAction, path: &TreePath) -> Result<(), Denied> {
        for below in self.judge.mentioned_below(path) {
            self.ask(action, &below)?;
        }
        let labelled = self.control.tree_meta().labelled_below(path, MAX_LABELLED_BELOW + 1);
        if labelled.len() > MAX_LABELLED_BELOW {
            let reason =
                format!("more than {MAX_LABELLED_BELOW} labelled paths are below it, too many to ask about each");
            return Err(Denied::unasked(action.into(), path.as_str(), reason));
        }
        labelled.iter().try_for_each(|below| self.ask(action, &below.path))
    }

    fn ask(&self, action: WriteAction, path: &TreePath) -> Result<(), Denied> {
        self.pace.next();
        let facts = self.control.path_facts(&self.below.caller, path, Some(self.branch));
        self.judge.write_path(action, &facts, self.branch).map(drop)
    }
}

/// Whether that was taken over. What cannot be read is asked about.
fn has(taken: &TakenOver<'_>, inner: &[u8]) -> bool {
    matches!(taken.has(&text_of(inner)), Ok(true))
}

/// The path `inner` of the folder's store, or how to show it where it has no such name.
pub(super) fn named(folder: &TreePath, inner: &[u8]) -> Result<TreePath, String> {
    in_store(root_of(folder), folder.repo(), inner)
}

/// The path `below` a folder, or how to show it where it has no such name.
pub(super) fn below_folder(folder: &TreePath, below: &[u8]) -> Result<TreePath, String> {
    in_store(folder.as_str(), folder.repo(), below)
}

pub(super) fn in_store(prefix: &str, repo: &RepoId, below: &[u8]) -> Result<TreePath, String> {
    let shown = match below {
        [] => prefix.to_owned(),
        below => format!("{prefix}/{}", text_of(below)),
    };
    shown.parse().ok().filter(|path: &TreePath| path.repo() == repo).ok_or(shown)
}

/// What is in a store where no path leads.
pub(super) fn unnamed(action: Action, shown: &str) -> Denied {
    Denied::unasked(action, shown, "its name is none that a policy can be asked about")
}

/// Puts denials on the audit. Blocks.
pub(super) fn record(control: &Control, caller: &Caller, denied: &[Denied]) {
    let now = control.now_ms();
    let Caller { principal, request, wall: _ } = caller;
    let entries = denied.iter().map(|denied| AuditEntry::denied(principal, denied, Some(request), now));
    if let Err(error) = control.wait(control.write_audit(entries.collect())) {
        // They stay denials.
        tracing::error!(%request, %error, "denials are not on the audit");
    }
}

#[cfg(test)]
mod tests {
    use bailey_policy::Principal;
    use bailey_protocol::id::RequestId;
    use bailey_tree::{CommitMeta, Trees};

    use super::*;

    /// One file changed among nine that did not.
    #[test]
    fn what_changed_among_too_many_entries_is_denied_and_what_is_put_counts_as_changed() {
        let folder = tempfile::tempdir().unwrap();
        let repo = RepoId { tenant: "acme".parse().unwrap(), user: None };
        let store = Trees::open(folder.path()).unwrap().store(&repo).unwrap();
        let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 1, message: "x".to_owned(), run: None };
        let put = |base: Option<&VersionId>, name: &str, text: &str| {
            store.write_file(base, name, &mut text.as_bytes(), 100, false, &meta).unwrap()
        };
        let base = (0..10).fold(None, |base, n| Some(put(base.as_ref(), &n.to_string(), "1")));
        let to = put(base.as_ref(), "5", "2");
        let principal = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
        let caller = Caller::new(principal, RequestId::mint(1, [1; 10]));
        let below = Below::writes_and_deletes(&caller, vec!["/tenants/acme".parse().unwrap()]);
        let changed = |below: &Below, steps: u64| {
            let changes = below.changes(&store, (base.as_ref(), &to), &Cell::new(steps)).unwrap();
            changes
                .map(|all| all.iter().flat_map(Changes::each).map(|(_, inner, _)| inner.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(changed(&below, 13).unwrap(), [b"5"]);
        let denied = changed(&below, 12).unwrap_err();
        assert!(denied.reason.contains("too many to look at each"), "{denied:?}");
        below.puts().tell([b"7".to_vec(), b"gone".to_vec()].into());
        assert_eq!(changed(&below, 13).unwrap(), [b"5", b"7"]);
        let elsewhere = Below::writes_and_deletes(&caller, vec!["/tenants/acme/7/x".parse().unwrap()]);
        elsewhere.puts().tell([b"7".to_vec()].into());
        assert_eq!(changed(&elsewhere, 13).unwrap(), [b""; 0]);
    }
}
