//! The decisions about tokens for a part of a tree.

use super::Judge;
use crate::action::Action;
use crate::denied::Denied;
use crate::facts::PathFacts;
use crate::permit::{SharePermit, UnsharePermit};

impl Judge {
    /// May it hand out a token for `path`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn share(&self, path: &PathFacts) -> Result<SharePermit, Denied> {
        let grant = self.on_path(Action::TreeShare, path, Vec::new())?;
        Ok(SharePermit { grant, path: path.path.clone() })
    }

    /// May it see its tokens for `path`, and take them back?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn unshare(&self, path: &PathFacts) -> Result<UnsharePermit, Denied> {
        let grant = self.on_path(Action::TreeUnshare, path, Vec::new())?;
        Ok(UnsharePermit { grant, path: path.path.clone() })
    }
}
