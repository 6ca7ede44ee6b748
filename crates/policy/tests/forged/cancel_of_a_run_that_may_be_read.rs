//! E0451: a permit's fields are private.
use bailey_policy::{RunCancelPermit, RunReadPermit};

pub fn forge(real: RunReadPermit) -> RunCancelPermit {
    RunCancelPermit { facts: real.facts().clone(), grant: loop {} }
}
