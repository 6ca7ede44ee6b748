//! An operator's rule about one path holds for whatever comes to it through a folder above.

use bailey_control::node_link::StartRun;
use bailey_policy::Policies;
use bailey_protocol::api::{CommitOutcome, NewVersion, RunEventKind};
use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::node::{Ending, RunUpdate};
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::{send_changes, started, stopped};
use crate::world::World;

const PROTECTED: &str = r#"@id("platform-config") @reason("only the platform writes it")
    forbid (principal, action in [Action::"mount_write", Action::"tree_delete"], resource)
    when { resource.path == "/tenants/acme/reports/.platform/config" };"#;

type Records<'a> = &'a [(Header<'a>, &'a [u8])];

fn file<'a>(path: &'a str, content: &'a str) -> (Header<'a>, &'a [u8]) {
    (Header::File { path: path.as_bytes(), executable: false, size: content.len() as u64 }, content.as_bytes())
}

fn gone(path: &str) -> (Header<'_>, &[u8]) {
    (Header::Delete { path: path.as_bytes() }, b"")
}

fn stream(records: Records<'_>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (header, content) in records {
        header.encode(&mut bytes).unwrap();
        bytes.extend_from_slice(content);
    }
    Header::End { records: records.len() as u64 }.encode(&mut bytes).unwrap();
    bytes
}

async fn under(rules: &str) -> World {
    World::under(Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap()).await
}

/// The one version of a run that mounts `path` and brings `changes`.
async fn run(world: &World, client: &Client, path: &str, changes: Vec<u8>) -> NewVersion {
    world.node.follow(move |order: StartRun| {
        let changes = changes.clone();
        async move {
            order.updates.send(started()).await.unwrap();
            order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
            send_changes(&order, 0, &changes).await;
            order.updates.send(RunUpdate::Done).await.unwrap();
        }
    });
    let answer = client.run(json!({"command": ["true"], "mounts": [{"path": path, "at": "/data"}]})).await;
    match answer.last() {
        RunEventKind::Ended(mut result) => result.versions.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn head(client: &Client) -> Option<String> {
    let answer = client.get("/v1/tree/tenants/acme").await.ok();
    answer.json::<bailey_protocol::api::TreeListing>().version.map(|version| version.to_string())
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(&format!("/v1/tree/tenants/acme/{path}")).await
}

fn kept_apart(made: &NewVersion, conflicts: &[&str]) {
    assert_eq!(made.outcome, CommitOutcome::SideBranch, "{made:?}");
    assert!(made.branch.as_str().starts_with("runs/run_"), "{made:?}");
    let reason = made.reason.as_deref().unwrap();
    assert!(reason.contains("`platform-config`") && reason.contains("only the platform writes it"), "{reason}");
    assert_eq!(made.conflicts, conflicts);
}

#[tokio::test]
async fn f20_a_protected_path_that_is_not_there_yet_is_not_made_through_a_folder_above() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    for (mount, config, beside) in [
        ("/tenants/acme/reports", ".platform/config", "q1"),
        ("/tenants/acme", "reports/.platform/config", "reports/q1"),
        ("/tenants/acme/reports/.platform", "config", "q1"),
    ] {
        let before = head(&ana).await;
        let records = [file(beside, "1"), file(config, "evil")];
        let made = run(&world, &ana, mount, stream(&records)).await;
        kept_apart(&made, &["reports/.platform/config"]);
        assert_eq!(head(&ana).await, before, "nothing of it is on the branch");
        get(&ana, "reports/.platform/config").await.error(404);
        let aside = format!("reports/.platform/config?ref={}", made.branch);
        assert_eq!(get(&ana, &aside).await.ok().body, "evil");
    }
    // As a folder or a link it is no other.
    let folder = [(Header::Directory { path: b".platform/config" }, &b""[..])];
    let link = [(Header::Symlink { path: b".platform/config", target: b"/etc/passwd" }, &b""[..])];
    for records in [folder, link] {
        kept_apart(&run(&world, &ana, "/tenants/acme/reports", stream(&records)).await, &["reports/.platform/config"]);
    }
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&[file(".platform/other", "1")])).await;
    assert_eq!((made.outcome, made.reason), (CommitOutcome::Committed, None));
}

#[tokio::test]
async fn f20_a_protected_path_is_not_changed_deleted_or_replaced_through_a_folder_above() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/reports/.platform/config", "good").await.ok();
    let before = head(&ana).await;
    let link = (Header::Symlink { path: b".platform", target: b"evil" }, &b""[..]);
    let executable = (Header::File { path: b".platform/config", executable: true, size: 4 }, &b"good"[..]);
    let attacks: [Records<'_>; 7] = [
        &[file(".platform/config", "evil")],
        &[executable],
        &[gone(".platform/config")],
        &[gone(".platform")],
        // The folder renamed away, another in its place, a link in its place.
        &[gone(".platform"), file("moved/config", "good")],
        &[gone(".platform"), file(".platform/config", "evil"), file(".platform/more", "1")],
        &[gone(".platform"), link],
    ];
    for attack in attacks {
        let made = run(&world, &ana, "/tenants/acme/reports", stream(attack)).await;
        let planted = matches!(attack.last(), Some((Header::Symlink { .. }, _)));
        let denied = ["reports/.platform", "reports/.platform/config"];
        kept_apart(&made, if planted { &denied } else { &denied[1..] });
        assert_eq!(get(&ana, "reports/.platform/config").await.ok().body, "good");
    }
    kept_apart(&run(&world, &ana, "/tenants/acme", stream(&[gone("reports")])).await, &["reports/.platform/config"]);
    assert_eq!(head(&ana).await, before);
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&[file("q1", "1")])).await;
    assert_eq!(made.outcome, CommitOutcome::Committed);
}

#[tokio::test]
async fn f20_a_branch_that_moved_is_asked_about_as_it_would_become() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    let meanwhile = ana.clone();
    world.node.follow(move |order: StartRun| {
        let ana = meanwhile.clone();
        async move {
            ana.put("/v1/tree/tenants/acme/elsewhere", "1").await.ok();
            order.updates.send(started()).await.unwrap();
            order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
            for (mount, changes) in [(0, stream(&[file("x", "1")])), (1, stream(&[file(".platform/config", "evil")]))] {
                send_changes(&order, mount, &changes).await;
            }
            order.updates.send(RunUpdate::Done).await.unwrap();
        }
    });
    let mounts = json!([{"path": "/tenants/acme/a", "at": "/a"}, {"path": "/tenants/acme/reports", "at": "/b"}]);
    let RunEventKind::Ended(result) = ana.run(json!({"command": ["true"], "mounts": mounts})).await.last() else {
        panic!("no end")
    };
    assert_eq!(result.versions.len(), 2);
    for made in &result.versions {
        kept_apart(made, &["reports/.platform/config"]);
    }
    assert_eq!(get(&ana, "elsewhere").await.ok().body, "1");
    get(&ana, "a").await.error(404);
    get(&ana, "reports").await.error(404);
}

#[tokio::test]
async fn f20_what_was_denied_below_a_mount_is_on_the_audit() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    run(&world, &ana, "/tenants/acme", stream(&[file("reports/.platform/config", "evil")])).await;
    let folder = world.stop().await;
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    let sql = "SELECT user, action, resource, policies, reason FROM audit WHERE decision = 'denied'";
    let mut query = db.prepare(sql).unwrap();
    let rows =
        query.query_map([], |row| (0..5).map(|column| row.get::<_, String>(column)).collect::<Result<Vec<_>, _>>());
    let rows: Vec<Vec<String>> = rows.unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0][..3], ["ana", "mount_write", "/tenants/acme/reports/.platform/config"]);
    assert!(rows[0][3].contains("platform-config"), "{rows:?}");
    assert_eq!(rows[0][4], "only the platform writes it");
}

#[tokio::test]
async fn f20_a_folder_with_a_protected_path_below_it_is_not_deleted() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/reports/.platform/config", "good").await.ok();
    ana.put("/v1/tree/tenants/acme/reports/q1/x", "1").await.ok();
    for path in ["reports", "reports/.platform", "reports/.platform/config"] {
        let error = ana.delete(&format!("/v1/tree/tenants/acme/{path}")).await.error(403);
        assert_eq!((error.error.as_str(), error.policies), ("denied", vec!["platform-config".to_owned()]), "{path}");
        assert_eq!(get(&ana, "reports/.platform/config").await.ok().body, "good");
    }
    ana.delete("/v1/tree/tenants/acme/reports/q1").await.ok();
}

#[tokio::test]
async fn f20_what_policy_cannot_be_asked_about_is_kept_apart() {
    let rules = r#"@id("no-odd") forbid (principal, action == Action::"mount_write", resource)
        when { resource.path like "*/reports/od*" };"#;
    let world = under(rules).await;
    let ana = world.client("acme", "ana");
    // A name that is no text can be asked about.
    let odd = [(Header::File { path: b"odd\xff", executable: false, size: 1 }, &b"1"[..])];
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&odd)).await;
    assert_eq!((made.outcome, made.conflicts), (CommitOutcome::SideBranch, vec!["reports/odd\u{10ffff}".to_owned()]));
    let made = run(&world, &ana, "/tenants/acme/other", stream(&odd)).await;
    assert_eq!(made.outcome, CommitOutcome::Committed, "{made:?}");
    let names: Vec<String> = (0..20_001).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| file(name, "1")).collect();
    let made = run(&world, &ana, "/tenants/acme/many", stream(&many)).await;
    assert_eq!(made.outcome, CommitOutcome::SideBranch, "{made:?}");
    assert!(made.reason.unwrap().contains("more than 20000 paths"));
    get(&ana, "many").await.error(404);
    // No operator rule about writes: nothing to ask, so both land.
    let world = under(r#"forbid (principal, action == Action::"run_as_root", resource);"#).await;
    let ana = world.client("acme", "ana");
    for (mount, changes) in [("/tenants/acme/reports", stream(&odd)), ("/tenants/acme/many", stream(&many))] {
        assert_eq!(run(&world, &ana, mount, changes).await.outcome, CommitOutcome::Committed);
    }
}

/// The rule names the file alone, which is not there: who may not write it may not put a link or file in the place of
/// its folder either.
#[tokio::test]
async fn f20_no_link_or_file_takes_the_place_of_a_folder_above_a_protected_path() {
    let rules = r#"@id("platform-config") @reason("only the platform writes it")
        forbid (principal, action in [Action::"mount_write", Action::"tree_write"], resource)
        when { resource.path == "/tenants/acme/reports/.platform/config" || resource.path like "/tenants/*/plans/2030/*" };"#;
    let world = under(rules).await;
    let ana = world.client("acme", "ana");
    let link = |path: &'static str| vec![(Header::Symlink { path: path.as_bytes(), target: b"/tmp" }, &b""[..])];
    for (records, denied) in [
        (link(".platform"), "reports/.platform"),
        (vec![file(".platform", "1")], "reports/.platform"),
        (vec![(Header::File { path: b".platform", executable: true, size: 1 }, &b"1"[..])], "reports/.platform"),
    ] {
        kept_apart(&run(&world, &ana, "/tenants/acme/reports", stream(&records)).await, &[denied]);
    }
    for (records, denied) in
        [(link("reports"), "reports"), (link("plans"), "plans"), (link("plans/2030"), "plans/2030")]
    {
        kept_apart(&run(&world, &ana, "/tenants/acme", stream(&records)).await, &[denied]);
    }
    for path in ["reports", "reports/.platform", "plans", "plans/2030", "plans/2030/q1"] {
        let error = ana.put(&format!("/v1/tree/tenants/acme/{path}"), "x").await.error(403);
        assert_eq!(error.policies, ["platform-config"], "{path}");
    }
    // As folders they may come, and what stands in nothing's way may be a link.
    let folder = [(Header::Directory { path: b".platform" }, &b""[..])];
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&folder)).await;
    assert_eq!(made.outcome, CommitOutcome::Committed, "{made:?}");
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&link("elsewhere"))).await;
    assert_eq!(made.outcome, CommitOutcome::Committed, "{made:?}");
    ana.put("/v1/tree/tenants/acme/reports/notes", "x").await.ok();
    // A rule about a name wherever it is forbids no other file.
    let world =
        under(r#"forbid (principal, action == Action::"tree_write", resource) when { resource.path like "*/.env" };"#)
            .await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/a/notes", "x").await.ok();
    ana.put("/v1/tree/tenants/acme/a/.env", "x").await.error(403);
}

#[tokio::test]
async fn f20_no_link_takes_the_place_of_a_folder_above_a_labelled_path_that_may_not_be_written() {
    let rules = r#"@id("confidential-stays") @reason("only the platform writes it")
        forbid (principal, action == Action::"mount_write", resource) when { resource.labels.contains("confidential") };"#;
    let world = under(rules).await;
    let ana = world.admin("acme", "ana");
    let body = json!({"labels": ["confidential"]}).to_string();
    ana.put("/v1/tree/tenants/acme/vault/keys", "1").await.ok();
    ana.ask(http::Method::PUT, "/v1/labels/tenants/acme/vault/keys").body(body).answer().await.ok();
    ana.delete("/v1/tree/tenants/acme/vault").await.ok();
    let link = [(Header::Symlink { path: b"vault", target: b"/tmp" }, &b""[..])];
    let made = run(&world, &ana, "/tenants/acme", stream(&link)).await;
    assert_eq!((made.outcome, made.conflicts), (CommitOutcome::SideBranch, vec!["vault".to_owned()]));
}

#[tokio::test]
async fn f20_nothing_takes_the_place_of_more_labelled_paths_than_are_asked_about() {
    let rules = r#"@id("confidential-stays") forbid (principal, action in [Action::"mount_write", Action::"tree_write"], resource)
        when { resource.labels.contains("confidential") };"#;
    let folder = World::new().await.stop().await;
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    let label = |path: &str, label: &str| {
        let sql = "INSERT INTO labels (tenant, user, path, label) VALUES ('acme', '', ?1, ?2)";
        db.execute(sql, [path, label]).unwrap();
    };
    for n in 0..1_000 {
        label(&format!("some/{n:04}"), "internal");
        label(&format!("many/{n:04}"), "internal");
    }
    // The last in order, and one too many.
    label("many/secret", "confidential");
    drop(db);
    let policies = Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap();
    let world = World::on_under(folder, policies).await;
    let ana = world.client("acme", "ana");
    let denied = ana.put("/v1/tree/tenants/acme/many", "x").await.error(403);
    assert!(denied.message.contains("more than 1000 labelled paths"), "{}", denied.message);
    let link = |path: &'static str| [(Header::Symlink { path: path.as_bytes(), target: b"/tmp" }, &b""[..])];
    let made = run(&world, &ana, "/tenants/acme", stream(&link("many"))).await;
    assert_eq!((made.outcome, made.conflicts), (CommitOutcome::SideBranch, vec!["many".to_owned()]));
    let made = run(&world, &ana, "/tenants/acme", stream(&link("some"))).await;
    assert_eq!(made.outcome, CommitOutcome::Committed, "{made:?}");
}

const HIDDEN: &str = r#"@id("payroll-is-private") @reason("only finance reads it")
    forbid (principal, action in [Action::"tree_read", Action::"mount_read", Action::"tree_diff"], resource)
    when { resource.path like "/tenants/acme/finance/payroll*" } unless { principal.roles.contains("finance") };"#;

#[tokio::test]
async fn f20_nothing_is_read_through_a_mount_or_comparison_of_a_folder_above() {
    let world = under(HIDDEN).await;
    let (ana, fay) = (world.client("acme", "ana"), world.client_as("acme", "fay", &["finance"]));
    for path in ["finance/payroll/2030.csv", "finance/notes", "public/a"] {
        ana.put(&format!("/v1/tree/tenants/acme/{path}"), "1").await.ok();
    }
    let mount = |path: &str, branch: &str| json!({"command": ["true"], "mounts": [{"path": path, "at": "/data", "read_only": true, "branch": branch}]});
    ana.post("/v1/forks", json!({"path": "/tenants/acme", "branch": "draft"})).await.ok();
    for (path, branch) in [("/tenants/acme", "main"), ("/tenants/acme/finance", "main"), ("/tenants/acme", "draft")] {
        // Twice: a denial is not remembered as anything else.
        for _ in 0..2 {
            let error = ana.run(mount(path, branch)).await.error(403);
            assert_eq!(error.policies, ["payroll-is-private"]);
            assert!(error.message.contains("/tenants/acme/finance/payroll"), "{}", error.message);
        }
        fay.run(mount(path, branch)).await.last();
        // What was allowed to somebody else is no answer for her.
        ana.run(mount(path, branch)).await.error(403);
    }
    assert_eq!(world.node.seen.lock().unwrap().len(), 3, "no denied run reached the node");
    for _ in 0..2 {
        ana.run(mount("/tenants/acme/public", "main")).await.last();
    }
    let error = ana.get("/v1/tree-diff/tenants/acme?from=main&to=main").await;
    assert_eq!(error.status, 200, "nothing differs: {error:?}");
    let before: bailey_protocol::api::History = ana.get("/v1/tree-history/tenants/acme").await.ok().json();
    fay.put("/v1/tree/tenants/acme/finance/payroll/2031.csv", "canary").await.ok();
    let since = &before.versions[0].version;
    for path in ["/tenants/acme", "/tenants/acme/finance"] {
        let shown = ana.get(&format!("/v1/tree-diff{path}?from={since}&to=main")).await.ok();
        let text = String::from_utf8_lossy(&shown.body);
        assert!(!text.contains("canary") && !text.contains("payroll"), "{text}");
        let all = fay.get(&format!("/v1/tree-diff{path}?from={since}&to=main")).await.ok();
        assert!(String::from_utf8_lossy(&all.body).contains("canary"));
    }
    ana.get(&format!("/v1/tree-diff/tenants/acme/public?from={since}&to=main")).await.ok();
}

#[tokio::test]
async fn f20_a_label_given_meanwhile_counts_for_the_next_mount() {
    let rules = r#"@id("confidential") forbid (principal, action == Action::"mount_read", resource)
        when { resource.labels.contains("confidential") };"#;
    let world = under(rules).await;
    let ana = world.admin("acme", "ana");
    ana.put("/v1/tree/tenants/acme/a/b", "1").await.ok();
    let mount = || json!({"command": ["true"], "mounts": [{"path": "/tenants/acme", "at": "/data"}]});
    for _ in 0..2 {
        ana.run(mount()).await.last();
    }
    let body = json!({"labels": ["confidential"]}).to_string();
    ana.ask(http::Method::PUT, "/v1/labels/tenants/acme/a/b").body(body).answer().await.ok();
    assert_eq!(ana.run(mount()).await.error(403).policies, ["confidential"]);
    ana.delete("/v1/labels/tenants/acme/a/b").await.ok();
    ana.run(mount()).await.last();
}

#[tokio::test]
async fn f20_a_name_that_is_no_text_is_hidden_by_what_hides_its_like_and_by_nothing_else() {
    let world = under(HIDDEN).await;
    let ana = world.client("acme", "ana");
    let odd = |path| [(Header::File { path, executable: false, size: 1 }, &b"1"[..])];
    let mount = |path: &str| json!({"command": ["true"], "mounts": [{"path": path, "at": "/data"}]});
    run(&world, &ana, "/tenants/acme/odd", stream(&odd(b"odd\xff"))).await;
    ana.run(mount("/tenants/acme/odd")).await.last();
    run(&world, &ana, "/tenants/acme/finance", stream(&odd(b"payroll\xff"))).await;
    let error = ana.run(mount("/tenants/acme/finance")).await.error(403);
    assert_eq!(error.policies, ["payroll-is-private"]);
    assert!(error.message.contains("payroll\u{10ffff}"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn f20_history_tells_no_version_or_message_of_paths_that_are_hidden() {
    let rules = r#"@id("hidden") forbid (principal, action == Action::"tree_read", resource)
        when { resource.path like "/tenants/acme/hidden*" && !principal.roles.contains("admin") };"#;
    let world = under(rules).await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    boss.put("/v1/tree/tenants/acme/open/f", "1").await.ok();
    boss.put("/v1/tree/tenants/acme/hidden/f", "1").await.ok();
    // A run that changed both.
    let both = [file("hidden/f", "2"), file("open/f", "2")];
    let made = run(&world, &boss, "/tenants/acme", stream(&both)).await;
    assert_eq!(made.outcome, CommitOutcome::Committed);
    let told = async |client: &Client, path: &str| {
        let history: bailey_protocol::api::History = client.get(&format!("/v1/tree-history{path}")).await.ok().json();
        history.versions.into_iter().map(|version| version.message).collect::<Vec<_>>()
    };
    let withheld = "(withheld: it changed paths that you may not read)";
    assert_eq!(told(&ana, "/tenants/acme").await, [withheld, "Write"]);
    // The message is of the whole version, whatever folder of it is looked at.
    assert_eq!(told(&ana, "/tenants/acme/open").await, [withheld, "Write"]);
    assert_eq!(told(&ana, "/tenants/acme/open/f").await, [withheld, "Write"]);
    // As if nothing had ever been there.
    ana.get("/v1/tree-history/tenants/acme/hidden").await.error(404);
    let blame = ana.get("/v1/tree-blame/tenants/acme/open/f").await.ok().json::<bailey_protocol::api::Blame>();
    assert_eq!(blame.versions.iter().map(|version| version.message.as_str()).collect::<Vec<_>>(), [withheld]);
    let all = told(&boss, "/tenants/acme").await;
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|message| message != withheld), "{all:?}");
}
