//! E0451: a permit's fields are private.
use bailey_policy::{RunCreatePermit, RunPlan};

pub fn forge(real: RunCreatePermit, plan: RunPlan) -> RunCreatePermit {
    RunCreatePermit { plan: RunPlan { root: true, ..plan }, ..real }
}
