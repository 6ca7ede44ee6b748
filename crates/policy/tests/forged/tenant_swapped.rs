//! E0616: a permit's fields are private.
use bailey_policy::{Principal, RunListPermit};

pub fn forge(permit: &mut RunListPermit, other: Principal) {
    permit.grant.tenant = other.tenant;
}
