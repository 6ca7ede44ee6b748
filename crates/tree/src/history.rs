//! How a path came to be what it is: along first parents, which are the versions that a branch had.

use bailey_protocol::api::VersionInfo;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;
use gix_hash::ObjectId;

use crate::commit::Commit;
use crate::error::TreeError;
use crate::object::{self, Mode, object_id, version_id};
use crate::store::Store;
use crate::{name, path};

/// Most versions that one call looks at: a long history without the path answers early, with a place to go on.
const MAX_SCAN: usize = 10_000;
/// Most entries of folders that one call looks through.
const MAX_ENTRIES: usize = 20_000_000;

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
        let real = bytes_of(inner);
        let names = path::parse_inner(&real)?;
        let mut found = Vec::new();
        let mut last = after.cloned();
        let mut next = match after {
            None => Some(object_id(head.as_str())),
            Some(after) => self.commit_of(after)?.parents.first().copied(),
        };
        let (mut trail, mut looked_at) = (None, 0);
        for _ in 0..MAX_SCAN {
            let Some(id) = next else {
                return Ok((found, None));
            };
            if found.len() >= limit || looked_at > MAX_ENTRIES {
                break;
            }
            let commit = self.commit_of(&version_id(&id))?;
            next = commit.parents.first().copied();
            if names.is_empty() {
                found.push(self.told(describe(&id, &commit)));
            } else {
                let now = match trail.take() {
                    Some(known) => known,
                    None => self.trail(&commit.tree, &names, &[], &mut looked_at)?,
                };
                let before = match &next {
                    Some(parent) => {
                        let root = self.commit_of(&version_id(parent))?.tree;
                        self.trail(&root, &names, &now, &mut looked_at)?
                    }
                    None => Vec::new(),
                };
                let end = |trail: &[Step]| trail.get(names.len()).copied();
                if end(&now) != end(&before) {
                    found.push(self.told(describe(&id, &commit)));
                }
                trail = Some(before);
            }
            last = Some(version_id(&id));
        }
        Ok((found, last.filter(|_| next.is_some())))
    }

    /// A version as it is told: made by a run where Bailey says so.
    pub(crate) fn told(&self, version: VersionInfo) -> VersionInfo {
        let claimed = self.repo.claims.contains(&object_id(version.version.as_str()));
        VersionInfo { run: version.run.filter(|_| !claimed), ..version }
    }

    /// What is on the way to a path, the root first, as far as there is anything. From where it is the same as in
    /// `known` on, nothing is read.
    fn trail(
        &self,
        root: &ObjectId,
        names: &[&[u8]],
        known: &[Step],
        looked_at: &mut usize,
    ) -> Result<Vec<Step>, TreeError> {
        let mut trail = vec![(Mode::Tree, *root)];
        for name in names {
            let at = trail.len() - 1;
            let Some((Mode::Tree, folder)) = trail.last().copied() else { break };
            if known.get(at) == trail.last() {
                trail.extend_from_slice(known.get(at + 1..).unwrap_or_default());
                break;
            }
            let tree = self.objects().known_tree(&folder)?;
            *looked_at += tree.entries.len();
            let Some(item) = object::find(&tree, &name::escape(name)) else { break };
            trail.push((item.mode.kind(), item.oid));
        }
        Ok(trail)
    }
}

/// One thing on the way to a path.
type Step = (Mode, ObjectId);

pub(crate) fn describe(id: &ObjectId, commit: &Commit) -> VersionInfo {
    VersionInfo {
        version: version_id(id),
        parents: commit.parents.iter().map(version_id).collect(),
        author: commit.author.clone(),
        time_ms: commit.time_ms,
        message: commit.message.clone(),
        run: commit.run.clone(),
    }
}
