//! CPU time among tenants: each has one weight, whatever the number of its cages.

use bailey_protocol::id::ShareTag;
use bailey_protocol::jail::JailFault;

use super::Fleet;
use crate::cgroup::weight;

impl Fleet {
    /// Divides the weight of `share` among the cages that have it now. What they are is read off the cages, so nothing of
    /// a share is left when its last cage is gone.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub(super) fn divide(&mut self, share: &ShareTag) -> Result<(), JailFault> {
        let has = |cage: &crate::cage::Cage| cage.share.as_ref() == Some(share);
        let each = weight::of_each(self.cages.values().filter(|cage| has(cage)).count());
        let mut cages = self.cages.values_mut().filter(|cage| has(cage));
        cages.try_for_each(|cage| cage.group.set_weight(&self.shop.tree, each))
    }
}
