//! E0451: a permit's fields are private.
use bailey_policy::PathReadPermit;

pub fn forge(real: PathReadPermit, other: &PathReadPermit) -> PathReadPermit {
    PathReadPermit { path: other.path().clone(), ..real }
}
