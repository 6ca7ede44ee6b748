//! E0451: a scope's fields are private.
use bailey_policy::{PathReadPermit, StoreScope};

pub fn forge(real: &PathReadPermit, wanted: &PathReadPermit) -> StoreScope {
    StoreScope { repo: wanted.path().repo().clone(), revision: real.revision().clone() }
}
