use super::*;
use crate::principal::Entitlement;

const ALLOW_ALL: &str = "permit (principal, action, resource);";

fn principal(tenant: &str, user: &str) -> Principal {
    Principal {
        tenant: tenant.parse().unwrap(),
        user: user.parse().unwrap(),
        roles: ["member".to_owned()].into(),
        entitlements: Entitlement::ALL.into(),
        run: None,
    }
}

fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

fn main_branch() -> Revision {
    Revision::Branch(BranchName::main())
}

fn plan() -> RunPlan {
    RunPlan { wall: WallKind::Container, template: "base".parse().unwrap(), root: false }
}

fn operator(text: &str) -> Result<Policies, PolicyError> {
    Policies::new(&[("operator.cedar".to_owned(), text.to_owned())])
}

const READS: [ReadAction; 5] =
    [ReadAction::Read, ReadAction::List, ReadAction::History, ReadAction::Diff, ReadAction::Mount];
const WRITES: [WriteAction; 3] = [WriteAction::Write, WriteAction::Delete, WriteAction::Mount];

/// Every decision on a path, as the policies that denied it.
fn on_path(policies: &Policies, who: &Principal, target: &TreePath) -> Vec<Result<(), Denied>> {
    let version = Revision::Version("0".repeat(40).parse().unwrap());
    let reads = READS.into_iter().flat_map(|action| {
        [main_branch(), version.clone()].map(|at| policies.read_path(who, action, target, &at).map(|_permit| ()))
    });
    let writes = WRITES
        .into_iter()
        .map(|action| policies.write_path(who, action, target, &BranchName::main()).map(|_permit| ()));
    reads.chain(writes).collect()
}

#[test]
fn a_user_may_everything_in_its_tenant_and_its_own_folder() {
    let policies = Policies::new(&[]).unwrap();
    let ana = principal("acme", "ana");
    for target in
        ["/tenants/acme", "/tenants/acme/reports/q1.csv", "/tenants/acme/users/ana", "/tenants/acme/users/ana/x"]
    {
        for answer in on_path(&policies, &ana, &path(target)) {
            answer.unwrap();
        }
    }
    let permit = policies.create_run(&ana, &RunPlan { root: true, ..plan() }).unwrap();
    assert_eq!(permit.grant().policies(), ["own-tenant"]);
    policies.list_runs(&ana).unwrap();
    let facts = RunFacts { run: RunId::mint(1, [1; 10]), tenant: ana.tenant.clone(), user: ana.user.clone() };
    assert_eq!(policies.read_run(&ana, &facts).unwrap().facts(), &facts);
    policies.cancel_run(&ana, &facts).unwrap();
}

#[test]
fn another_tenants_path_is_denied_by_the_base_rule_whatever_it_names() {
    let policies = Policies::new(&[]).unwrap();
    let ana = principal("acme", "ana");
    for target in ["/tenants/globex", "/tenants/globex/no/such", "/tenants/acme2/x", "/tenants/acm/x"] {
        for answer in on_path(&policies, &ana, &path(target)) {
            let denied = answer.unwrap_err();
            assert_eq!(denied.policies, ["own-tenant-only"]);
            assert_eq!(denied.reason, "it belongs to another tenant");
            assert!(!denied.broken);
        }
    }
}

#[test]
fn a_user_of_the_same_name_in_another_tenant_is_somebody_else() {
    let policies = Policies::new(&[]).unwrap();
    let ana = principal("acme", "ana");
    for answer in on_path(&policies, &ana, &path("/tenants/globex/users/ana/x")) {
        assert_eq!(answer.unwrap_err().policies, ["own-folder-only", "own-tenant-only"]);
    }
}

#[test]
fn a_users_folder_and_runs_are_for_that_user_only() {
    let policies = Policies::new(&[]).unwrap();
    let bob = principal("acme", "bob");
    for answer in on_path(&policies, &bob, &path("/tenants/acme/users/ana/notes")) {
        assert_eq!(answer.unwrap_err().policies, ["own-folder-only"]);
    }
    let facts = RunFacts { run: RunId::mint(1, [1; 10]), tenant: bob.tenant.clone(), user: "ana".parse().unwrap() };
    assert_eq!(policies.read_run(&bob, &facts).unwrap_err().policies, ["own-run-only"]);
    assert_eq!(policies.cancel_run(&bob, &facts).unwrap_err().policies, ["own-run-only"]);
}

#[test]
fn a_missing_entitlement_is_named() {
    let policies = Policies::new(&[]).unwrap();
    let runner = Principal { entitlements: [Entitlement::Execute].into(), ..principal("acme", "ana") };
    policies.create_run(&runner, &plan()).unwrap();
    for answer in on_path(&policies, &runner, &path("/tenants/acme/x")) {
        let denied = answer.unwrap_err();
        assert_eq!(denied.policies, ["entitled-to-tree"]);
        assert!(denied.to_string().contains("`tree`"), "{denied}");
    }
    let reader = Principal { entitlements: [Entitlement::Tree].into(), ..principal("acme", "ana") };
    let facts = RunFacts { run: RunId::mint(1, [1; 10]), tenant: reader.tenant.clone(), user: reader.user.clone() };
    for denied in [
        policies.create_run(&reader, &plan()).unwrap_err(),
        policies.list_runs(&reader).unwrap_err(),
        policies.read_run(&reader, &facts).unwrap_err(),
        policies.cancel_run(&reader, &facts).unwrap_err(),
    ] {
        assert_eq!(denied.policies, ["entitled-to-execute"]);
        assert!(denied.reason.contains("`execute`"), "{denied}");
    }
}

#[test]
fn an_operator_permit_never_opens_another_tenant() {
    let policies = operator(r#"@id("open-wide") permit (principal, action, resource);"#).unwrap();
    for answer in on_path(&policies, &principal("acme", "ana"), &path("/tenants/globex/x")) {
        assert_eq!(answer.unwrap_err().policies, ["own-tenant-only"]);
    }
}

#[test]
fn an_operator_forbid_is_named_with_its_reason_or_without() {
    let policies = operator(
        r#"@id("no-root") @reason("root is for admins") forbid (principal, action == Action::"run_as_root", resource)
           unless { principal.roles.contains("admin") };
           forbid (principal, action, resource is Sandbox) when { resource.template == Template::"old" };
           @id("runs-stay-off-main") forbid (principal, action == Action::"tree_write", resource)
           when { context has run && context.branch == "main" };"#,
    )
    .unwrap();
    let ana = principal("acme", "ana");
    policies.create_run(&ana, &plan()).unwrap();
    let denied = policies.create_run(&ana, &RunPlan { root: true, ..plan() }).unwrap_err();
    assert_eq!((denied.action, denied.reason.as_str()), (Action::RunAsRoot, "root is for admins"));
    let admin = Principal { roles: ["admin".to_owned()].into(), ..ana.clone() };
    policies.create_run(&admin, &RunPlan { root: true, ..plan() }).unwrap();
    let old = RunPlan { template: "old".parse().unwrap(), ..plan() };
    let denied = policies.create_run(&ana, &old).unwrap_err();
    assert_eq!(denied.policies, ["operator.cedar#policy1"]);
    assert_eq!(denied.reason, "policy `operator.cedar#policy1` forbids it");
    let by_run = Principal { run: Some(RunId::mint(1, [1; 10])), ..ana.clone() };
    let target = path("/tenants/acme/x");
    policies.write_path(&ana, WriteAction::Write, &target, &BranchName::main()).unwrap();
    policies.write_path(&by_run, WriteAction::Write, &target, &"draft".parse().unwrap()).unwrap();
    let denied = policies.write_path(&by_run, WriteAction::Write, &target, &BranchName::main()).unwrap_err();
    assert_eq!(denied.policies, ["runs-stay-off-main"]);
}

#[test]
fn c01_a_forbid_on_an_attribute_that_may_be_missing_is_refused_at_load() {
    for text in [
        r#"forbid (principal, action, resource) when { resource.classification == "secret" };"#,
        r#"forbid (principal, action, resource is Path) when { resource.owner == principal };"#,
        r#"forbid (principal, action, resource) when { context.branch == "main" };"#,
    ] {
        assert!(matches!(operator(text), Err(PolicyError::Invalid { .. })), "{text}");
    }
}

#[test]
fn c03_a_forbid_that_overflows_denies() {
    let text = r#"@id("overflows") forbid (principal, action, resource) when { 9223372036854775807 + 1 > 0 };"#;
    let policies = operator(text).unwrap();
    let denied = policies.create_run(&principal("acme", "ana"), &plan()).unwrap_err();
    assert!(denied.broken);
    assert_eq!(denied.policies, ["overflows"]);
}

#[test]
fn c03_an_error_denies_even_beside_a_permit_of_everything() {
    let policies = Policies::weakened(
        r#"permit (principal, action, resource);
           @id("broken") permit (principal, action, resource) when { 9223372036854775807 + 1 > 0 };"#,
        &[],
    )
    .unwrap();
    let denied = policies.list_runs(&principal("acme", "ana")).unwrap_err();
    assert_eq!((denied.broken, denied.policies.as_slice()), (true, ["broken".to_owned()].as_slice()));
}

#[test]
fn c05_types_that_can_never_match_are_refused_at_load() {
    for text in [
        r#"forbid (principal, action, resource) when { principal.name == 0 };"#,
        r#"forbid (principal, action, resource) when { principal == "acme/ana" };"#,
        r#"forbid (principal, action, resource) when { principal.roles.contains(1) };"#,
        r#"forbid (principal == App::User::"x", action, resource);"#,
        r#"forbid (principal, action == Action::"tree_raed", resource);"#,
        r#"forbid (principal == user::"x", action, resource);"#,
    ] {
        assert!(matches!(operator(text), Err(PolicyError::Invalid { .. })), "{text}");
    }
}

#[test]
fn c05_facts_that_do_not_fit_the_schema_are_a_deny() {
    let policies = Policies::new(&[]).unwrap();
    let ana = principal("acme", "ana");
    // A run's facts put where a path belongs: the request never reaches a policy.
    let facts = RunFacts { run: RunId::mint(1, [1; 10]), tenant: ana.tenant.clone(), user: ana.user.clone() };
    let denied = policies.authorize(&ana, Action::TreeRead, "x", None, policies.words.run(&facts)).unwrap_err();
    assert!(denied.broken && denied.policies.is_empty(), "{denied:?}");
    // A branch where none belongs.
    let target = policies.words.tenant(&ana.tenant);
    let denied = policies.authorize(&ana, Action::RunList, "x", Some(&BranchName::main()), target).unwrap_err();
    assert!(denied.broken, "{denied:?}");
    // A missing branch where one is needed.
    let target = policies.words.path(&path("/tenants/acme/x"));
    let denied = policies.authorize(&ana, Action::TreeWrite, "x", None, target).unwrap_err();
    assert!(denied.broken, "{denied:?}");
}

#[test]
fn a_set_that_cannot_be_used_is_refused_and_says_why() {
    let big = format!("//{}", "x".repeat(MAX_FILE_BYTES));
    for (text, wanted) in [
        ("permit (", "does not parse"),
        (r#"permit (principal == ?principal, action, resource);"#, "holds a template"),
        (r#"@id("own-tenant-only") permit (principal, action, resource);"#, "is taken"),
        (big.as_str(), "larger than 1 MiB"),
    ] {
        let error = operator(text).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("operator.cedar"), "{error}");
    }
}

#[test]
fn an_empty_base_permits_nothing() {
    let policies = Policies::weakened("", &[]).unwrap();
    let denied = policies.list_runs(&principal("acme", "ana")).unwrap_err();
    assert_eq!(denied.reason, "no policy permits it");
    assert!(denied.policies.is_empty());
}

#[test]
fn with_every_rule_gone_a_permit_still_opens_no_foreign_store() {
    let policies = Policies::weakened(ALLOW_ALL, &[]).unwrap();
    let ana = principal("acme", "ana");
    for target in ["/tenants/globex/x", "/tenants/globex/users/ana/x", "/tenants/acme/users/bob/x", "/tenants/globex"] {
        let target = path(target);
        let read = policies.read_path(&ana, ReadAction::Read, &target, &main_branch()).unwrap();
        assert_eq!(read.scope().unwrap_err().path, target.as_str());
        let write = policies.write_path(&ana, WriteAction::Write, &target, &BranchName::main()).unwrap();
        assert!(write.scope().is_err());
    }
    for target in ["/tenants/acme/x", "/tenants/acme/users/ana/x"] {
        let target = path(target);
        let read = policies.read_path(&ana, ReadAction::Read, &target, &main_branch()).unwrap();
        assert_eq!(read.scope().unwrap().repo(), target.repo());
    }
}

#[test]
fn base_policies_have_an_id_and_forbids_a_reason() {
    let policies = Policies::new(&[]).unwrap();
    for policy in policies.set.policies() {
        assert!(!policy.id().to_string().contains('#'), "{policy}");
        let forbid = policy.effect() == cedar_policy::Effect::Forbid;
        assert_eq!(policy.annotation("reason").is_some(), forbid, "{policy}");
    }
}

#[test]
fn every_action_is_in_the_schema_and_in_one_group() {
    let policies = Policies::new(&[]).unwrap();
    let mut named: Vec<_> = policies.schema.actions().map(|action| action.id().unescaped().to_owned()).collect();
    let mut wanted: Vec<_> = Action::ALL.iter().map(|action| action.as_str().to_owned()).collect();
    wanted.extend(["tree".to_owned(), "execute".to_owned()]);
    named.sort();
    wanted.sort();
    assert_eq!(named, wanted);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Whoever asks for whatever: allowed exactly below the own tenant, and below users/ exactly for that user.
    #[test]
    fn a_path_is_open_to_its_tenant_and_its_owner_alone(
        tenant in "[ab]-?[ab]", user in "[AB.]?[ab]", other_tenant in "[ab]-?[ab]", owner in "[AB]?[ab]",
        shared in proptest::bool::ANY, rest in "(/[a-tv-z.%*\\\\ ]{3,5}){0,2}",
    ) {
        static POLICIES: std::sync::LazyLock<Policies> = std::sync::LazyLock::new(|| Policies::new(&[]).unwrap());
        let user = user.trim_start_matches('.');
        let folder = if shared { String::new() } else { format!("/users/{owner}") };
        let target = path(&format!("/tenants/{other_tenant}{folder}{rest}"));
        let wanted = tenant == other_tenant && (shared || user == owner);
        for answer in on_path(&POLICIES, &principal(&tenant, user), &target) {
            proptest::prop_assert_eq!(answer.is_ok(), wanted, "{:?}", answer);
        }
    }
}

#[test]
fn paths_below_a_folder_are_asked_about_where_an_operator_may_say_something_of_them() {
    assert!(!Policies::new(&[]).unwrap().decides_below(WriteAction::Mount));
    for (scope, mount, delete) in [
        ("action", true, true),
        (r#"action == Action::"mount_write""#, true, false),
        (r#"action in Action::"tree""#, true, true),
        (r#"action in [Action::"run_create", Action::"tree"]"#, true, true),
        (r#"action in [Action::"tree_read", Action::"tree_delete"]"#, false, true),
        (r#"action in Action::"mount_write""#, true, false),
        (r#"action in Action::"execute""#, true, true),
        (r#"action == Action::"run_create""#, false, false),
    ] {
        let policies = operator(&format!("forbid (principal, {scope}, resource);")).unwrap();
        let asked = (policies.decides_below(WriteAction::Mount), policies.decides_below(WriteAction::Delete));
        assert_eq!(asked, (mount, delete), "{scope}");
    }
}
