//! How a path came to be what it is: along first parents, which are the versions that a branch had.

use std::sync::Arc;

use bailey_protocol::api::VersionInfo;
use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::commit::Commit;
use crate::error::TreeError;
use crate::object::{Mode, object_id, version_id};
use crate::store::{Found, Store};

/// Most versions that one call looks at: a long history without the path answers early, with a place to go on.
const MAX_SCAN: usize = 10_000;

impl Store {
    /// The versions, newest first, in which `inner` became what it was then; all versions for the root. At most
    /// `limit`, beginning after the version `after`; the second value is the `after` of the next call, if there is more.
    ///
    /// # Errors
    /// When a version is not here, the path cannot be one, or storage fails.
    pub fn history(
        &self,
        head: &VersionId,
        inner: &str,
        limit: usize,
        after: Option<&VersionId>,
    ) -> Result<(Vec<VersionInfo>, Option<VersionId>), TreeError> {
        let mut found = Vec::new();
        let mut last = after.cloned();
        let mut next = match after {
            None => Some(object_id(head.as_str())),
            Some(after) => self.commit_of(after)?.parents.first().copied(),
        };
        for _ in 0..MAX_SCAN {
            let Some(id) = next else {
                return Ok((found, None));
            };
            if found.len() >= limit {
                break;
            }
            let commit = self.commit_of(&version_id(&id))?;
            next = commit.parents.first().copied();
            if self.changed(&commit, next.as_ref(), inner)? {
                found.push(describe(&id, &commit));
            }
            last = Some(version_id(&id));
        }
        Ok((found, last.filter(|_| next.is_some())))
    }

    fn changed(&self, commit: &Commit, parent: Option<&ObjectId>, inner: &str) -> Result<bool, TreeError> {
        if inner.is_empty() {
            return Ok(true);
        }
        let before: Option<Arc<Commit>> = parent.map(|id| self.commit_of(&version_id(id))).transpose()?;
        let before = before.map(|before| self.content_at(&before.tree, inner)).transpose()?.flatten();
        Ok(self.content_at(&commit.tree, inner)? != before)
    }

    fn content_at(&self, root: &ObjectId, inner: &str) -> Result<Option<(Mode, ObjectId)>, TreeError> {
        Ok(self.find(root, inner)?.map(|found| match found {
            Found::Folder(id) => (Mode::Tree, id),
            Found::File(item) => (item.mode.kind(), item.oid),
        }))
    }
}

fn describe(id: &ObjectId, commit: &Commit) -> VersionInfo {
    VersionInfo {
        version: version_id(id),
        parents: commit.parents.iter().map(version_id).collect(),
        author: commit.author.clone(),
        time_ms: commit.time_ms,
        message: commit.message.clone(),
        run: commit.run.clone(),
    }
}
