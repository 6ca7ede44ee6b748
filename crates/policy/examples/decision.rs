//! How long one decision takes, facts and validation included, with 10,000 tenants asking in turn.
//!
//! `cargo run --release -p bailey-policy --example decision` prints one JSON object (microseconds). The goal is
//! 30 µs; there is nothing outside Bailey to compare it with.
#![allow(clippy::print_stdout, reason = "a benchmark prints its numbers")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use bailey_policy::{Entitlement, Policies, Principal, ReadAction, RunPlan};
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_protocol::wall::WallKind;

const TENANTS: usize = 10_000;
const DECISIONS: usize = 100_000;
const GOAL_US: f64 = 30.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // As an operator would have them: the base rules and a few more.
    let operator = r#"
        @id("root-for-admins") forbid (principal, action == Action::"run_as_root", resource)
        unless { principal.roles.contains("admin") };
        @id("archive-is-closed") forbid (principal, action in [Action::"tree_write", Action::"mount_write"], resource)
        when { resource.path like "*/archive/*" };
        @id("no-old-template") forbid (principal, action == Action::"run_create", resource)
        when { resource.template == Template::"old" };
    "#;
    let policies = Policies::new(&[("operator.cedar".to_owned(), operator.to_owned())])?;
    let tenants = (0..TENANTS).map(tenant).collect::<Result<Vec<_>, _>>()?;
    let plan = RunPlan { wall: WallKind::Container, template: "base".parse()?, root: false };
    let main_branch = Revision::Branch(BranchName::main());
    let mut took = Vec::with_capacity(DECISIONS);
    for (n, (who, path)) in tenants.iter().cycle().take(DECISIONS).enumerate() {
        let begin = Instant::now();
        let allowed = if n % 2 == 0 {
            policies.read_path(who, ReadAction::Mount, path, &main_branch).is_ok()
        } else {
            policies.create_run(who, &plan).is_ok()
        };
        took.push(begin.elapsed());
        if !allowed {
            return Err("a decision went wrong".into());
        }
    }
    took.sort_unstable();
    let at = |share: usize| took.get(DECISIONS * share / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
    let (p50, p99) = (at(50), at(99));
    println!(
        r#"{{"name":"policy decision, {TENANTS} tenants","unit":"us","n":{DECISIONS},"p50":{p50:.2},"p99":{p99:.2},"goal":{GOAL_US},"met":{}}}"#,
        p50 <= GOAL_US
    );
    Ok(())
}

fn tenant(n: usize) -> Result<(Principal, TreePath), Box<dyn std::error::Error>> {
    let principal = Principal {
        tenant: format!("tenant-{n}").parse()?,
        user: "ana".parse()?,
        roles: ["member".to_owned()].into(),
        entitlements: Entitlement::ALL.into(),
        run: None,
    };
    Ok((principal, format!("/tenants/tenant-{n}/reports/q1").parse()?))
}
