//! E0451: a permit's fields are private.
use bailey_policy::{RunFacts, RunReadPermit};

pub fn forge(real: RunReadPermit, facts: RunFacts) -> RunReadPermit {
    RunReadPermit { facts, ..real }
}
