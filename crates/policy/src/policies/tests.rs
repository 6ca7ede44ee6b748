use bailey_protocol::id::RunId;
use bailey_protocol::limits::Limits;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_protocol::wall::WallKind;

use super::*;
use crate::denied::Denied;
use crate::facts::{PathFacts, RunFacts, RunPlan, TenantFacts};
use crate::judge::{AdminAction, ReadAction, SystemAction, TenantAction, WriteAction};
use crate::principal::{CredentialId, CredentialKind, Entitlement, Operator, ServedTenants, ServiceAccount};
use crate::request::{Subject, Value};
use crate::scope::Scope;
use crate::subjects::{self, text, user};

const ALLOW_ALL: &str = "permit (principal, action, resource);";

const NOON: u64 = 1_750_000_000_000;

fn principal(tenant: &str, user: &str) -> Principal {
    let who = Principal::new(tenant.parse().unwrap(), user.parse().unwrap());
    Principal { roles: ["member".to_owned()].into(), ..who }
}

fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

fn plain(text: &str) -> PathFacts {
    PathFacts::plain(path(text))
}

fn main_branch() -> Revision {
    Revision::Branch(BranchName::main())
}

fn plan() -> RunPlan {
    RunPlan { wall: WallKind::Container, template: "base".parse().unwrap(), root: false, limits: Limits::default() }
}

fn operator(text: &str) -> Result<Policies, PolicyError> {
    Policies::new(&[("operator.cedar".to_owned(), text.to_owned())])
}

const READS: [ReadAction; 5] =
    [ReadAction::Read, ReadAction::List, ReadAction::History, ReadAction::Diff, ReadAction::Mount];
const WRITES: [WriteAction; 3] = [WriteAction::Write, WriteAction::Delete, WriteAction::Mount];

/// Every decision on a path, as the policies that denied it.
fn on_path(policies: &Policies, who: &Principal, target: &TreePath) -> Vec<Result<(), Denied>> {
    let (judge, target) = (policies.judge(who, NOON), PathFacts::plain(target.clone()));
    let version = Revision::Version("0".repeat(40).parse().unwrap());
    let reads = READS.into_iter().flat_map(|action| {
        [main_branch(), version.clone()].map(|at| judge.read_path(action, &target, &at).map(|_permit| ()))
    });
    let writes =
        WRITES.into_iter().map(|action| judge.write_path(action, &target, &BranchName::main()).map(|_permit| ()));
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
    let permit = policies.judge(&ana, NOON).create_run(&RunPlan { root: true, ..plan() }).unwrap();
    assert_eq!(permit.grant().policies(), ["own-tenant"]);
    policies.judge(&ana, NOON).list_runs().unwrap();
    let facts = RunFacts::plain(RunId::mint(1, [1; 10]), ana.tenant.clone(), ana.user.clone());
    assert_eq!(policies.judge(&ana, NOON).read_run(&facts).unwrap().facts(), &facts);
    policies.judge(&ana, NOON).cancel_run(&facts).unwrap();
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
    let facts = RunFacts::plain(RunId::mint(1, [1; 10]), bob.tenant.clone(), "ana".parse().unwrap());
    assert_eq!(policies.judge(&bob, NOON).read_run(&facts).unwrap_err().policies, ["own-run-only"]);
    assert_eq!(policies.judge(&bob, NOON).cancel_run(&facts).unwrap_err().policies, ["own-run-only"]);
}

#[test]
fn a_missing_entitlement_is_named() {
    let policies = Policies::new(&[]).unwrap();
    let runner = Principal { entitlements: [Entitlement::Execute].into(), ..principal("acme", "ana") };
    policies.judge(&runner, NOON).create_run(&plan()).unwrap();
    for answer in on_path(&policies, &runner, &path("/tenants/acme/x")) {
        let denied = answer.unwrap_err();
        assert_eq!(denied.policies, ["entitled-to-tree"]);
        assert!(denied.to_string().contains("`tree`"), "{denied}");
    }
    let reader = Principal { entitlements: [Entitlement::Tree].into(), ..principal("acme", "ana") };
    let facts = RunFacts::plain(RunId::mint(1, [1; 10]), reader.tenant.clone(), reader.user.clone());
    for denied in [
        policies.judge(&reader, NOON).create_run(&plan()).unwrap_err(),
        policies.judge(&reader, NOON).list_runs().unwrap_err(),
        policies.judge(&reader, NOON).read_run(&facts).unwrap_err(),
        policies.judge(&reader, NOON).cancel_run(&facts).unwrap_err(),
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
    policies.judge(&ana, NOON).create_run(&plan()).unwrap();
    let denied = policies.judge(&ana, NOON).create_run(&RunPlan { root: true, ..plan() }).unwrap_err();
    assert_eq!((denied.action, denied.reason.as_str()), (Action::RunAsRoot, "root is for admins"));
    let admin = Principal { roles: ["admin".to_owned()].into(), ..ana.clone() };
    policies.judge(&admin, NOON).create_run(&RunPlan { root: true, ..plan() }).unwrap();
    let old = RunPlan { template: "old".parse().unwrap(), ..plan() };
    let denied = policies.judge(&ana, NOON).create_run(&old).unwrap_err();
    assert_eq!(denied.policies, ["operator.cedar#policy1"]);
    assert_eq!(denied.reason, "policy `operator.cedar#policy1` forbids it");
    let by_run = Principal { run: Some(RunId::mint(1, [1; 10])), ..ana.clone() };
    let target = plain("/tenants/acme/x");
    policies.judge(&ana, NOON).write_path(WriteAction::Write, &target, &BranchName::main()).unwrap();
    policies.judge(&by_run, NOON).write_path(WriteAction::Write, &target, &"draft".parse().unwrap()).unwrap();
    let denied =
        policies.judge(&by_run, NOON).write_path(WriteAction::Write, &target, &BranchName::main()).unwrap_err();
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
    let denied = policies.judge(&principal("acme", "ana"), NOON).create_run(&plan()).unwrap_err();
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
    let denied = policies.judge(&principal("acme", "ana"), NOON).list_runs().unwrap_err();
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
    let ask = |action, resource: Subject, more: Option<(&'static str, Value)>| {
        let time = ("time".into(), Value::Time(NOON));
        let context = [time, ("credential".into(), text("token"))].into_iter();
        let context = context.chain(more.map(|(name, value)| (name.into(), value))).collect();
        let answer = policies.ask(&Request { principal: user(&ana), action, resource, tenant: None, context });
        assert!(!answer.allowed);
        answer
    };
    // A run's facts put where a path belongs: the request never reaches a policy.
    let facts = RunFacts::plain(RunId::mint(1, [1; 10]), ana.tenant.clone(), ana.user.clone());
    let denied = ask(Action::TreeRead, subjects::run(&facts), None);
    assert!(denied.broken && denied.policies.is_empty(), "{denied:?}");
    // A branch where none belongs.
    let tenant = subjects::tenant(&ana.tenant, &TenantFacts::default());
    assert!(ask(Action::RunList, tenant, Some(("branch", text("main")))).broken);
    // A missing branch where one is needed.
    let path = subjects::path(&plain("/tenants/acme/x"));
    assert!(ask(Action::TreeWrite, path.clone(), None).broken);
    // A number where a text belongs.
    assert!(ask(Action::TreeWrite, path, Some(("branch", Value::Long(9)))).broken);
}

#[test]
fn a_set_that_cannot_be_used_is_refused_and_says_why() {
    let big = format!("//{}", "x".repeat(load::MAX_FILE_BYTES));
    for (text, wanted) in [
        ("permit (", "does not parse"),
        (r#"permit (principal == ?principal, action, resource);"#, "holds a template"),
        (r#"@id("own-tenant-only") permit (principal, action, resource);"#, "is taken"),
        (big.as_str(), "larger than 1048576 bytes"),
    ] {
        let error = operator(text).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("operator.cedar"), "{error}");
    }
}

#[test]
fn an_empty_base_permits_nothing() {
    let policies = Policies::weakened("", &[]).unwrap();
    let denied = policies.judge(&principal("acme", "ana"), NOON).list_runs().unwrap_err();
    assert_eq!(denied.reason, "no policy permits it");
    assert!(denied.policies.is_empty());
}

#[test]
fn with_every_rule_gone_a_permit_still_opens_no_foreign_store() {
    let policies = Policies::weakened(ALLOW_ALL, &[]).unwrap();
    let ana = principal("acme", "ana");
    for target in ["/tenants/globex/x", "/tenants/globex/users/ana/x", "/tenants/acme/users/bob/x", "/tenants/globex"] {
        let target = path(target);
        let facts = PathFacts::plain(target.clone());
        let read = policies.judge(&ana, NOON).read_path(ReadAction::Read, &facts, &main_branch()).unwrap();
        assert_eq!(read.scope().unwrap_err().path, target.as_str());
        let write = policies.judge(&ana, NOON).write_path(WriteAction::Write, &facts, &BranchName::main()).unwrap();
        assert!(write.scope().is_err());
    }
    for target in ["/tenants/acme/x", "/tenants/acme/users/ana/x"] {
        let target = path(target);
        let facts = PathFacts::plain(target.clone());
        let read = policies.judge(&ana, NOON).read_path(ReadAction::Read, &facts, &main_branch()).unwrap();
        assert_eq!(read.scope().unwrap().repo(), target.repo());
    }
}

#[test]
fn base_policies_have_an_id_and_forbids_a_reason() {
    let policies = Policies::new(&[]).unwrap();
    for policy in policies.platform.set.policies() {
        assert!(!policy.id().to_string().contains('#'), "{policy}");
        let forbid = policy.effect() == cedar_policy::Effect::Forbid;
        assert_eq!(policy.annotation("reason").is_some(), forbid, "{policy}");
    }
}

#[test]
fn every_action_is_in_the_schema_and_in_one_group() {
    let policies = Policies::new(&[]).unwrap();
    let mut named: Vec<_> = policies.schema().actions().map(|action| action.id().unescaped().to_owned()).collect();
    let mut wanted: Vec<_> = Action::ALL.iter().map(|action| action.as_str().to_owned()).collect();
    let groups = ["tree", "git", "keys", "policies", "execute", "admin", "for_people", "stewardship", "operate"];
    wanted.extend(groups.map(str::to_owned));
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
    assert!(!Policies::new(&[]).unwrap().decides_below(Action::MountWrite));
    for (scope, mount, delete) in [
        ("action", true, true),
        (r#"action == Action::"mount_write""#, true, false),
        (r#"action in Action::"tree""#, true, true),
        (r#"action in [Action::"run_create", Action::"tree"]"#, true, true),
        (r#"action in [Action::"tree_read", Action::"tree_delete"]"#, false, true),
        (r#"action in Action::"mount_write""#, true, false),
        (r#"action in Action::"execute""#, false, false),
        (r#"action == Action::"run_create""#, false, false),
    ] {
        let policies = operator(&format!("forbid (principal, {scope}, resource);")).unwrap();
        let asked = (policies.decides_below(Action::MountWrite), policies.decides_below(Action::TreeDelete));
        assert_eq!(asked, (mount, delete), "{scope}");
    }
}

#[test]
fn paths_below_a_folder_are_asked_about_where_the_credential_is_not_for_the_action() {
    let policies = Policies::new(&[]).unwrap();
    let with = |actions: &[Action], read_only| {
        let scope = Scope { actions: actions.iter().copied().collect(), paths: None, read_only };
        policies.judge(&Principal { scope: Some(scope), ..principal("acme", "ana") }, NOON)
    };
    let pusher = with(&[Action::TreePush, Action::TreeWrite], false);
    assert!(pusher.decides_below(Action::TreeDelete) && !pusher.decides_below(Action::TreeWrite));
    let reader = with(&[Action::TreeRead, Action::TreeWrite], true);
    assert!(reader.decides_below(Action::TreeWrite) && !reader.decides_below(Action::TreeRead));
    assert!(!policies.judge(&principal("acme", "ana"), NOON).decides_below(Action::TreeDelete));
}

#[test]
fn what_is_only_asked_about_is_answered_as_what_is_opened() {
    let policies =
        operator(r#"forbid (principal, action == Action::"tree_read", resource) when { resource.path like "*x*" };"#);
    let policies = policies.unwrap();
    let scope =
        Scope { actions: [Action::TreeRead].into(), paths: Some(vec![path("/tenants/acme/a")]), read_only: true };
    let heard = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for scope in [None, Some(scope)] {
        let told = std::sync::Arc::clone(&heard);
        let judge = policies.judge(&Principal { scope, ..principal("acme", "ana") }, NOON);
        let judge = judge.before(std::sync::Arc::new(move |_| {
            told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        for target in
            ["/tenants/acme/a", "/tenants/acme/a/x", "/tenants/acme/b", "/tenants/globex/a", "/tenants/acme/users/bob"]
        {
            for action in [ReadAction::Read, ReadAction::List] {
                let opened = judge.read_path(action, &plain(target), &main_branch()).is_ok();
                let told = heard.load(std::sync::atomic::Ordering::Relaxed);
                assert_eq!(judge.allows_read(action, &plain(target), &main_branch()), opened, "{target}");
                assert!(heard.load(std::sync::atomic::Ordering::Relaxed) <= told + 1);
            }
        }
    }
}

const FORBID_ALL: &str = "forbid (principal, action, resource);";

fn of_tenant(policies: &Policies, name: &str, text: &str) -> Result<Policies, PolicyError> {
    policies.with_tenant(&[(name.to_owned(), text.to_owned())])
}

#[test]
fn c11_a_tenants_policy_only_takes_away_and_only_from_its_own() {
    let platform = Policies::new(&[]).unwrap();
    for text in [
        ALLOW_ALL,
        "",
        "forbid (principal, action, resource); forbid (principal, action, resource);",
        "permit (principal, action, resource); forbid (principal, action, resource);",
        "forbid (principal == ?principal, action, resource);",
        r#"forbid (principal, action, resource) when { resource.classification == "secret" };"#,
    ] {
        assert!(of_tenant(&platform, "p", text).is_err(), "{text}");
    }
    for name in ["", "A", "a/b", "..", "a b", &"x".repeat(64)] {
        assert!(matches!(of_tenant(&platform, name, FORBID_ALL), Err(PolicyError::Name { .. })), "{name}");
    }
    let closed =
        of_tenant(&platform, "all", r#"@id("own-tenant-only") forbid (principal, action, resource);"#).unwrap();
    let ana = principal("acme", "ana");
    let denied = closed.judge(&ana, NOON).list_runs().unwrap_err();
    assert_eq!(denied.policies, ["tenant/all"]);
    // Others are decided on by a set that never held it.
    platform.judge(&ana, NOON).list_runs().unwrap();
    // With it, base rules are what they were.
    let denied = closed.judge(&ana, NOON).read_path(ReadAction::Read, &plain("/tenants/globex/x"), &main_branch());
    assert_eq!(denied.unwrap_err().policies, ["own-tenant-only", "tenant/all"]);
}

#[test]
fn c11_a_tenant_locks_out_neither_itself_nor_the_operator() {
    let platform = Policies::new(&[]).unwrap();
    let closed = of_tenant(&platform, "all", FORBID_ALL).unwrap();
    let admin = Principal { roles: ["admin".to_owned()].into(), ..principal("acme", "ana") };
    closed.judge(&admin, NOON).admin(AdminAction::PolicyRead).unwrap();
    closed.judge(&admin, NOON).admin(AdminAction::PolicyWrite).unwrap();
    closed.judge(&admin, NOON).admin(AdminAction::UserList).unwrap_err();
}

#[test]
fn a_tenants_policies_are_bounded_in_size_and_number() {
    let platform = Policies::new(&[]).unwrap();
    let named =
        |count: usize, text: &str| -> Vec<_> { (0..count).map(|n| (format!("p{n}"), text.to_owned())).collect() };
    platform.with_tenant(&named(MAX_TENANT_POLICIES, FORBID_ALL)).unwrap();
    assert!(matches!(platform.with_tenant(&named(MAX_TENANT_POLICIES + 1, FORBID_ALL)), Err(PolicyError::TooMany)));
    let big = format!("{FORBID_ALL}//{}", "x".repeat(MAX_TENANT_POLICY_BYTES));
    assert!(matches!(platform.with_tenant(&named(1, &big)), Err(PolicyError::TooLarge { .. })));
    let large = format!("{FORBID_ALL}//{}", "x".repeat(MAX_TENANT_POLICY_BYTES - 100));
    assert!(matches!(platform.with_tenant(&named(20, &large)), Err(PolicyError::TooMany)));
    let heavy = |letters: usize| {
        let like = format!(r#"resource.path like "*{}""#, "a".repeat(letters));
        format!("forbid (principal, action, resource is Path) when {{ {like} }};")
    };
    platform.with_tenant(&named(1, &heavy(90))).unwrap();
    assert!(matches!(platform.with_tenant(&named(1, &heavy(100))), Err(PolicyError::TooHeavy)));
    assert!(matches!(platform.with_tenant(&named(2, &heavy(50))), Err(PolicyError::TooHeavy)), "together");
    // What an admin would write for each of many folders.
    let plain = r#"forbid (principal, action in Action::"tree", resource is Path)
        when { resource.path like "/tenants/acme/payroll/2026/*" } unless { principal.roles.contains("finance") };"#;
    platform.with_tenant(&named(48, plain)).unwrap();
}

#[test]
fn what_admins_may_nobody_else_may_and_no_run() {
    let policies = Policies::new(&[]).unwrap();
    let ana = principal("acme", "ana");
    let admin = Principal { roles: ["admin".to_owned()].into(), ..ana.clone() };
    let run = Principal { run: Some(RunId::mint(1, [1; 10])), ..admin.clone() };
    for action in [
        AdminAction::UserList,
        AdminAction::UserDisable,
        AdminAction::UserForget,
        AdminAction::UserEnable,
        AdminAction::KeyCreate,
        AdminAction::KeyList,
        AdminAction::KeyRevoke,
        AdminAction::PolicyRead,
        AdminAction::PolicyWrite,
        AdminAction::AuditRead,
        AdminAction::TenantRead,
    ] {
        assert_eq!(policies.judge(&ana, NOON).admin(action).unwrap_err().policies, ["admins-only"]);
        assert_eq!(policies.judge(&admin, NOON).admin(action).unwrap().action(), &action);
        assert_eq!(policies.judge(&run, NOON).admin(action).unwrap_err().policies, ["not-from-a-run"]);
    }
    let (ana_judge, bob) = (policies.judge(&ana, NOON), "bob".parse().unwrap());
    ana_judge.explain(&ana.user).unwrap();
    assert_eq!(ana_judge.explain(&bob).unwrap_err().policies, ["own-requests-only"]);
    policies.judge(&admin, NOON).explain(&bob).unwrap();
}

/// Every decision on a store beyond reading and writing, with the answers of `who`.
fn on_store(policies: &Policies, who: &Principal, target: &str) -> Vec<(Action, Result<(), Denied>)> {
    let (judge, path) = (policies.judge(who, NOON), plain(target));
    let (main, draft) = (BranchName::main(), "draft".parse().unwrap());
    vec![
        (Action::TreeFork, judge.fork(&path, &draft, &main_branch()).map(drop)),
        (Action::TreePromote, judge.promote(&path, &draft, &main).map(drop)),
        (Action::TreeProtect, judge.protect(&path, &main).map(drop)),
        (Action::TreeLabel, judge.label(&path).map(drop)),
        (Action::TreeShare, judge.share(&path).map(drop)),
        (Action::TreeUnshare, judge.unshare(&path).map(drop)),
        (Action::TreePurge, judge.purge(&path).map(drop)),
        (Action::TreeClone, judge.clone_store(&path).map(drop)),
        (Action::TreePush, judge.push(&path).map(drop)),
    ]
}

#[test]
fn a_stores_other_actions_are_the_tenants_and_some_never_a_runs() {
    let policies = Policies::new(&[]).unwrap();
    let plain_ana = principal("acme", "ana");
    let ana = Principal { roles: ["admin".to_owned()].into(), ..plain_ana.clone() };
    assert!(on_store(&policies, &plain_ana, "/tenants/acme/users/ana").iter().all(|(_, answer)| answer.is_ok()));
    for (action, answer) in on_store(&policies, &plain_ana, "/tenants/acme") {
        match action {
            Action::TreeProtect | Action::TreeLabel | Action::TreePurge => {
                assert_eq!(answer.unwrap_err().policies, ["stewards-only"], "{action}");
            }
            _ => answer.unwrap(),
        }
    }
    for target in ["/tenants/acme", "/tenants/acme/users/ana"] {
        assert!(on_store(&policies, &ana, target).iter().all(|(_, answer)| answer.is_ok()));
    }
    for (target, by) in [("/tenants/globex", "own-tenant-only"), ("/tenants/acme/users/bob", "own-folder-only")] {
        for (action, answer) in on_store(&policies, &ana, target) {
            assert_eq!(answer.unwrap_err().policies, [by], "{action}");
        }
    }
    let run = Principal { run: Some(RunId::mint(1, [1; 10])), ..ana.clone() };
    for (action, answer) in on_store(&policies, &run, "/tenants/acme") {
        match action {
            Action::TreeFork | Action::TreeClone | Action::TreePush => answer.unwrap(),
            _ => assert_eq!(answer.unwrap_err().policies, ["not-from-a-run"], "{action}"),
        }
    }
    for (lacking, denied) in
        [(Entitlement::Git, &[Action::TreeClone, Action::TreePush][..]), (Entitlement::Keys, &[Action::TreeShare])]
    {
        let mut who = ana.clone();
        who.entitlements.remove(&lacking);
        for (action, answer) in on_store(&policies, &who, "/tenants/acme") {
            assert_eq!(answer.is_err(), denied.contains(&action), "{action} without {lacking}");
            if let Err(denied) = answer {
                assert_eq!(denied.policies, [format!("entitled-to-{lacking}")]);
            }
        }
    }
    // What was handed out can be taken back by who may do nothing else any more.
    let nothing = Principal { entitlements: [].into(), ..plain_ana };
    policies.judge(&nothing, NOON).unshare(&plain("/tenants/acme")).unwrap();
}

mod callers;
