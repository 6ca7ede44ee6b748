//! What an operator publishes for every tenant: a store of its own, in a folder beside the tenants' that no path of theirs
//! leads to. Nothing there is ever collected as garbage or mounted; a tenant's store takes in copies.

use bailey_protocol::path::RepoId;

use crate::error::TreeError;
use crate::store::Store;
use crate::trees::Trees;

impl Trees {
    /// The store of what is published, in the folder `baselines` beside that of these stores. Call it once: two handles
    /// from two calls do not see each other's writes.
    ///
    /// # Errors
    /// When the folder cannot be made, or leftovers of an earlier process cannot be removed.
    pub fn published(&self) -> Result<Store, TreeError> {
        let tenant = "baselines".parse().expect("`baselines` is a name");
        Self::open(&self.root().with_file_name("baselines"))?.store(&RepoId { tenant, user: None })
    }
}
