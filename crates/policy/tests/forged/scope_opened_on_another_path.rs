//! E0624: only a permit opens a scope.
use bailey_policy::{PathReadPermit, StoreScope};

pub fn forge(real: &PathReadPermit, wanted: &PathReadPermit) -> Option<StoreScope> {
    StoreScope::open(real.grant(), wanted.path(), wanted.revision().clone()).ok()
}
