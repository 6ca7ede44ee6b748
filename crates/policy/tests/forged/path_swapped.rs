//! E0616: a permit's fields are private.
use bailey_policy::PathReadPermit;

pub fn forge(permit: &mut PathReadPermit, other: &PathReadPermit) {
    permit.path = other.path().clone();
}
