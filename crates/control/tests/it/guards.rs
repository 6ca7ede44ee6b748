//! Removing any one authorization call fails a test: each operation of the API's own document is asked with all of
//! policy forbidding, and with each of its actions forbidden alone. An operation that asks about nothing, or about
//! another action than this table says, is found; so is one that the table does not know.
//!
//! What is opened by a permit does not compile without the call (`no_code_outside_can_make_a_permit`); this finds the
//! rest: a permit of another action, one that is not used, an operation that needs none.

use std::collections::{BTreeMap, BTreeSet};

use bailey_policy::Policies;
use http::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::node::quick;
use crate::world::World;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Admin,
    Operator,
    Service,
}

const FORBID: &str = "forbid (principal, action, resource);";

/// One operation, how to ask for it, and every action that it cannot do without.
pub struct Case {
    pub id: &'static str,
    who: As,
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
    actions: &'static [&'static str],
}

fn case(id: &'static str, method: Method, path: &str, body: Option<Value>, actions: &'static [&'static str]) -> Case {
    Case { id, who: As::Admin, method, path: path.to_owned(), body, actions }
}

fn operator(
    id: &'static str,
    method: Method,
    path: &str,
    body: Option<Value>,
    actions: &'static [&'static str],
) -> Case {
    Case { who: As::Operator, ..case(id, method, path, body, actions) }
}

/// Operations that are not asked here, why, and the test that is about them: its file below `tests/it`, and its name.
const ELSEWHERE: [(&str, &str, &str, &str); 5] = [
    ("public_keys", "is for anybody", "sweep", "a11_every_route_wants_a_credential_that_holds"),
    ("openapi", "is for anybody", "sweep", "a11_every_route_wants_a_credential_that_holds"),
    ("healthy", "is for anybody", "sweep", "a11_every_route_wants_a_credential_that_holds"),
    ("ready", "is for anybody", "sweep", "a11_every_route_wants_a_credential_that_holds"),
    ("identity_webhook", "is signed", "standing", "a_signed_message_does_no_more_than_policy_lets_operators_do"),
];

/// What was there before policy forbade it: opaque ids that do not exist are answered before anybody is asked.
#[derive(Debug, Clone, Default)]
pub struct Made {
    run: String,
    purge: String,
    share: String,
    key: String,
}

impl Made {
    pub async fn by(boss: &Client) -> Self {
        boss.put("/v1/tree/tenants/acme/gone", "1").await.ok();
        let text = |value: Value, name: &str| value[name].as_str().unwrap().to_owned();
        let purge = boss.post("/v1/purges", json!({"path": "/tenants/acme/gone"})).await.ok().json();
        let share = json!({"path": "/tenants/acme", "mode": "read", "minutes": 60});
        let share: Value = boss.post("/v1/tree-tokens", share).await.ok().json();
        let key: Value = boss.post("/v1/keys", json!({"name": "k", "ttl_seconds": 600})).await.ok().json();
        Self {
            run: boss.run(json!({"command": ["true"]})).await.header("bailey-run").to_owned(),
            purge: text(purge, "id"),
            share: text(share, "id"),
            key: text(key["key"].clone(), "id"),
        }
    }
}

fn runs(run: &str) -> Vec<Case> {
    vec![
        case(
            "create_run",
            Method::POST,
            "/v1/runs",
            Some(json!({"command": ["true"], "detach": true})),
            &["run_create"],
        ),
        case("list_runs", Method::GET, "/v1/runs", None, &["run_list"]),
        case("show_run", Method::GET, &format!("/v1/runs/{run}"), None, &["run_read"]),
        case("run_events", Method::GET, &format!("/v1/runs/{run}/events"), None, &["run_read"]),
        case("cancel_run", Method::POST, &format!("/v1/runs/{run}/cancel"), None, &["run_cancel"]),
    ]
}

fn tree() -> Vec<Case> {
    let at = |front: &str| format!("/v1/{front}/tenants/acme/x");
    let root = |front: &str| format!("/v1/{front}/tenants/acme");
    let (x, y, acme) = ("/tenants/acme/x", "/tenants/acme/y", "/tenants/acme");
    let version = "0".repeat(40);
    vec![
        case("tree_read", Method::GET, &at("tree"), None, &["tree_read"]),
        case("tree_write", Method::PUT, &at("tree"), Some(json!("content")), &["tree_write"]),
        case(
            "tree_edit",
            Method::PATCH,
            &at("tree"),
            Some(json!({"edits": [{"old": "1", "new": "2"}]})),
            &["tree_write", "tree_read"],
        ),
        case("tree_delete", Method::DELETE, &at("tree"), None, &["tree_delete"]),
        case("tree_history", Method::GET, &at("tree-history"), None, &["tree_history"]),
        case("tree_blame", Method::GET, &at("tree-blame"), None, &["tree_history"]),
        case("tree_diff", Method::GET, &at("tree-diff"), None, &["tree_diff"]),
        case(
            "tree_copy",
            Method::POST,
            "/v1/tree-copy",
            Some(json!({"from": x, "to": y, "move": true})),
            &["tree_write", "tree_read", "tree_delete"],
        ),
        case(
            "tree_restore",
            Method::POST,
            "/v1/tree-restore",
            Some(json!({"path": x, "from_version": version})),
            &["tree_write", "tree_read"],
        ),
        case(
            "tree_revert",
            Method::POST,
            "/v1/tree-revert",
            Some(json!({"path": acme, "version": version})),
            &["tree_write", "tree_read"],
        ),
        case("list_branches", Method::GET, &root("branches"), None, &["tree_list"]),
        case("delete_branch", Method::DELETE, &format!("{}?branch=b", root("branches")), None, &["tree_delete"]),
        case(
            "fork",
            Method::POST,
            "/v1/forks",
            Some(json!({"path": acme, "branch": "b"})),
            &["tree_fork", "tree_read"],
        ),
        case(
            "promote",
            Method::POST,
            "/v1/promotions",
            Some(json!({"path": acme, "from": "b", "into": "main"})),
            &["tree_promote", "tree_read"],
        ),
        case("protect", Method::PUT, &format!("{}?branch=b", root("protections")), None, &["tree_protect"]),
        case("unprotect", Method::DELETE, &format!("{}?branch=b", root("protections")), None, &["tree_protect"]),
        case("list_protections", Method::GET, &root("protections"), None, &["tree_list"]),
        case("show_labels", Method::GET, &at("labels"), None, &["tree_list"]),
        case("set_labels", Method::PUT, &at("labels"), Some(json!({"labels": ["untrusted"]})), &["tree_label"]),
        case("remove_labels", Method::DELETE, &at("labels"), None, &["tree_label"]),
        case("purge", Method::POST, "/v1/purges", Some(json!({"path": x})), &["tree_purge"]),
        case("list_baselines", Method::GET, "/v1/baselines", None, &["tree_list"]),
    ]
}

fn git() -> Vec<Case> {
    let fetch = json!(format!("0032want {}\n00000009done\n", "0".repeat(40)));
    let advertised = |service: &str| format!("/git/acme.git/info/refs?service={service}");
    vec![
        case("git_advertise", Method::GET, &advertised("git-upload-pack"), None, &["tree_clone"]),
        case("git_advertise", Method::GET, &advertised("git-receive-pack"), None, &["tree_clone", "tree_push"]),
        case("git_exchange", Method::POST, "/git/acme.git/git-upload-pack", Some(fetch), &["tree_clone"]),
        case(
            "git_exchange",
            Method::POST,
            "/git/acme.git/git-receive-pack",
            Some(json!("0000")),
            &["tree_clone", "tree_push"],
        ),
    ]
}

fn credentials(made: &Made) -> Vec<Case> {
    let share = json!({"path": "/tenants/acme/x", "mode": "read", "minutes": 5});
    let key = json!({"name": "k", "ttl_seconds": 60});
    let user = "urn%3Abailey%3Atoken-type%3Auser";
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange";
    let form = json!(format!("grant_type={grant}&subject_token=acme%2Fana&subject_token_type={user}"));
    vec![
        case("create_key", Method::POST, "/v1/keys", Some(key), &["key_create"]),
        case("list_keys", Method::GET, "/v1/keys", None, &["key_list"]),
        case("revoke_key", Method::DELETE, &format!("/v1/keys/{}", made.key), None, &["key_revoke"]),
        case("share", Method::POST, "/v1/tree-tokens", Some(share), &["tree_share"]),
        case("list_shares", Method::GET, "/v1/tree-tokens", None, &["tree_unshare"]),
        case("list_shares", Method::GET, "/v1/tree-tokens?user=bob", None, &["key_list"]),
        case("revoke_share", Method::DELETE, &format!("/v1/tree-tokens/{}", made.share), None, &["tree_unshare"]),
        case("show_purge", Method::GET, &format!("/v1/purges/{}", made.purge), None, &["tree_purge"]),
        Case { who: As::Service, ..case("exchange_token", Method::POST, "/v1/token", Some(form), &["token_exchange"]) },
    ]
}

fn admin() -> Vec<Case> {
    vec![
        case("audit", Method::GET, "/v1/audit", None, &["audit_read"]),
        case("audit_export", Method::GET, "/v1/audit-export", None, &["audit_read"]),
        case("list_users", Method::GET, "/v1/users", None, &["user_list"]),
        case("disable_user", Method::POST, "/v1/users/bob/disable", None, &["user_disable"]),
        case("enable_user", Method::POST, "/v1/users/bob/enable", None, &["user_enable"]),
        case("forget_user", Method::DELETE, "/v1/users/bob", None, &["user_forget"]),
        case("show_tenant", Method::GET, "/v1/tenant", None, &["tenant_read"]),
        case("list_policies", Method::GET, "/v1/policies", None, &["policy_read"]),
        case("put_policy", Method::PUT, "/v1/policies/p", Some(json!({"policy": FORBID})), &["policy_write"]),
        case("delete_policy", Method::DELETE, "/v1/policies/p", None, &["policy_write"]),
        case("explain", Method::POST, "/v1/explain", Some(json!({"action": "run_list"})), &["policy_explain"]),
    ]
}

fn operators() -> Vec<Case> {
    let of = |what: &str| format!("/v1/operator/tenants/globex/{what}");
    let quota = serde_json::to_value(bailey_protocol::quota::TenantQuota::UNLIMITED).unwrap();
    let account = |what: &str| format!("/v1/operator/accounts/service/billing/{what}");
    vec![
        operator("operator_audit_export", Method::GET, "/v1/operator/audit-export", None, &["operator_audit"]),
        operator("operator_audit", Method::GET, "/v1/operator/audit?tenant=globex", None, &["tenant_audit"]),
        operator("operator_audit", Method::GET, "/v1/operator/audit", None, &["operator_audit"]),
        operator("metrics", Method::GET, "/metrics", None, &["metrics_read"]),
        operator("policy_state", Method::GET, "/v1/operator/policies", None, &["policy_status"]),
        operator(
            "policy_dry_run",
            Method::POST,
            "/v1/operator/policies/dry-run",
            Some(json!({"files": {"new.cedar": FORBID}})),
            &["policy_dry_run"],
        ),
        operator("list_tenants", Method::GET, "/v1/operator/tenants", None, &["tenant_list"]),
        operator("disable_tenant", Method::POST, &of("disable"), None, &["tenant_disable"]),
        operator("enable_tenant", Method::POST, &of("enable"), None, &["tenant_enable"]),
        operator("list_tenants_users", Method::GET, &of("users"), None, &["tenant_user_list"]),
        operator("list_published", Method::GET, "/v1/operator/baselines", None, &["baseline_list"]),
        operator("disable_tenants_user", Method::POST, &of("users/bob/disable"), None, &["tenant_user_disable"]),
        operator("enable_tenants_user", Method::POST, &of("users/bob/enable"), None, &["tenant_user_enable"]),
        operator("forget_tenants_user", Method::DELETE, &of("users/bob"), None, &["tenant_user_forget"]),
        operator("list_accounts", Method::GET, "/v1/operator/accounts", None, &["account_list"]),
        operator("disable_account", Method::POST, &account("disable"), None, &["account_disable"]),
        operator("enable_account", Method::POST, &account("enable"), None, &["account_enable"]),
        operator("show_quota", Method::GET, &of("quota"), None, &["quota_read"]),
        operator("show_tenant_facts", Method::GET, &of("facts"), None, &["facts_read"]),
        operator("set_tenant_facts", Method::PUT, &of("facts"), Some(json!({"region": "eu"})), &["facts_set"]),
        operator("set_quota", Method::PUT, &of("quota"), Some(quota), &["quota_set"]),
        operator("collect_garbage", Method::POST, &of("gc"), None, &["garbage_collect"]),
        operator(
            "publish_baseline",
            Method::POST,
            "/v1/operator/baselines/b",
            Some(json!("no tar")),
            &["baseline_publish"],
        ),
        operator("reset_quota", Method::DELETE, &of("quota"), None, &["quota_reset"]),
    ]
}

pub fn cases(made: &Made) -> Vec<Case> {
    [runs(&made.run), tree(), git(), credentials(made), admin(), operators()].into_iter().flatten().collect()
}

/// Each kind of caller.
pub struct Callers {
    boss: Client,
    root: Client,
    service: Client,
}

impl Callers {
    pub fn from(world: &World) -> Self {
        Self { boss: world.admin("acme", "boss"), root: world.operator(), service: world.service("billing", &["acme"]) }
    }

    /// Who may ask.
    pub fn of(&self, case: &Case) -> &Client {
        match case.who {
            As::Admin => &self.boss,
            As::Operator => &self.root,
            As::Service => &self.service,
        }
    }

    /// Somebody of another kind.
    pub fn other(&self, case: &Case) -> &Client {
        if case.who == As::Operator { &self.boss } else { &self.root }
    }

    pub async fn ask(&self, case: &Case) -> Answer {
        let client = self.of(case);
        let asking = client.ask(case.method.clone(), &case.path);
        let Some(body) = &case.body else { return asking.answer().await };
        let kind = content_type(case.id, &case.path);
        // What is no JSON is a text here.
        let body = if kind == "application/json" { body.to_string() } else { body.as_str().unwrap().to_owned() };
        asking.header("content-type", &kind).body(body).answer().await
    }
}

/// Of the body that an operation takes.
pub fn content_type(id: &str, path: &str) -> String {
    match id {
        "tree_write" | "publish_baseline" => "application/octet-stream".to_owned(),
        "exchange_token" => "application/x-www-form-urlencoded".to_owned(),
        "git_exchange" => format!("application/x-{}-request", path.rsplit('/').next().unwrap()),
        _ => "application/json".to_owned(),
    }
}

fn policies(forbid: &str) -> Policies {
    let rule = format!("@id(\"planted\") forbid (principal, {forbid}, resource);");
    Policies::new(&[("planted.cedar".to_owned(), rule)]).unwrap()
}

/// Whether it was denied, and by nothing but the planted rule.
fn is_denied(answer: &Answer) -> bool {
    answer.status == 403 && answer.error(403).policies.iter().any(|policy| policy == "planted")
}

#[tokio::test]
async fn no_operation_answers_where_policy_forbids_everything() {
    // A run that somebody made before.
    let world = World::new().await;
    world.node.follow(quick);
    let made = Made::by(&world.admin("acme", "boss")).await;
    let world = World::on_under(world.stop().await, policies("action")).await;
    let callers = Callers::from(&world);
    let mut open = Vec::new();
    for case in cases(&made) {
        let answer = callers.ask(&case).await;
        if !is_denied(&answer) {
            open.push((case.id, answer.status));
        }
    }
    assert_eq!(open, [], "operations that policy does not guard");
    // Each denial is on the audit, with its action.
    let wanted: BTreeSet<String> = cases(&made).iter().map(|case| case.actions[0].to_owned()).collect();
    let folder = world.stop().await;
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    let mut query = db.prepare("SELECT DISTINCT action FROM audit WHERE decision = 'denied'").unwrap();
    let found: BTreeSet<String> = query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(wanted.difference(&found).collect::<Vec<_>>(), [""; 0], "denials that are not on the audit");
}

#[tokio::test]
async fn each_operation_is_denied_by_each_of_its_actions_alone() {
    let mut actions: BTreeMap<&str, ()> = BTreeMap::new();
    for case in cases(&Made::default()) {
        actions.extend(case.actions.iter().map(|action| (*action, ())));
    }
    let before = World::new().await;
    before.node.follow(quick);
    let made = Made::by(&before.admin("acme", "boss")).await;
    let mut folder = before.stop().await;
    for action in actions.keys() {
        let world = World::on_under(folder, policies(&format!("action == Action::\"{action}\""))).await;
        world.node.follow(quick);
        let callers = Callers::from(&world);
        for case in cases(&made).iter().filter(|case| case.actions.contains(action)) {
            let answer = callers.ask(case).await;
            assert!(is_denied(&answer), "{} goes on without `{action}`: {answer:?}", case.id);
        }
        folder = world.stop().await;
    }
}

/// A new route has to come with its line here.
#[tokio::test]
async fn every_operation_of_the_document_is_known_here() {
    let world = World::new().await;
    let document: Value = world.admin("acme", "boss").get("/.well-known/openapi.json").await.ok().json();
    let paths = document.get("paths").and_then(Value::as_object).unwrap();
    let operations = paths.values().filter_map(Value::as_object).flat_map(|methods| methods.values());
    let ids: BTreeSet<String> =
        operations.filter_map(|one| one.get("operationId")?.as_str().map(str::to_owned)).collect();
    let mut known: BTreeSet<String> = cases(&Made::default()).iter().map(|case| case.id.to_owned()).collect();
    known.extend(ELSEWHERE.iter().map(|(id, ..)| (*id).to_owned()));
    assert_eq!(ids.difference(&known).collect::<Vec<_>>(), [""; 0], "operations without a line in this table");
    assert_eq!(known.difference(&ids).collect::<Vec<_>>(), [""; 0], "lines of operations that are gone");
    // What is said to be tested elsewhere is: the test is there, and is one.
    for (id, _why, file, name) in ELSEWHERE {
        let path = format!("{}/tests/it/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let before =
            source.split_once(&format!("\nasync fn {name}()")).unwrap_or_else(|| panic!("{id}: no `{name}`")).0;
        assert!(before.lines().last().unwrap().starts_with("#[tokio::test"), "{id}: `{name}` is no test");
    }
}
