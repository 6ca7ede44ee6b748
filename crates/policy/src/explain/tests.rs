use bailey_protocol::id::RunId;
use bailey_protocol::limits::Limits;
use bailey_protocol::path::{BranchName, Revision};
use bailey_protocol::wall::WallKind;

use super::*;
use crate::action::Action;
use crate::facts::{PathFacts, RunFacts, RunPlan, TenantFacts};
use crate::judge::{AdminAction, ReadAction};
use crate::principal::Principal;

const NOON: u64 = 1_750_000_000_000;

fn operator(text: &str) -> Policies {
    Policies::new(&[("operator.cedar".to_owned(), text.to_owned())]).unwrap()
}

fn ana() -> Principal {
    Principal::new("acme".parse().unwrap(), "ana".parse().unwrap())
}

fn plan() -> RunPlan {
    let template = "base".parse().unwrap();
    RunPlan { wall: WallKind::Container, template, root: false, limits: Limits::default() }
}

fn shown(changes: &[Change]) -> Vec<String> {
    changes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_denial_says_which_attribute_would_have_to_be_another() {
    let denied = Policies::new(&[]).unwrap().judge(&ana(), NOON).admin(AdminAction::UserList).unwrap_err();
    assert_eq!(shown(&denied.flip), [r#"`principal.roles` were ["admin"]"#]);
    let poor = Principal { entitlements: [].into(), ..ana() };
    let denied = Policies::new(&[]).unwrap().judge(&poor, NOON).create_run(&plan()).unwrap_err();
    assert_eq!(shown(&denied.flip), [r#"`principal.entitlements` were ["execute"]"#]);
    let big = operator(
        r#"@id("big") forbid (principal, action == Action::"run_create", resource)
           when { resource.memory_bytes > 1000 };"#,
    );
    let denied = big.judge(&ana(), NOON).create_run(&plan()).unwrap_err();
    assert_eq!(shown(&denied.flip), ["`resource.memory_bytes` were 1000"]);
}

#[test]
fn two_rules_take_two_changes_and_one_that_suffices_is_preferred() {
    let policies = operator(
        r#"@id("a") forbid (principal, action == Action::"run_create", resource)
           when { resource.memory_bytes > 1000 };
           @id("b") forbid (principal, action == Action::"run_create", resource)
           unless { principal has region && principal.region == "eu" };"#,
    );
    let judge = policies.judge(&ana(), NOON);
    let found = judge.explain_plan(Action::RunCreate, &plan());
    assert_eq!(found.policies, ["a", "b"]);
    let mut changes = shown(&found.changes);
    changes.sort();
    assert_eq!(changes, [r#"`principal.region` were "eu""#, "`resource.memory_bytes` were 1000"]);
    assert!(found.searched.complete && found.searched.at_once == 2, "{found:?}");
    // With each change made, the answer is the other one.
    let eu = Principal { region: Some("eu".to_owned()), ..ana() };
    let found = policies.judge(&eu, NOON).explain_plan(Action::RunCreate, &plan());
    assert_eq!(shown(&found.changes), ["`resource.memory_bytes` were 1000"]);
    let small = RunPlan { limits: Limits { memory_bytes: 1000, ..Limits::default() }, ..plan() };
    policies.judge(&eu, NOON).create_run(&small).unwrap();
}

#[test]
fn an_allowed_request_is_explained_as_well() {
    let policies = operator(
        r#"@id("night") forbid (principal, action, resource)
           when { context.time.toTime() >= duration("20h") };"#,
    );
    // 15:06 UTC.
    let found = policies.judge(&ana(), NOON).explain_tenant(Action::RunList);
    assert!(found.allowed);
    assert_eq!(found.policies, ["own-tenant"]);
    let by = policies.judge(&ana(), NOON + 5 * 3_600_000).list_runs().unwrap_err();
    assert_eq!(by.policies, ["night"]);
    assert_eq!(by.flip.len(), 1, "{by:?}");
    assert_eq!(by.flip.first().unwrap().attribute, "context.time");
}

#[test]
fn a_path_rule_and_a_label_rule_are_explained() {
    let policies = operator(
        r#"@id("plans") forbid (principal, action == Action::"tree_read", resource)
           when { resource.path like "/tenants/acme/plans/*" && !principal.roles.contains("planner") };
           @id("secret") forbid (principal, action == Action::"tree_read", resource)
           when { resource.labels.contains("secret") };"#,
    );
    let judge = policies.judge(&ana(), NOON);
    let at = Revision::Branch(BranchName::main());
    let plans = PathFacts::plain("/tenants/acme/plans/q1".parse().unwrap());
    let denied = judge.read_path(ReadAction::Read, &plans, &at).unwrap_err();
    assert_eq!(denied.policies, ["plans"]);
    assert_eq!(denied.flip.len(), 1);
    let labels = ["secret".parse().unwrap()].into();
    let secret = PathFacts { labels, ..PathFacts::plain("/tenants/acme/x".parse().unwrap()) };
    let denied = judge.read_path(ReadAction::Read, &secret, &at).unwrap_err();
    assert_eq!(shown(&denied.flip), ["`resource.labels` were []"]);
}

#[test]
fn of_what_is_another_tenants_nothing_is_told() {
    let policies = Policies::new(&[]).unwrap();
    let judge = policies.judge(&ana(), NOON);
    let theirs = PathFacts::plain("/tenants/globex/x".parse().unwrap());
    let denied = judge.read_path(ReadAction::Read, &theirs, &Revision::Branch(BranchName::main())).unwrap_err();
    assert!(denied.flip.is_empty(), "{denied:?}");
    let run = RunFacts::plain(RunId::mint(1, [1; 10]), "globex".parse().unwrap(), ana().user);
    assert!(judge.read_run(&run).unwrap_err().flip.is_empty());
}

#[test]
fn the_tenants_own_attributes_are_looked_at_through_the_user() {
    let policies = operator(
        r#"@id("eu-stays") forbid (principal is User, action == Action::"run_create", resource)
           when { principal.tenant has region && principal.tenant.region == "eu" };"#,
    );
    let eu = TenantFacts { region: Some("eu".to_owned()), plan: None };
    let denied = policies.judge(&ana(), NOON).knowing(eu).create_run(&plan()).unwrap_err();
    assert_eq!(denied.flip.len(), 1, "{denied:?}");
    assert_eq!(denied.flip.first().unwrap().attribute, "principal.tenant.region");
}

#[test]
fn no_search_puts_more_questions_than_it_may() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for n in 0..100 {
        writeln!(
            text,
            r#"@id("r{n}") forbid (principal, action, resource) when {{ principal.roles.contains("bad{n}") }}; "#
        )
        .unwrap();
    }
    let everything = (0..100).map(|n| format!("bad{n}")).collect();
    let all = Principal { roles: everything, ..ana() };
    let found = operator(&text).judge(&all, NOON).explain_tenant(Action::RunList);
    assert!(found.changes.is_empty() && found.searched.asked <= 5000, "{:?}", found.searched);
    let denied = operator(&text).judge(&all, NOON).list_runs().unwrap_err();
    assert!(denied.flip.is_empty());
}
