//! Labels of paths: given by people, carried on by copies, and inherited by what a run writes.
//!
//! They hold for a path on every branch and version of its store, so that no fork sheds them, and for all below it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;

use bailey_policy::ReadAction;
use bailey_protocol::api::{EntryKind, LabelRequest, LabelledPath, PathLabels};
use bailey_protocol::id::VersionId;
use bailey_protocol::label::{Label, MAX_LABELS};
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_tree::{Contents, Store};

use super::below::named;
use super::tree_access;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::{LabelRow, MAX_LABELLED};

/// Paths of one mount that get labels of their own. Where a run changed more, the mounted folder gets them.
const MAX_INHERITING: usize = 1_000;
/// Labelled paths of one answer.
const MAX_TOLD: usize = 1_000;

/// Labels that come with a change.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    /// For each path below these folders that changed.
    inherited: Option<(BTreeSet<Label>, Vec<TreePath>)>,
    /// For these paths.
    rows: Vec<LabelRow>,
}

impl Carried {
    /// What a run changed below `folders` has the labels of all that the run could read.
    pub(super) fn by_run(labels: BTreeSet<Label>, folders: Vec<TreePath>) -> Self {
        let inherited = if labels.is_empty() { None } else { Some((labels, folders)) };
        Self { inherited, rows: Vec::new() }
    }

    /// The labels that what changed gets.
    pub(super) fn labels(&self) -> BTreeSet<Label> {
        self.inherited.iter().flat_map(|(labels, _)| labels.iter().cloned()).collect()
    }

    /// What is to be recorded together with the change from `base` to `to`. The store's lock is held. Blocks.
    pub(super) fn rows(
        &self,
        control: &Control,
        store: &Store,
        base: Option<&VersionId>,
        to: &VersionId,
    ) -> Result<Vec<LabelRow>, ApiError> {
        let mut rows = self.rows.clone();
        if let Some((labels, folders)) = &self.inherited {
            for folder in folders {
                let paths = inheriting(store, base, to, folder)?;
                rows.extend(paths.iter().filter_map(|path| row(control, path, labels)));
            }
        }
        Ok(with_room(control, store, rows))
    }
}

/// The rows, if there is room for them. Nothing loses its labels for want of it: then the whole store has them.
fn with_room(control: &Control, store: &Store, rows: Vec<LabelRow>) -> Vec<LabelRow> {
    if rows.is_empty() || control.tree_meta().labelled(store.id()).saturating_add(rows.len()) <= most_labelled() {
        return rows;
    }
    let labels = rows.into_iter().flat_map(|row| row.labels).collect();
    vec![LabelRow { repo: store.id().clone(), inner: String::new(), labels }]
}

fn most_labelled() -> usize {
    usize::try_from(MAX_LABELLED).unwrap_or(usize::MAX)
}

/// Content that has labels where it is, in the versions that a push grew from: git tells of no move or copy, so that the
/// same content at another path has them there, too.
#[derive(Debug, Default)]
pub(super) struct Labelled {
    /// What holds for labelled paths beyond the labels of the whole store, each once: content is marked by its place here.
    sets: Vec<BTreeSet<Label>>,
    /// Paths in the store, each with the place of its set.
    paths: Vec<(String, usize)>,
    contents: Contents,
    seen: HashSet<VersionId>,
    rows: BTreeMap<String, BTreeSet<Label>>,
}

impl Labelled {
    /// Of the store whose root that is.
    pub(super) fn of(control: &Control, root: &TreePath) -> Self {
        let meta = control.tree_meta();
        let of_all = meta.labels(root);
        let mut known = BTreeMap::new();
        let mut labelled = Self::default();
        for LabelledPath { path, .. } in meta.labelled_below(root, usize::MAX) {
            let labels: BTreeSet<Label> = meta.labels(&path).difference(&of_all).cloned().collect();
            if labels.is_empty() {
                continue;
            }
            let place = *known.entry(labels.clone()).or_insert_with(|| {
                labelled.sets.push(labels);
                labelled.sets.len() - 1
            });
            labelled.paths.push((path.inner().to_owned(), place));
        }
        labelled
    }

    /// Takes note of what is labelled in a version. Blocks.
    pub(super) fn learn(&mut self, store: &Store, version: &VersionId) -> Result<(), ApiError> {
        if self.paths.is_empty() || !self.seen.insert(version.clone()) {
            return Ok(());
        }
        for (inner, mark) in &self.paths {
            store.look_for(&mut self.contents, version, inner, *mark)?;
        }
        Ok(())
    }

    /// Takes note of the labels that what comes with the change has by its content. Blocks.
    pub(super) fn follow(
        &mut self,
        control: &Control,
        root: &TreePath,
        store: &Store,
        (from, to): (Option<&VersionId>, &VersionId),
    ) -> Result<(), ApiError> {
        let Self { sets, contents, rows, .. } = self;
        // Where a folder was moved as it is, it has the labels: what is in it has a row only where it has more.
        let mut above: Vec<(TreePath, BTreeSet<Label>)> = Vec::new();
        store.turned_up(contents, from, to, &mut |inner, marks| {
            let path = named(root, inner).unwrap_or_else(|_unnamed| root.clone());
            above.retain(|(folder, _)| folder.holds(&path));
            let mut labels: BTreeSet<Label> =
                marks.iter().filter_map(|mark| sets.get(*mark)).flatten().cloned().collect();
            labels.retain(|label| !above.iter().any(|(_, known)| known.contains(label)));
            if let Some(row) = row(control, &path, &labels) {
                rows.entry(row.inner).or_default().extend(row.labels);
                above.push((path, labels));
            }
            if rows.len() <= most_labelled() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(())
    }

    /// What is to be recorded together with the push. Nothing loses its labels where there is too much to look at: then the
    /// whole store has them.
    pub(super) fn rows(self, control: &Control, store: &Store) -> Vec<LabelRow> {
        let row = |(inner, labels)| LabelRow { repo: store.id().clone(), inner, labels };
        if self.contents.is_cut_short() {
            return vec![row((String::new(), self.sets.into_iter().flatten().collect()))];
        }
        with_room(control, store, self.rows.into_iter().map(row).collect())
    }
}

/// The labels that a copy takes along: those that hold for `from`, and those of paths below it. For a move as well.
pub(super) fn carry(control: &Control, from: &TreePath, to: &TreePath) -> Carried {
    let meta = control.tree_meta();
    let mut rows: Vec<LabelRow> = row(control, to, &meta.labels(from)).into_iter().collect();
    for below in meta.labelled_below(from, usize::MAX) {
        let rest = below.path.as_str().strip_prefix(from.as_str()).unwrap_or_default();
        match format!("{to}{rest}").parse::<TreePath>().ok().filter(|path| path.repo() == to.repo()) {
            Some(path) => rows.extend(row(control, &path, &below.labels)),
            // Where the copy has no such path, its folder has the labels.
            None => rows.extend(row(control, to, &below.labels)),
        }
    }
    Carried { inherited: None, rows }
}

/// What is to be added so that `labels` hold for `path`, if anything.
fn row(control: &Control, path: &TreePath, labels: &BTreeSet<Label>) -> Option<LabelRow> {
    let labels: BTreeSet<Label> = labels.difference(&control.tree_meta().labels(path)).cloned().collect();
    (!labels.is_empty()).then(|| LabelRow { repo: path.repo().clone(), inner: path.inner().to_owned(), labels })
}

/// The changed paths below a folder that are there now: each, or the folder itself where they are many or cannot be
/// named. What is below one of them has its labels.
fn inheriting(
    store: &Store,
    base: Option<&VersionId>,
    to: &VersionId,
    folder: &TreePath,
) -> Result<Vec<TreePath>, ApiError> {
    let mut paths: Vec<TreePath> = Vec::new();
    let mut whole = false;
    store.changed_paths(base, to, folder.inner(), &mut |inner, now| {
        // What is gone needs none, and that the folder is new says nothing of what else will be in it.
        if now.is_none() || (*inner == *folder.inner_bytes() && now == Some(EntryKind::Directory)) {
            return ControlFlow::Continue(());
        }
        match named(folder, inner) {
            Ok(path) if paths.last().is_some_and(|last| last.holds(&path)) => {}
            Ok(path) if paths.len() < MAX_INHERITING => paths.push(path),
            Ok(_) | Err(_) => {
                whole = true;
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(if whole { vec![folder.clone()] } else { paths })
}

/// The labels of a path.
///
/// # Errors
/// When it is denied.
pub async fn show(control: &Control, caller: &Caller, path: TreePath) -> Result<PathLabels, ApiError> {
    let main = Revision::Branch(BranchName::main());
    let permit = control.may_read(caller, ReadAction::List, &path, &main).await?;
    let shown = async {
        permit.scope()?;
        let known = tree_access::is_there(control, caller, &path).await?;
        Ok(told(control, &path, known))
    };
    control.audited(caller, [permit.grant()], shown.await).await
}

/// Gives a path these labels and no others.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, or there are too many.
pub async fn set(
    control: &Control,
    caller: &Caller,
    path: TreePath,
    request: LabelRequest,
) -> Result<PathLabels, ApiError> {
    let facts = control.path_facts(caller, &path, None);
    let permit = control.permit(caller, control.judge(caller).await?.label(&facts)).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let result = async {
            let LabelRequest { labels } = request;
            if labels.len() > MAX_LABELS {
                let message = format!("`labels` has {} entries: use at most {MAX_LABELS}", labels.len());
                return Err(ApiError::invalid("too_many_labels", message, "Take those that policies look at."));
            }
            let known = tree_access::is_there(&owner, &caller, &path).await?;
            let _turn = owner.meta_turn().await;
            owner.db().set_labels(&permit, &labels).await?;
            owner.tree_meta().set_labels(&path, labels);
            owner.judge_again(permit.tenant());
            Ok(told(&owner, &path, known))
        };
        let result = result.await;
        owner.audited(&caller, [permit.grant()], result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

fn told(control: &Control, path: &TreePath, known: Option<bool>) -> PathLabels {
    let meta = control.tree_meta();
    let (labels, inherited) = (meta.own_labels(path), meta.labels_above(path));
    PathLabels { path: path.clone(), labels, inherited, known, below: meta.labelled_below(path, MAX_TOLD) }
}
