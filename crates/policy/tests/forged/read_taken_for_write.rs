//! E0308: a permit opens what its type says.
use bailey_policy::{PathReadPermit, PathWritePermit};

pub fn forge(permit: PathReadPermit) -> PathWritePermit {
    permit
}
