//! Which versions of a history its reader is told of. A version is one of a whole store: whoever may see one path that it
//! changed learns that it is there, but not what its message says where it changed others that are hidden from them.

use std::ops::ControlFlow;

use bailey_policy::ReadAction;
use bailey_protocol::api::VersionInfo;
use bailey_protocol::path::{Revision, TreePath, bytes_of};
use bailey_tree::Store;

use super::readable::Readable;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::pace::Pace;
use crate::tree_meta::root_of;

/// Most changed paths that are asked about for one answer. Versions beyond are told without their messages.
const MAX_ASKED: usize = 50_000;
/// In place of a message.
const WITHHELD: &str = "(withheld: it changed paths that you may not read)";

/// Asks about the paths of a store.
#[derive(Debug)]
pub(super) struct Told {
    asked: [Readable; 2],
    left: usize,
}

/// What of a version's changes may be seen.
#[derive(Debug, Default)]
struct Seen {
    shown: bool,
    hidden: bool,
}

impl Told {
    pub(super) async fn new(
        control: &Control,
        caller: &Caller,
        path: &TreePath,
        revision: &Revision,
    ) -> Result<Self, ApiError> {
        let root: TreePath = root_of(path).parse().map_err(ApiError::internal)?;
        let of = async |action| Readable::new(control, caller, action, &root, revision).await;
        let asked = [of(ReadAction::History).await?, of(ReadAction::Read).await?];
        Ok(Self { asked, left: MAX_ASKED })
    }

    /// Whether there is anything to ask about.
    pub(super) fn decides(&self) -> bool {
        self.asked.iter().any(Readable::decides)
    }

    /// Leaves out versions that changed nothing below `inner` that may be seen, and messages of those that changed
    /// anything that may not. Blocks.
    pub(super) fn tell(
        &mut self,
        pace: &Pace,
        store: &Store,
        inner: &str,
        versions: Vec<VersionInfo>,
    ) -> Result<Vec<VersionInfo>, ApiError> {
        if !self.decides() {
            return Ok(versions);
        }
        let mut told = Vec::with_capacity(versions.len());
        for version in versions {
            let seen = self.look(pace, store, inner, &version)?;
            if seen.hidden && !seen.shown {
                continue;
            }
            let message = if seen.hidden { WITHHELD.to_owned() } else { version.message };
            told.push(VersionInfo { message, ..version });
        }
        Ok(told)
    }

    /// Leaves out messages alone. Blocks.
    pub(super) fn messages(
        &mut self,
        pace: &Pace,
        store: &Store,
        mut versions: Vec<VersionInfo>,
    ) -> Result<Vec<VersionInfo>, ApiError> {
        if self.decides() {
            for version in &mut versions {
                if self.look(pace, store, "", version)?.hidden {
                    WITHHELD.clone_into(&mut version.message);
                }
            }
        }
        Ok(versions)
    }

    fn look(&mut self, pace: &Pace, store: &Store, inner: &str, version: &VersionInfo) -> Result<Seen, ApiError> {
        let Self { asked, left } = self;
        let mut seen = Seen::default();
        store.changed_paths(version.parents.first(), &version.version, "", &mut |path, _now| {
            if path.is_empty() {
                return ControlFlow::Continue(());
            }
            let Some(less) = left.checked_sub(1) else {
                seen = Seen { shown: true, hidden: true };
                return ControlFlow::Break(());
            };
            *left = less;
            if asked.iter_mut().all(|readable| readable.shows(pace, path)) {
                seen.shown |= is_at_or_below(path, &bytes_of(inner));
            } else {
                seen.hidden = true;
            }
            if seen.shown && seen.hidden { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(seen)
    }
}

fn is_at_or_below(path: &[u8], inner: &[u8]) -> bool {
    inner.is_empty() || path.strip_prefix(inner).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_goes_by_whole_names() {
        for (path, inner, expected) in
            [("a/b", "", true), ("a/b", "a", true), ("a", "a", true), ("ab", "a", false), ("a", "a/b", false)]
        {
            assert_eq!(is_at_or_below(path.as_bytes(), inner.as_bytes()), expected, "{path} {inner}");
        }
    }
}
