//! Policies over HTTP: a tenant's own, explanations, dry runs, and what a change does to what goes on.

use std::time::{Duration, Instant};

use bailey_policy::prove::Prover;
use bailey_policy::{Action, Policies};
use bailey_protocol::api::policy::{
    DryRunAnswer, ExplainAnswer, MAX_FOLDER_BYTES, MAX_FOLDER_FILES, PolicyState, TenantPolicyList,
};
use bailey_protocol::api::{RunAccepted, RunEvent, RunEventKind};
use bailey_protocol::node::Ending;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::until_cancelled;
use crate::world::World;

pub async fn put_policy(who: &Client, name: &str, text: &str) -> Answer {
    let asking = who.ask(Method::PUT, &format!("/v1/policies/{name}"));
    asking.header("content-type", "application/json").body(json!({ "policy": text }).to_string()).answer().await
}

pub fn operator(text: &str) -> Policies {
    Policies::new(&[("operator.cedar".to_owned(), text.to_owned())]).unwrap()
}

#[tokio::test]
async fn c11_an_admins_forbid_holds_at_once_and_for_its_own_tenant_alone() {
    let world = World::new().await;
    let (admin, ana, eve) = (world.admin("acme", "root"), world.client("acme", "ana"), world.client("globex", "eve"));
    ana.get("/v1/runs").await.ok();
    let text = r#"@reason("not today") forbid (principal, action == Action::"run_list", resource);"#;
    assert_eq!(put_policy(&ana, "quiet", text).await.error(403).policies, ["admins-only"]);
    put_policy(&admin, "quiet", text).await.ok();
    let denied = ana.get("/v1/runs").await.error(403);
    assert_eq!(denied.policies, ["tenant/quiet"]);
    eve.get("/v1/runs").await.ok();
    for bad in [
        "permit (principal, action, resource);",
        "forbid (",
        "",
        "forbid (principal, action, resource) when { resource.x };",
    ] {
        put_policy(&admin, "bad", bad).await.error(400);
    }
    put_policy(&admin, "Bad", text).await.error(400);
    let listed: TenantPolicyList = admin.get("/v1/policies").await.ok().json();
    assert_eq!(listed.policies.len(), 1);
    let theirs: TenantPolicyList = world.admin("globex", "root").get("/v1/policies").await.ok().json();
    assert!(theirs.policies.is_empty());
    world.admin("globex", "root").delete("/v1/policies/quiet").await.error(404);
    assert_eq!(admin.delete("/v1/policies/quiet").await.status, 204);
    ana.get("/v1/runs").await.ok();
}

#[tokio::test]
async fn c11_a_tenant_that_forbids_everything_can_take_that_back() {
    let world = World::new().await;
    let admin = world.admin("acme", "root");
    put_policy(&admin, "all", "forbid (principal, action, resource);").await.ok();
    admin.get("/v1/users").await.error(403);
    world.operator().get("/v1/operator/tenants").await.ok();
    assert_eq!(admin.delete("/v1/policies/all").await.status, 204);
    admin.get("/v1/users").await.ok();
}

#[tokio::test]
async fn a_forbid_whose_author_hangs_up_is_in_force_as_soon_as_it_is_written() {
    let world = World::new().await;
    let (admin, ana) = (world.admin("acme", "root"), world.client("acme", "ana"));
    let text = r#"forbid (principal, action == Action::"run_list", resource);"#;
    let (mut cut, mut written, mut step) = (0, 0, 0);
    // On a busy machine it takes longer until any is written.
    while step < 60 || (cut == 0 || written == 0) && step < 1000 {
        let patience = std::time::Duration::from_micros(step * 150);
        step += 1;
        cut += usize::from(tokio::time::timeout(patience, put_policy(&admin, "quiet", text)).await.is_err());
        // One that takes longer is found by a later step.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let listed: TenantPolicyList = admin.get("/v1/policies").await.ok().json();
        if listed.policies.is_empty() {
            continue;
        }
        // It may be seen just before it is in force.
        for _ in 0..40 {
            if ana.get("/v1/runs").await.status == 403 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        written += 1;
        ana.get("/v1/runs").await.error(403);
        assert_eq!(admin.delete("/v1/policies/quiet").await.status, 204);
    }
    assert!(cut > 0 && written > 0, "{cut} cut off, {written} written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c11_a_tenant_has_at_most_64_forbids_however_many_come_at_once() {
    let world = World::new().await;
    let text = r#"forbid (principal, action == Action::"run_list", resource);"#;
    let count = async |admin: &Client| admin.get("/v1/policies").await.ok().json::<TenantPolicyList>().policies.len();
    // Together.
    let admin = world.admin("acme", "root");
    let names: Vec<String> = (0..128).map(|n| format!("p{n}")).collect();
    let answers = futures_util::future::join_all(names.iter().map(|name| put_policy(&admin, name, text))).await;
    let (taken, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status.is_success());
    assert_eq!((taken.len(), count(&admin).await), (64, 64));
    for answer in refused {
        assert_eq!(answer.error(413).error, "too_many_policies");
    }
    // One by one: one that is there may become another, and in the place of one that goes another may come.
    assert_eq!(put_policy(&admin, "more", text).await.error(413).error, "too_many_policies");
    let listed: TenantPolicyList = admin.get("/v1/policies").await.ok().json();
    let one = &listed.policies[0].name;
    put_policy(&admin, one, r#"forbid (principal, action == Action::"tree_list", resource);"#).await.ok();
    assert_eq!(admin.delete(&format!("/v1/policies/{one}")).await.status, 204);
    put_policy(&admin, "more", text).await.ok();
    assert_eq!(put_policy(&admin, "most", text).await.error(413).error, "too_many_policies");
    assert_eq!(count(&admin).await, 64);
    // Another tenant has its own 64.
    put_policy(&world.admin("globex", "gil"), "one", text).await.ok();
}

#[tokio::test]
async fn c06_facts_that_a_request_brings_along_count_for_nothing() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let asking = ana.ask(Method::GET, "/v1/users").header("x-context", r#"{"roles":["admin"]}"#);
    assert_eq!(asking.header("x-roles", "admin").answer().await.error(403).policies, ["admins-only"]);
    for extra in ["context", "entities", "roles", "parents"] {
        ana.post("/v1/explain", json!({ "action": "user_list", extra: ["admin"] })).await.error(400);
        ana.run(json!({ "command": ["true"], extra: {} })).await.error(400);
    }
}

#[tokio::test]
async fn one_may_learn_why_but_not_of_another_tenants() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let found: ExplainAnswer = ana.post("/v1/explain", json!({ "action": "user_list" })).await.ok().json();
    assert_eq!((found.allowed, found.policies.as_slice()), (false, ["admins-only".to_owned()].as_slice()));
    assert_eq!(found.changes.len(), 1);
    assert_eq!(found.changes[0].attribute, "principal.roles");
    // A denial says the same by itself.
    assert!(ana.get("/v1/users").await.error(403).hint.contains("principal.roles"));
    let path = |path: &str| json!({ "action": "tree_read", "path": path });
    let own: ExplainAnswer = ana.post("/v1/explain", path("/tenants/acme/x")).await.ok().json();
    assert!(own.allowed);
    let theirs: ExplainAnswer = ana.post("/v1/explain", path("/tenants/globex/x")).await.ok().json();
    assert_eq!(theirs.policies, ["own-tenant-only"]);
    assert!(theirs.changes.is_empty(), "{theirs:?}");
    ana.post("/v1/explain", json!({ "action": "no_such" })).await.error(400);
    // What is missing is named.
    for (action, says) in [("tree_read", "a path"), ("run_read", "a run"), ("tenant_list", "not for a tenant's users")]
    {
        let refused = ana.post("/v1/explain", json!({ "action": action })).await.error(400);
        assert!(refused.message.contains(says), "{action}: {}", refused.message);
    }
    let found: ExplainAnswer = ana.post("/v1/explain", json!({ "action": "run_create" })).await.ok().json();
    assert!(
        found.allowed && found.judged["wall"] == "container" && found.judged.contains_key("memory_bytes"),
        "{found:?}"
    );
}

#[tokio::test]
async fn an_admin_asks_why_another_user_is_denied_and_nobody_else_does() {
    let world = World::under(operator(
        r#"@id("no-contractors") @reason("not for contractors") forbid (principal is User, action == Action::"tree_write", resource)
           when { principal.roles.contains("contractor") };
           @id("payroll-is-closed") @reason("it is payroll") forbid (principal, action, resource is Path)
           when { resource.labels.contains("payroll") };"#,
    ))
    .await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let con = world.client_as("acme", "con", &["contractor"]);
    let why = |user: &str, action: &str, path: &str| json!({ "user": user, "action": action, "path": path });
    // Whoever was never seen is nobody of whom anything is known.
    boss.post("/v1/explain", why("con", "tree_write", "/tenants/acme/x")).await.error(404);
    con.put("/v1/tree/tenants/acme/x", "1").await.error(403);
    ana.put("/v1/tree/tenants/acme/x", "1").await.ok();
    let ask = async |user: &str, action: &str, path: &str| -> ExplainAnswer {
        boss.post("/v1/explain", why(user, action, path)).await.ok().json()
    };
    let found = ask("con", "tree_write", "/tenants/acme/x").await;
    assert_eq!((found.allowed, found.policies.as_slice()), (false, ["no-contractors".to_owned()].as_slice()));
    assert!(found.seen_ms.is_some() && found.changes[0].attribute == "principal.roles", "{found:?}");
    assert!(ask("ana", "tree_write", "/tenants/acme/x").await.allowed);
    // Of an admin's own right nothing comes along.
    let body = json!({ "user": "ana", "action": "user_list" });
    let found: ExplainAnswer = boss.post("/v1/explain", body).await.ok().json();
    assert_eq!(found.policies, ["admins-only"]);
    // Nobody else asks, about nobody: neither a user nor another tenant's admin, whose users are others.
    for who in [&ana, &con] {
        let refused = who.post("/v1/explain", why("boss", "tree_read", "/tenants/acme/x")).await;
        assert_eq!(refused.error(403).policies, ["own-requests-only"]);
    }
    let own: ExplainAnswer = ana.post("/v1/explain", why("ana", "tree_read", "/tenants/acme/x")).await.ok().json();
    assert!(own.allowed && own.seen_ms.is_none(), "{own:?}");
    let eve = world.admin("globex", "eve");
    eve.post("/v1/explain", why("ana", "tree_read", "/tenants/acme/x")).await.error(404);
    // What is in somebody's own folder is not told to an admin: it is as if nothing was known of it.
    ana.put("/v1/tree/tenants/acme/users/ana/pay", "1").await.ok();
    let told = async || {
        let found = ask("ana", "tree_read", "/tenants/acme/users/ana/pay").await;
        ExplainAnswer { seen_ms: None, ..found }
    };
    let before = told().await;
    let labels =
        ana.ask(Method::PUT, "/v1/labels/tenants/acme/users/ana/pay").header("content-type", "application/json");
    labels.body(r#"{"labels":["payroll"]}"#).answer().await.ok();
    ana.get("/v1/tree/tenants/acme/users/ana/pay").await.error(403);
    assert_eq!(told().await, before);
    assert_eq!(ask("con", "tree_read", "/tenants/acme/users/ana/pay").await.policies, ["own-folder-only"]);
    // In the tenant's own store an admin sees labels, and so the reason.
    let labels = boss.ask(Method::PUT, "/v1/labels/tenants/acme/x").header("content-type", "application/json");
    labels.body(r#"{"labels":["payroll"]}"#).answer().await.ok();
    assert_eq!(ask("ana", "tree_read", "/tenants/acme/x").await.policies, ["payroll-is-closed"]);
    // Who is disabled is denied by that.
    boss.post("/v1/users/con/disable", json!({})).await.ok();
    let found = ask("con", "tree_read", "/tenants/acme/y").await;
    assert_eq!((found.allowed, found.reason.as_str()), (false, "the user is disabled"));
    // It is on the audit, and what is known lasts over a restart.
    let audit = boss.get("/v1/audit?action=policy_explain").await.ok();
    assert!(String::from_utf8_lossy(&audit.body).contains("own-requests-only"));
    let world = World::on(world.stop().await).await;
    let boss = world.admin("acme", "boss");
    let found: ExplainAnswer = boss.post("/v1/explain", why("ana", "tree_read", "/tenants/acme/y")).await.ok().json();
    assert!(found.allowed && found.seen_ms.is_some(), "{found:?}");
}

/// Whether bob's path is labelled and his branch protected shows in no answer to anybody else, whatever rules look at it.
#[tokio::test]
async fn attributes_of_another_users_path_are_not_told_by_denials_and_explanations() {
    let world = World::under(operator(
        r#"@id("payroll-is-closed") @reason("it is payroll") forbid (principal, action, resource is Path)
           when { resource.labels.contains("payroll") } unless { principal.name == "bob" };
           @id("reviewed") forbid (principal, action, resource is Path)
           when { resource.protected } unless { principal.name == "bob" };"#,
    ))
    .await;
    let (ana, bob, root) = (world.client("acme", "ana"), world.client("acme", "bob"), world.admin("acme", "root"));
    let theirs = "/tenants/acme/users/bob/x";
    bob.put(&format!("/v1/tree{theirs}"), "1").await.ok();
    let answers = async || {
        let mut answers = Vec::new();
        for who in [&ana, &root] {
            for action in Action::ALL {
                let body = json!({ "action": action.as_str(), "path": theirs });
                let answer = who.post("/v1/explain", body).await;
                if answer.status == 200 {
                    let found: ExplainAnswer = answer.json();
                    assert!(!found.allowed && found.changes.is_empty(), "{action}: {found:?}");
                }
                answers.push((answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned()));
            }
            for front in ["tree", "tree-history", "tree-blame", "tree-diff", "labels"] {
                let denied = who.get(&format!("/v1/{front}{theirs}")).await.error(403);
                answers.push((403, format!("{:?} {} {}", denied.policies, denied.message, denied.hint)));
            }
            let denied = who.put(&format!("/v1/tree{theirs}"), "2").await.error(403);
            assert_eq!(denied.policies, ["own-folder-only"]);
            answers.push((403, format!("{} {}", denied.message, denied.hint)));
        }
        // The id of the request is another each time.
        answers
            .into_iter()
            .map(|(status, text)| (status, text.split("\"request_id\"").next().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let before = answers().await;
    let label = bob.ask(Method::PUT, &format!("/v1/labels{theirs}")).body(json!({"labels": ["payroll"]}).to_string());
    label.answer().await.ok();
    bob.ask(Method::PUT, "/v1/protections/tenants/acme/users/bob?branch=main").answer().await.ok();
    assert_eq!(answers().await, before);
    // They count where they may be told.
    let shared = "/tenants/acme/x";
    root.put(&format!("/v1/tree{shared}"), "1").await.ok();
    let label = root.ask(Method::PUT, &format!("/v1/labels{shared}")).body(json!({"labels": ["payroll"]}).to_string());
    label.answer().await.ok();
    let denied = ana.get(&format!("/v1/tree{shared}")).await.error(403);
    assert_eq!(denied.policies, ["payroll-is-closed"]);
    assert!(denied.hint.contains("resource.labels"), "{}", denied.hint);
}

#[tokio::test]
async fn a_dry_run_tells_operators_no_names_and_tenants_nothing() {
    let world = World::new().await;
    let (ana, bob, root) = (world.client("acme", "ana"), world.client("acme", "bob"), world.operator_named("olga"));
    for (who, path) in
        [(&ana, "/tenants/acme/plans/q1"), (&ana, "/tenants/acme/plans/q2"), (&bob, "/tenants/acme/users/bob/diary")]
    {
        who.put(&format!("/v1/tree{path}"), "1").await.ok();
    }
    ana.get("/v1/tree/tenants/acme/users/bob/diary").await.error(403);
    ana.get("/v1/runs").await.ok();
    world.operator_named("oscar").get("/v1/operator/tenants").await.ok();
    let ask = json!({ "files": { "operator.cedar": r#"@id("none") forbid (principal, action, resource);"# } });
    for who in [&ana, &world.admin("acme", "root")] {
        who.post("/v1/operator/policies/dry-run", ask.clone()).await.error(403);
    }
    let answer = root.post("/v1/operator/policies/dry-run", ask).await.ok();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    for hidden in ["ana", "bob", "plans", "diary", "olga", "oscar", "Operator"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    let found: DryRunAnswer = answer.json();
    let rows: Vec<_> =
        found.newly_denied.iter().map(|row| (row.action.as_str(), row.resource.as_str(), row.count)).collect();
    assert_eq!(
        rows,
        [
            ("run_list", r#"Tenant::"acme/…""#, 1),
            // A write asks whether its caller may be told the id of what it wrote.
            ("tree_read", r#"Path::"/tenants/acme/users/…""#, 1),
            ("tree_read", r#"Path::"/tenants/acme/…""#, 2),
            ("tree_write", r#"Path::"/tenants/acme/users/…""#, 1),
            ("tree_write", r#"Path::"/tenants/acme/…""#, 2),
        ]
    );
    assert!(found.newly_denied.iter().all(|row| row.principal == r#"User::"acme/…""#), "{text}");
}

/// A dry run takes as large a folder as the server follows, and no larger.
#[tokio::test]
async fn a_dry_run_takes_a_folder_as_large_as_the_server_follows() {
    let world = World::new().await;
    let root = world.operator();
    let folder = |files: usize, bytes: usize| {
        // Each line is escaped on the way.
        let text = "//\n".repeat(bytes / files / 3);
        let files: std::collections::BTreeMap<_, _> =
            (0..files).map(|n| (format!("{n}.cedar"), text.clone())).collect();
        json!({ "files": files })
    };
    root.post("/v1/operator/policies/dry-run", folder(8, MAX_FOLDER_BYTES)).await.ok();
    let refused = root.post("/v1/operator/policies/dry-run", folder(8, MAX_FOLDER_BYTES + 400)).await.error(413);
    assert_eq!(refused.error, "too_many_policies");
    root.post("/v1/operator/policies/dry-run", folder(MAX_FOLDER_FILES + 1, 3000)).await.error(413);
}

#[tokio::test]
async fn a_run_that_is_no_longer_allowed_ends_and_says_why() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(until_cancelled);
    let accepted = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await;
    let run = accepted.json::<RunAccepted>().run;
    let live = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    let text = r#"@id("no-runs") forbid (principal, action == Action::"run_create", resource);"#;
    assert!(world.control.activate_policies(operator(text)).await);
    let lines = live.collect().await.unwrap().to_bytes();
    let last = lines.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
    let event: RunEvent = serde_json::from_slice(last).unwrap();
    let RunEventKind::Ended(result) = event.kind else { panic!("{event:?}") };
    assert_eq!(result.ending, Ending::Cancelled);
    assert!(result.denied.unwrap().contains("no-runs"));
}

#[tokio::test]
async fn a_stream_that_is_no_longer_allowed_breaks_off() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(until_cancelled);
    let accepted = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await;
    let run = accepted.json::<RunAccepted>().run;
    let live = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    let text = r#"@id("blind") forbid (principal, action == Action::"run_read", resource);"#;
    assert!(world.control.activate_policies(operator(text)).await);
    assert!(live.collect().await.is_err(), "the stream ended as if it were whole");
}

#[tokio::test]
async fn a_refused_change_is_told_and_the_old_set_stays() {
    let world = World::new().await;
    let (ana, root) = (world.client("acme", "ana"), world.operator());
    world.control.refuse_policies("it does not parse");
    ana.get("/v1/runs").await.ok();
    let ready = ana.get("/readyz").await.ok();
    // Anybody may ask that: why is for the operator.
    assert_eq!(String::from_utf8_lossy(&ready.body), "ok\npolicy: refused\n");
    let state: PolicyState = root.get("/v1/operator/policies").await.ok().json();
    assert_eq!(state.refused.as_deref(), Some("it does not parse"));
    assert!(state.proof.starts_with("unproven"), "{state:?}");
    assert!(world.control.activate_policies(Policies::new(&[]).unwrap()).await);
    let state: PolicyState = root.get("/v1/operator/policies").await.ok().json();
    assert_eq!(state.refused, None);
    ana.get("/v1/operator/policies").await.error(403);
}

#[tokio::test]
async fn c14_a_set_that_lets_one_tenant_act_on_anothers_is_refused_where_there_is_a_solver() {
    let prover = Prover::find(std::env::var_os("CVC5"), std::env::var_os("PATH").as_deref())
        .expect("cvc5 is installed by `make setup`");
    let world = World::proving(prover).await;
    let (root, eve) = (world.operator(), world.client("globex", "eve"));
    world.client("acme", "ana").put("/v1/tree/tenants/acme/secret", "canary").await.ok();
    let state: PolicyState = root.get("/v1/operator/policies").await.ok().json();
    assert_eq!((state.proof.as_str(), state.refused), ("proven", None));
    // No operator's file can do this: the base rules are not theirs. It is what a mistake in ours would be.
    let open = Policies::weakened(r#"@id("all") permit (principal, action, resource);"#, &[]).unwrap();
    assert!(!world.control.activate_policies(open).await);
    assert_eq!(eve.get("/v1/tree/tenants/acme/secret").await.error(403).policies, ["own-tenant-only"]);
    let state: PolicyState = root.get("/v1/operator/policies").await.ok().json();
    assert_eq!(state.proof, "proven", "that of the set in force");
    assert!(state.refused.unwrap().contains("which is another tenant's"));
    let ready = eve.get("/readyz").await.ok();
    assert!(String::from_utf8_lossy(&ready.body).contains("policy: refused"));
    let wide = operator(r#"@id("wide") permit (principal, action, resource);"#);
    assert!(world.control.activate_policies(wide).await);
    eve.get("/v1/tree/tenants/acme/secret").await.error(403);
}

#[tokio::test]
async fn c14_a_set_that_is_refused_keeps_the_server_from_starting() {
    let prover = Prover::find(std::env::var_os("CVC5"), std::env::var_os("PATH").as_deref())
        .expect("cvc5 is installed by `make setup`");
    let open = Policies::weakened(r#"@id("all") permit (principal, action, resource);"#, &[]).unwrap();
    let refused = World::refusal(open, prover.clone()).await.expect("it started");
    assert!(refused.contains("which is another tenant's"), "{refused}");
    assert_eq!(World::refusal(Policies::new(&[]).unwrap(), prover).await, None);
    // A solver that says nothing has proven nothing.
    let mute = Prover::find(Some("/bin/false".into()), None).expect("there is such a program");
    let refused = World::refusal(Policies::new(&[]).unwrap(), mute).await.expect("it started unproven");
    assert!(refused.contains("the policies are refused"), "{refused}");
}

#[tokio::test]
async fn a_dry_run_says_what_other_policies_would_have_denied_and_allowed() {
    let world =
        World::under(operator(r#"@id("old") forbid (principal, action == Action::"run_list", resource);"#)).await;
    let (ana, root) = (world.client("acme", "ana"), world.operator());
    for _ in 0..3 {
        ana.get("/v1/runs").await.error(403);
        ana.get("/v1/tree/tenants/acme").await.ok();
    }
    let new = r#"@id("new") forbid (principal, action == Action::"tree_list", resource);"#;
    let ask = json!({ "files": { "operator.cedar": new } });
    let found: DryRunAnswer = root.post("/v1/operator/policies/dry-run", ask).await.ok().json();
    let rows = |rows: &[bailey_protocol::api::policy::DryRunRow]| -> Vec<_> {
        rows.iter().map(|row| (row.action.clone(), row.count)).collect()
    };
    assert_eq!(rows(&found.newly_denied), [("tree_list".to_owned(), 3)]);
    assert_eq!(rows(&found.newly_allowed), [("run_list".to_owned(), 3)]);
    assert_eq!(found.newly_denied[0].by, ["new"]);
    ana.get("/v1/runs").await.error(403);
    root.post("/v1/operator/policies/dry-run", json!({ "files": { "x.cedar": "permit (" } })).await.error(400);
}

#[tokio::test]
async fn another_user_is_explained_with_the_region_of_its_last_token() {
    let world = World::under(operator(
        r#"@id("at-home") forbid (principal is User, action == Action::"tree_read", resource)
           unless { principal has region && principal.region == "eu" };"#,
    ))
    .await;
    let boss = world.admin("acme", "boss");
    let ask = async |user: &str| -> ExplainAnswer {
        let ask = json!({ "user": user, "action": "tree_read", "path": "/tenants/acme/plan" });
        boss.post("/v1/explain", ask).await.ok().json()
    };
    world.client_in("acme", "ana", "eu").get("/v1/runs").await.ok();
    world.client_in("acme", "bob", "us").get("/v1/runs").await.ok();
    assert!(ask("ana").await.allowed && !ask("bob").await.allowed);
}

/// How long somebody's request usually takes while another tenant asks as much as it can.
#[allow(clippy::disallowed_methods, reason = "real time is what is measured")]
async fn usually(victim: &Client, flooder: &Client, path: &str) -> Duration {
    let flood = async || loop {
        flooder.get(path).await;
    };
    let flood = futures_util::future::join_all((0..16).map(|_| flood()));
    let measured = async {
        let mut took = Vec::new();
        for _ in 0..31 {
            let begin = Instant::now();
            victim.get("/v1/tree/tenants/globex/x").await.error(404);
            took.push(begin.elapsed());
        }
        took.sort_unstable();
        took[took.len() / 2]
    };
    tokio::select! {
        _never = flood => unreachable!("it goes on"),
        took = measured => took,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_tenant_with_the_heaviest_policies_slows_nobody_elses_decisions_down() {
    let world = World::new().await;
    let (boss, ana, eve) = (world.admin("acme", "boss"), world.client("acme", "ana"), world.client("globex", "eve"));
    // A path in which everything almost matches everywhere.
    let path = format!("/v1/tree/tenants/acme{}", format!("/{}", "a".repeat(250)).repeat(12));
    let light = usually(&eve, &ana, &path).await;
    let pattern = format!(r#"resource.path like "*{}b*""#, "a".repeat(90));
    put_policy(&boss, "heavy", &format!("forbid (principal, action, resource is Path) when {{ {pattern} }};"))
        .await
        .ok();
    assert_eq!(
        put_policy(&boss, "more", &format!("forbid (principal, action, resource is Path) when {{ {pattern} }};"))
            .await
            .error(413)
            .error,
        "too_many_policies"
    );
    let heavy = usually(&eve, &ana, &path).await;
    assert!(heavy < 5 * light, "{heavy:?}, and {light:?} beside light policies");
}
