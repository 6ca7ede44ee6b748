//! E0451: a permit's fields are private.
use bailey_policy::{PathReadPermit, PathWritePermit};

pub fn forge(real: PathWritePermit, wanted: &PathReadPermit) -> PathWritePermit {
    PathWritePermit { path: wanted.path().clone(), ..real }
}
