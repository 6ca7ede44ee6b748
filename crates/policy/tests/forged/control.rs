//! compiles: what the others would do if they could, done the allowed way.
use bailey_policy::{Denied, ForeignStore, PathReadPermit, PathWritePermit, Policies, Principal, RunCreatePermit, RunPlan, StoreScope};

pub fn ask(policies: &Policies, who: &Principal, plan: &RunPlan) -> Result<RunCreatePermit, Denied> {
    policies.judge(who, 0).create_run(plan)
}

pub fn read(permit: &PathReadPermit) -> Result<StoreScope, ForeignStore> {
    let _ = (permit.path().clone(), permit.revision().clone(), permit.grant().policies());
    permit.scope()
}

pub fn write(permit: &PathWritePermit) -> Result<StoreScope, ForeignStore> {
    permit.scope()
}
