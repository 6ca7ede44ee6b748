//! What policy says of each path below a folder that is read: a decision about the folder is one about its own path, and
//! a rule may name one below it. A listing leaves out what is denied; what cannot leave anything out is refused.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bailey_policy::{Action, At, Denied, Judge, LeadingBranch, PathFacts, Policies, ReadAction};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{Revision, TreePath, bytes_of};
use bailey_tree::Store;

use super::below::{below_folder, unnamed};
use super::judge::{branch_of, narrowed};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::pace::Pace;

/// Most paths that are asked about before anything is handed out. More are denied.
const MAX_PATHS: usize = 100_000;
/// Most folders whose listing was decided that are remembered.
const MAX_FOLDERS: usize = 10_000;

/// Decides on paths below one folder, by the policies in force when it was made.
#[derive(Debug)]
pub(super) struct Readable {
    control: Control,
    caller: Caller,
    judge: Judge,
    action: ReadAction,
    folder: TreePath,
    revision: Revision,
    /// The branches that lead to it, where it takes them to decide.
    leading: Vec<LeadingBranch>,
    /// Whether anything is left to decide below the folder.
    decides: bool,
    /// Folders below, and whether they may be listed: what is in one that may not does not show.
    lists: HashMap<Vec<u8>, bool>,
}

impl Readable {
    /// For paths below `folder`, each of which takes `action`.
    pub(super) async fn new(
        control: &Control,
        caller: &Caller,
        action: ReadAction,
        folder: &TreePath,
        revision: &Revision,
    ) -> Result<Self, ApiError> {
        Self::by(control, caller, control.judge(caller).await?, action, (folder, revision)).await
    }

    /// The same for what goes on and is judged again.
    pub(super) async fn again(
        control: &Control,
        caller: &Caller,
        action: ReadAction,
        folder: &TreePath,
        revision: &Revision,
    ) -> Result<Self, ApiError> {
        Self::by(control, caller, control.quiet_judge(caller).await?, action, (folder, revision)).await
    }

    async fn by(
        control: &Control,
        caller: &Caller,
        judge: Judge,
        action: ReadAction,
        (folder, revision): (&TreePath, &Revision),
    ) -> Result<Self, ApiError> {
        let decides = judge.decides_below(action) || judge.decides_below(ReadAction::List);
        let actions = [Action::from(action), Action::TreeList];
        let leading = control.leading(caller, &judge, &actions, folder, revision).await?;
        let (folder, revision) = (folder.clone(), revision.clone());
        let (control, caller) = (control.clone(), caller.clone());
        Ok(Self { control, caller, judge, action, folder, revision, leading, decides, lists: HashMap::new() })
    }

    /// Whether there is anything to ask about below the folder.
    pub(super) fn decides(&self) -> bool {
        self.decides
    }

    /// For work that is done whether or not somebody waits for it.
    pub(super) fn pace(&self) -> Pace {
        self.control.pace(&self.caller)
    }

    /// The policies that are asked.
    pub(super) fn policies(&self) -> &Policies {
        self.judge.policies()
    }

    /// Whether the path `below` the folder may be seen. Blocks.
    pub(super) fn shows(&mut self, pace: &Pace, below: &[u8]) -> bool {
        if !self.decides {
            return true;
        }
        let parent = below.iter().rposition(|byte| *byte == b'/').and_then(|at| below.get(..at));
        parent.is_none_or(|parent| self.may_list(pace, parent)) && self.allows(pace, self.action, below)
    }

    fn may_list(&mut self, pace: &Pace, folder: &[u8]) -> bool {
        if let Some(known) = self.lists.get(folder) {
            return *known;
        }
        let above = folder.iter().rposition(|byte| *byte == b'/').and_then(|at| folder.get(..at));
        let may = above.is_none_or(|above| self.may_list(pace, above)) && self.allows(pace, ReadAction::List, folder);
        if self.lists.len() < MAX_FOLDERS {
            self.lists.insert(folder.to_vec(), may);
        }
        may
    }

    /// What no policy can name is denied.
    fn ask(&self, pace: &Pace, action: ReadAction, below: &[u8]) -> Result<(), Denied> {
        if !pace.is_awaited() {
            return Err(Denied::unasked(
                action.into(),
                self.folder.to_string(),
                "nobody waits for the answer any more",
            ));
        }
        let facts = self.facts(below).map_err(|shown| unnamed(action.into(), &shown))?;
        let at = narrowed(pace, &self.judge, action, &facts, self.at());
        self.judge.read_path(action, &facts, at).map(drop)
    }

    /// The same, where nobody is told why not.
    fn allows(&self, pace: &Pace, action: ReadAction, below: &[u8]) -> bool {
        pace.is_awaited()
            && self.facts(below).is_ok_and(|facts| {
                let at = narrowed(pace, &self.judge, action, &facts, self.at());
                self.judge.allows_read(action, &facts, at)
            })
    }

    fn at(&self) -> At<'_> {
        At { revision: &self.revision, leading: &self.leading }
    }

    /// The path `below` the folder, or how to show it where it has no name.
    fn facts(&self, below: &[u8]) -> Result<PathFacts, String> {
        let path = below_folder(&self.folder, below)?;
        Ok(self.control.path_facts(&self.caller, &path, branch_of(&self.revision)))
    }

    /// That every path of the folder in that version may be read. A denial is on the audit. Blocks.
    ///
    /// # Errors
    /// With the first denial, or when the store cannot be read.
    pub(super) fn all(&self, pace: &Pace, store: &Store, version: &VersionId) -> Result<(), ApiError> {
        let refused = self.first_denied(pace, store, version)?;
        self.answer(Asked { refused, ..Asked::default() })
    }

    /// The first denial of [`Readable::all`]. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn first_denied(
        &self,
        pace: &Pace,
        store: &Store,
        version: &VersionId,
    ) -> Result<Option<Denied>, ApiError> {
        if !self.decides || store.entry(Some(version), self.folder.inner())?.is_none_or(|entry| entry.size.is_some()) {
            return Ok(None);
        }
        let mut asked = Asked::default();
        store.each_path(Some(version), self.folder.inner(), &mut |below| {
            self.next(pace, &mut asked, below);
            asked.refused.is_none()
        })?;
        Ok(asked.refused)
    }

    /// As [`Readable::all`], of those paths alone in which two versions differ.
    ///
    /// # Errors
    /// As [`Readable::all`].
    pub(super) fn changed(
        &self,
        pace: &Pace,
        store: &Store,
        from: Option<&VersionId>,
        to: &VersionId,
    ) -> Result<(), ApiError> {
        if !self.decides {
            return Ok(());
        }
        let (inner, real) = (self.folder.inner(), bytes_of(self.folder.inner()));
        let mut asked = Asked::default();
        store.changed_paths(from, to, inner, &mut |path, _now| {
            let below = path.strip_prefix(&*real).unwrap_or(path);
            match below.strip_prefix(b"/").unwrap_or(below) {
                [] => {}
                below => self.next(pace, &mut asked, below),
            }
            if asked.refused.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.answer(asked)
    }

    fn next(&self, pace: &Pace, asked: &mut Asked, below: &[u8]) {
        asked.count += 1;
        asked.refused = if asked.count > MAX_PATHS {
            let reason = format!("more than {MAX_PATHS} paths are below it, too many to ask policy about each");
            Some(Denied::unasked(self.action.into(), self.folder.to_string(), reason))
        } else {
            self.ask(pace, self.action, below).err()
        };
    }

    fn answer(&self, asked: Asked) -> Result<(), ApiError> {
        match asked.refused {
            None => Ok(()),
            Some(denied) => self.control.wait(self.control.permit(&self.caller, Err(denied))),
        }
    }
}

/// How far a check of many paths has come.
#[derive(Debug, Default)]
struct Asked {
    count: usize,
    refused: Option<Denied>,
}
