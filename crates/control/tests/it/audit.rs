//! The audit over HTTP: whose it is, what it tells, and that what was exported verifies.

use bailey_control::audit::export::verify_export;
use bailey_control::audit::{AuditKeys, Fault};
use bailey_control::db::{AuditDb as _, Sqlite};
use bailey_control::node_link::StartRun;
use bailey_policy::Policies;
use bailey_protocol::api::RunEventKind;
use bailey_protocol::audit::{AuditLine, AuditPage, AuditRecord};
use bailey_protocol::node::NodeFaultKind;
use futures_util::StreamExt as _;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::client::Client;
use crate::node::{failed, writes};
use crate::world::World;

async fn page(client: &Client, query: &str) -> AuditPage {
    client.get(&format!("/v1/audit{query}")).await.ok().json()
}

fn lines(page: &AuditPage) -> Vec<String> {
    let line = |record: &AuditRecord| {
        let detail = record.detail.as_ref().map(|detail| detail.resource.as_str());
        let user = record.user.as_deref().unwrap_or("?");
        format!("{user} {} {} {}", record.row.action, detail.unwrap_or("?"), record.row.outcome)
    };
    page.records.iter().map(line).collect()
}

#[tokio::test]
async fn an_admin_reads_its_own_tenants_audit_and_nobody_elses() {
    let world = World::new().await;
    let (ana, boss, eve) = (world.client("acme", "ana"), world.admin("acme", "boss"), world.admin("evil", "eve"));
    ana.put("/v1/tree/tenants/acme/x", "1").await.ok();
    eve.get("/v1/tree/tenants/acme/x").await.error(403);
    assert_eq!(ana.get("/v1/audit").await.error(403).policies, ["admins-only"]);
    ana.get("/v1/audit-export").await.error(403);
    assert_eq!(
        lines(&page(&boss, "").await),
        ["ana audit_read acme denied", "ana audit_read acme denied", "ana tree_write /tenants/acme/x ok",]
    );
    // What eve asked for is in her tenant's, and nothing of acme's is.
    assert_eq!(lines(&page(&eve, "").await), ["eve tree_read /tenants/acme/x denied"]);
    let whole = format!("{:?}", eve.get("/v1/audit-export").await.ok().body);
    assert!(!whole.contains("ana") && !whole.contains("tenant/acme"), "{whole}");
    // An operator sees that something was done, not by whom nor about what.
    let operator = world.operator();
    let seen: AuditPage = operator.get("/v1/operator/audit?tenant=acme").await.ok().json();
    assert!(lines(&seen).contains(&"? tree_write ? ok".to_owned()), "{seen:?}");
    let own: AuditPage = operator.get("/v1/operator/audit?action=tenant_audit").await.ok().json();
    assert_eq!(lines(&own), ["root tenant_audit acme ok"]);
    operator.get("/v1/operator/audit?tenant=acmee").await.error(404);
    operator.get("/v1/operator/audit?tenant=acmee&follow=true").await.error(404);
    let own: AuditPage = operator.get("/v1/operator/audit?user=root&resource=bailey").await.ok().json();
    assert_eq!(lines(&own), ["root operator_audit bailey ok"]);
    // Nor does it find out by asking for rows of a name or a path.
    for query in ["user=ana", "resource=/tenants/acme/x"] {
        assert_eq!(
            operator.get(&format!("/v1/operator/audit?tenant=acme&{query}")).await.error(400).error,
            "invalid_query"
        );
    }
    assert_eq!(boss.get("/v1/operator/audit").await.error(403).error, "wrong_identity");
    assert_eq!(operator.get("/v1/audit").await.error(403).error, "wrong_identity");
}

#[tokio::test]
async fn what_an_operator_changes_of_a_tenants_is_on_its_audit_by_a_pseudonym() {
    let world = World::new().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    ana.get("/v1/runs").await.ok();
    let (root, rita) = (world.operator(), world.operator_named("rita"));
    let of = |what: &str| format!("/v1/operator/tenants/acme/{what}");
    let quota = serde_json::to_string(&bailey_protocol::quota::TenantQuota::UNLIMITED).unwrap();
    let json = |method, path: &str, body: &str| {
        let asking = root.ask(method, path).header("content-type", "application/json").body(body.to_owned());
        asking.answer()
    };
    // What is only looked at is the operators' own business, but who the tenant's users are.
    root.get(&of("quota")).await.ok();
    root.get(&of("facts")).await.ok();
    json(Method::PUT, &of("quota"), &quota).await.ok();
    root.delete(&of("quota")).await.ok();
    json(Method::PUT, &of("quota"), r#"{"bytes": 1}"#).await;
    json(Method::PUT, &of("facts"), r#"{"region": "eu"}"#).await.ok();
    root.post(&of("gc"), json!({})).await.ok();
    root.get(&of("users")).await.ok();
    rita.post(&of("users/ana/disable"), json!({})).await.ok();
    root.post(&of("users/ana/enable"), json!({})).await.ok();
    root.post(&of("disable"), json!({})).await.ok();
    root.post(&of("enable"), json!({})).await.ok();
    root.delete(&of("users/ana")).await.ok();
    let told: AuditPage = boss.get("/v1/audit?after=0").await.ok().json();
    let operators: Vec<&AuditRecord> =
        told.records.iter().filter(|record| record.row.policies == ["operator"]).collect();
    let actions: Vec<&str> = operators.iter().map(|record| record.row.action.as_str()).collect();
    let expected = [
        "quota_set",
        "quota_reset",
        "facts_set",
        "garbage_collect",
        "tenant_user_list",
        "tenant_user_disable",
        "tenant_user_enable",
        "tenant_disable",
        "tenant_enable",
        "tenant_user_forget",
    ];
    assert_eq!(actions, expected);
    // Two operators, told apart, and neither by name: not by its rows, nor by asking for them, nor in an export.
    assert!(operators.iter().all(|record| record.user.is_none()), "{operators:?}");
    let by: Vec<_> = operators.iter().map(|record| record.row.subject).collect();
    assert!(by.iter().enumerate().all(|(at, id)| (*id == by[0]) == (at != 5)), "{operators:?}");
    for name in ["root", "rita"] {
        assert_eq!(page(&boss, &format!("?user={name}")).await.records, []);
        let export = format!("{:?}", boss.get("/v1/audit-export").await.ok().body);
        assert!(!export.contains(name), "{export}");
    }
    // Operators see their own names, in their chain and in the tenant's, where they see no user's.
    let theirs: AuditPage = root.get("/v1/operator/audit?tenant=acme&after=0").await.ok().json();
    let names = |page: &AuditPage, of: &str| {
        page.records
            .iter()
            .filter(|record| record.row.action == of)
            .map(|record| record.user.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&theirs, "tenant_user_disable"), [Some("rita".to_owned())]);
    assert_eq!(names(&theirs, "run_list"), [None]);
    let own: AuditPage = root.get("/v1/operator/audit?after=0").await.ok().json();
    for action in expected {
        let by = if action == "tenant_user_disable" { "rita" } else { "root" };
        assert_eq!(names(&own, action), [Some(by.to_owned())], "{action}");
    }
    let keys = boss.get("/.well-known/jwks.json").await.ok();
    let keys = AuditKeys::from_jwks(std::str::from_utf8(&keys.body).unwrap()).unwrap();
    for (client, path) in [(&boss, "/v1/audit-export"), (&root, "/v1/operator/audit-export?tenant=acme")] {
        let export = client.get(path).await.ok().body;
        let report = verify_export(&export[..], Some(&keys)).unwrap().report;
        assert!(report.is_whole(), "{path}: {report:?}");
    }
}

#[tokio::test]
async fn what_an_operator_changes_for_everybody_is_on_every_tenants_audit() {
    let world = World::new().await;
    let bosses = [world.admin("acme", "boss"), world.admin("globex", "gil")];
    for boss in &bosses {
        boss.get("/v1/users").await.ok();
    }
    let rule = |id: &str| {
        let text = format!(r#"@id("{id}") forbid (principal, action == Action::"tree_purge", resource);"#);
        Policies::new(&[("o.cedar".to_owned(), text)]).unwrap()
    };
    assert!(world.control.activate_policies(rule("one")).await);
    let changed = |page: &AuditPage| {
        let rows = page.records.iter().filter(|record| record.row.action == "policies_changed");
        rows.map(|record| (record.user.clone(), record.row.outcome.clone())).collect::<Vec<_>>()
    };
    let wait = async |boss: &Client, count: usize| {
        while changed(&page(boss, "?action=policies_changed").await).len() < count {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        changed(&page(boss, "?action=policies_changed").await)
    };
    let told = wait(&bosses[0], 1).await;
    assert!(told.len() == 1 && told[0].0.as_deref() == Some("bailey"), "{told:?}");
    assert_eq!(wait(&bosses[1], 1).await, told);
    let own: AuditPage = world.operator().get("/v1/operator/audit").await.ok().json();
    assert_eq!(changed(&own), told);
    let content = crate::shares::tar(&[("a", "1")]);
    crate::shares::publish(&world.operator(), "starter", content).await.ok();
    for boss in &bosses {
        let page = page(boss, "?action=baseline_publish").await;
        assert_eq!(lines(&page), ["? baseline_publish starter ok"]);
    }
    // Policies that are others at the next start are told then.
    let world = World::on_under(world.stop().await, rule("one")).await;
    let boss = world.admin("acme", "boss");
    assert_eq!(wait(&boss, 1).await.len(), 1);
    let world = World::on_under(world.stop().await, rule("two")).await;
    assert_eq!(wait(&world.admin("acme", "boss"), 2).await.len(), 2);
}

#[tokio::test]
async fn how_a_run_ended_and_what_came_of_it_are_rows() {
    let world = World::new().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    world.node.follow(|order| writes(order, "out", "1".to_owned()));
    let mounts = json!([{"path": "/tenants/acme/d", "at": "/data"}]);
    let answer = ana.run(json!({"command": ["true"], "mounts": mounts})).await;
    let run = answer.header("bailey-run").to_owned();
    let RunEventKind::Ended(result) = answer.last() else { panic!("{answer:?}") };
    let version = result.versions[0].version.clone();
    let told = lines(&page(&boss, &format!("?run={run}")).await);
    let came = [format!("ana run_commit /tenants/acme/d {version}"), format!("ana run_end {run} exited=0")];
    assert_eq!(told[..2], came, "{told:?}");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(failed(NodeFaultKind::Exhausted, "full")).await.unwrap();
    });
    let run = ana.run(json!({"command": ["true"]})).await.header("bailey-run").to_owned();
    let told = lines(&page(&boss, &format!("?run={run}&action=run_end")).await);
    assert_eq!(told, [format!("ana run_end {run} node_exhausted")]);
}

#[tokio::test]
async fn rows_are_filtered_and_paged() {
    let world = World::new().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    for n in 0..7 {
        ana.put(&format!("/v1/tree/tenants/acme/a/{n}"), "1").await.ok();
    }
    let run = ana.run(json!({"command": ["true"]})).await.header("bailey-run").to_owned();
    ana.get(&format!("/v1/runs/{run}")).await.ok();
    for (query, count) in [
        ("?user=ana", 10),
        ("?user=bob", 0),
        ("?action=tree_write", 7),
        ("?decision=denied", 0),
        ("?resource=/tenants/acme/a/3", 1),
        (&format!("?run={run}"), 3),
        ("?until=5", 0),
        ("?since=5&action=run_create", 1),
    ] {
        assert_eq!(page(&boss, query).await.records.len(), count, "{query}");
    }
    let mut seen = Vec::new();
    let mut before = String::new();
    loop {
        let page = page(&boss, &format!("?action=tree_write&limit=3{before}")).await;
        seen.extend(page.records.iter().map(|record| record.row.seq));
        let Some(next) = page.next else { break };
        before = format!("&before={next}");
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
    let up = page(&boss, "?after=2&limit=2").await;
    assert_eq!(up.records.iter().map(|record| record.row.seq).collect::<Vec<_>>(), [3, 4]);
    boss.get("/v1/audit?after=1&before=2").await.error(400);
    // What there can be no row of is misspelt.
    let root = world.operator();
    for (wrong, nearest) in [("action=tree_wrote", "`tree_write`"), ("action=policy_changed", "`policies_changed`")] {
        for asked in ["/v1/audit?", "/v1/audit?follow=true&", "/v1/operator/audit?"] {
            let client = if asked.contains("operator") { &root } else { &boss };
            let error = client.get(&format!("{asked}{wrong}")).await.error(400);
            assert!(error.error == "invalid_action" && error.message.contains(nearest), "{error:?}");
        }
    }
    boss.get("/v1/audit?decision=refused").await.error(400);
    boss.get("/v1/audit?tenant=evil").await.error(400);
}

#[tokio::test]
async fn d18_an_export_verifies_and_says_where_it_was_changed() {
    let world = World::new().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    for n in 0..5 {
        ana.put(&format!("/v1/tree/tenants/acme/{n}"), "1").await.ok();
    }
    let keys = boss.get("/.well-known/jwks.json").await.ok();
    let keys = AuditKeys::from_jwks(std::str::from_utf8(&keys.body).unwrap()).unwrap();
    let export = boss.get("/v1/audit-export").await.ok().body;
    let text = std::str::from_utf8(&export).unwrap();
    let check =
        |lines: &[&str], keys: Option<&AuditKeys>| verify_export(lines.join("\n").as_bytes(), keys).unwrap().report;
    let whole: Vec<&str> = text.lines().collect();
    let good = check(&whole, Some(&keys));
    // Five writes and the export itself.
    assert_eq!((good.rows, good.signed, &good.faults), (6, 6, &vec![]));
    assert!(check(&whole, None).is_whole());
    let stranger = AuditKeys::of(&[1; 32]);
    assert!(!check(&whole, Some(&stranger)).is_whole());

    let row = |seq| whole.iter().position(|line| line.contains(&format!("\"seq\":{seq},"))).unwrap();
    let edited = whole[row(3)].replace("\"outcome\":\"ok\"", "\"outcome\":\"denied\"");
    let mut lines = whole.clone();
    lines[row(3)] = &edited;
    assert_eq!(check(&lines, Some(&keys)).faults, [Fault::Edited { seq: 3 }]);
    let mut lines = whole.clone();
    lines.remove(row(3));
    assert_eq!(check(&lines, Some(&keys)).faults, [Fault::Removed { from: 3, to: 3 }]);
    let mut lines = whole.clone();
    lines.swap(row(3), row(4));
    assert_eq!(check(&lines, Some(&keys)).faults, [Fault::Reordered { seq: 3 }]);
    // Cut off: without its end, and with the end of the whole.
    assert_eq!(check(&whole[..=row(4)], Some(&keys)).faults, [Fault::CutOff { last: 4 }]);
    let mut lines = whole[..=row(4)].to_vec();
    lines.push(whole[whole.len() - 1]);
    assert_eq!(check(&lines, Some(&keys)).faults, [Fault::Truncated { last: 4, signed: 6 }]);
    let unknown = whole[row(3)].replacen("\"row\":{", "\"row\":{\"forged\":1,", 1);
    let mut lines = whole.clone();
    lines[row(3)] = &unknown;
    assert!(!check(&lines, Some(&keys)).is_whole());
    // A part of it verifies by itself as well.
    let part = boss.get("/v1/audit-export?after=3").await.ok().body;
    let part = verify_export(&*part, Some(&keys)).unwrap().report;
    assert_eq!((part.rows, part.signed, &part.faults), (4, 7, &vec![]));
    assert!(matches!(serde_json::from_str(whole[0]), Ok(AuditLine::Begin { after: 0, .. })));
}

#[tokio::test]
async fn exports_at_once_hold_up_nobodys() {
    let world = World::new().await;
    let (boss, other, root) = (world.admin("acme", "boss"), world.admin("globex", "gus"), world.operator());
    let exports = (0..12).map(|number| match number % 3 {
        0 => root.get("/v1/operator/audit-export"),
        1 => other.get("/v1/audit-export"),
        _ => boss.get("/v1/audit-export"),
    });
    for answer in futures_util::future::join_all(exports).await {
        assert!(verify_export(&*answer.ok().body, None).unwrap().report.is_whole());
    }
}

#[tokio::test]
async fn an_operator_exports_its_own_chain_whole_and_a_tenants_without_names() {
    let world = World::new().await;
    let (ana, root) = (world.client("acme", "ana"), world.operator());
    ana.put("/v1/tree/tenants/acme/canary-path", "1").await.ok();
    let keys = ana.get("/.well-known/jwks.json").await.ok();
    let keys = AuditKeys::from_jwks(std::str::from_utf8(&keys.body).unwrap()).unwrap();
    let own = root.get("/v1/operator/audit-export").await.ok().body;
    let report = verify_export(&*own, Some(&keys)).unwrap().report;
    assert!(report.is_whole() && report.chain == "operator" && report.withheld == 0, "{report:?}");
    assert!(String::from_utf8_lossy(&own).contains("\"name\":\"root\""));
    let theirs = root.get("/v1/operator/audit-export?tenant=acme").await.ok().body;
    let report = verify_export(&*theirs, Some(&keys)).unwrap().report;
    assert_eq!((report.chain.as_str(), report.rows, report.withheld, &report.faults), ("tenant/acme", 1, 1, &vec![]));
    let text = String::from_utf8(theirs.to_vec()).unwrap();
    assert!(!text.contains("ana") && !text.contains("canary"), "{text}");
    // It is signed that names were left out: nobody takes them out of an export, or puts others in.
    let named = world.admin("acme", "boss").get("/v1/audit-export").await.ok().body;
    let named = String::from_utf8(named.to_vec()).unwrap();
    let stripped: String = named
        .lines()
        .filter(|line| !line.contains("\"line\":\"subject\""))
        .map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            line.as_object_mut().unwrap().remove("detail");
            if ["begin", "end"].contains(&line["line"].as_str().unwrap()) {
                line["unnamed"] = true.into();
            }
            format!("{line}\n")
        })
        .collect();
    for forged in [stripped, text.replace("\"unnamed\":true,", "")] {
        assert!(!verify_export(forged.as_bytes(), Some(&keys)).unwrap().report.is_whole(), "{forged}");
    }
    root.get("/v1/operator/audit-export?tenant=nobody").await.error(404);
    root.get("/v1/operator/audit-export?tenant=acme&user=ana").await.error(400);
    assert_eq!(ana.get("/v1/operator/audit-export").await.error(403).error, "wrong_identity");
}

#[tokio::test]
async fn whoever_follows_sees_rows_as_they_come() {
    let world = World::new().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    ana.put("/v1/tree/tenants/acme/old", "1").await.ok();
    let answer = boss.ask(Method::GET, "/v1/audit?follow=true&action=tree_write").begin().await;
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body().into_data_stream();
    ana.put("/v1/tree/tenants/acme/new", "1").await.ok();
    let line = body.next().await.unwrap().unwrap();
    let record: AuditRecord = serde_json::from_slice(&line).unwrap();
    assert_eq!(record.detail.unwrap().resource, "/tenants/acme/new");
    let again = boss.ask(Method::GET, "/v1/audit?follow=true&after=0").begin().await;
    let line = again.into_body().into_data_stream().next().await.unwrap().unwrap();
    assert!(line.starts_with(b"{\"row\":{\"chain\":\"tenant/acme\",\"seq\":1,"), "{line:?}");
}

#[tokio::test]
async fn figures_are_for_operators_and_count_decisions() {
    let world = World::new().await;
    let (ana, eve, operator) = (world.client("acme", "ana"), world.client("evil", "eve"), world.operator());
    ana.put("/v1/tree/tenants/acme/x", "1").await.ok();
    eve.get("/v1/tree/tenants/acme/x").await.error(403);
    assert_eq!(ana.get("/metrics").await.error(403).error, "wrong_identity");
    world.holder("nonsense").get("/metrics").await.error(401);
    let text = String::from_utf8(operator.get("/metrics").await.ok().body.to_vec()).unwrap();
    assert!(text.contains("bailey_decisions_total{decision=\"allowed\"} 1\n"), "{text}");
    assert!(text.contains("bailey_decisions_total{decision=\"denied\"} 1\n"), "{text}");
    assert!(text.contains("# TYPE bailey_runs gauge\nbailey_runs 0\n"), "{text}");
    assert!(text.contains("\nbailey_policies_refused 0\n"), "{text}");
    assert!(text.contains("\nbailey_policies_unproven 1\n"), "no solver here: {text}");
    assert!(text.contains("# TYPE bailey_upkeep_failures_total counter\nbailey_upkeep_failures_total 0\n"), "{text}");
    assert!(text.contains("\nbailey_tree_tenants 1\n") && !text.contains("\nbailey_tree_bytes 0\n"), "{text}");
    world.control.refuse_policies("they do not parse");
    let text = String::from_utf8(operator.get("/metrics").await.ok().body.to_vec()).unwrap();
    assert!(text.contains("\nbailey_policies_refused 1\n"), "{text}");
}

#[tokio::test]
async fn what_was_allowed_and_then_failed_is_on_the_audit() {
    let rules = r#"@id("keep") forbid (principal, action == Action::"tree_delete", resource);
        @id("blind") forbid (principal, action == Action::"tree_read", resource)
        when { resource has path && resource.path like "/tenants/acme/blind*" };"#;
    let world = World::under(Policies::new(&[("o.cedar".to_owned(), rules.to_owned())]).unwrap()).await;
    let boss = world.admin("acme", "boss");
    boss.put("/v1/tree/tenants/acme/a", "1").await.ok();
    let (a, b) = ("/tenants/acme/a", "/tenants/acme/b");
    let copy = |from: &str, moves: bool| json!({"from": from, "to": b, "move": moves});
    boss.post("/v1/tree-copy", copy(a, true)).await.error(403);
    boss.post("/v1/tree-copy", copy("/tenants/acme/blind", false)).await.error(403);
    boss.post("/v1/tree-copy", json!({"from": a, "to": b, "from_ref": "none"})).await;
    let patch = json!({"edits": [{"old": "1"}]}).to_string();
    let edit = boss.ask(Method::PATCH, "/v1/tree/tenants/acme/a").header("content-type", "application/json");
    edit.body(patch).answer().await.error(400);
    let promotion = json!({"path": "/tenants/acme", "from": "main", "into": "main"});
    boss.post("/v1/promotions", promotion).await.error(400);
    let page: AuditPage = boss.get("/v1/audit?limit=100").await.ok().json();
    let lines = lines(&page);
    for wanted in [
        "boss tree_write /tenants/acme/b denied",
        "boss tree_read /tenants/acme/a denied",
        "boss tree_write /tenants/acme/a invalid_edit",
        "boss tree_read /tenants/acme/a invalid_edit",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "{wanted}: {lines:#?}");
    }
    let promoted = lines.iter().find(|line| line.contains("tree_promote")).unwrap();
    assert!(promoted.ends_with("invalid_branch"), "{promoted}");
    let writes = lines.iter().filter(|line| line.starts_with("boss tree_write /tenants/acme/b ")).count();
    assert_eq!(writes, 3, "{lines:#?}");
}

#[tokio::test]
async fn t10_a_tenant_follows_its_audit_so_often_at_once_and_others_as_before() {
    let world = World::new().await;
    let (boss, eve) = (world.admin("acme", "boss"), world.admin("globex", "eve"));
    let mut open = Vec::new();
    for _ in 0..16 {
        let answer = boss.ask(Method::GET, "/v1/audit?follow=true").begin().await;
        assert_eq!(answer.status(), 200);
        open.push(answer);
    }
    assert_eq!(boss.get("/v1/audit?follow=true").await.error(429).error, "too_many_follow");
    assert_eq!(eve.ask(Method::GET, "/v1/audit?follow=true").begin().await.status(), 200);
    drop(open);
    let again = async {
        while boss.ask(Method::GET, "/v1/audit?follow=true").begin().await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), again).await.unwrap();
}

/// What an earlier life left unsigned is signed at the next start: whoever cuts it off before that is not seen.
#[tokio::test]
async fn d18_what_came_last_is_signed_for_when_the_server_ends() {
    let world = World::new().await;
    world.client("acme", "ana").get("/v1/runs").await.ok();
    let folder = world.stop().await;
    let db = Sqlite::open(&folder.path().join("bailey.db")).unwrap();
    assert_eq!(db.audit_unsealed().await.unwrap(), []);
}
