//! Branches, promotions, protections and labels over HTTP.

use bailey_control::control::Caller;
use bailey_control::ops;
use bailey_policy::{Policies, Principal};
use bailey_protocol::api::{
    BranchInfo, BranchList, CommitOutcome, NewVersion, PathLabels, Promoted, PromotionOutcome, Protection,
    ProtectionList, RunEventKind,
};
use bailey_protocol::id::{RequestId, RunId};
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::writes;
use crate::world::World;

const TENANT: &str = "/tenants/acme";
const OWN: &str = "/tenants/acme/users/ana";

async fn fork(client: &Client, path: &str, branch: &str, from: Option<&str>) -> Answer {
    let mut body = json!({"path": path, "branch": branch});
    if let Some(from) = from {
        body["from"] = from.into();
    }
    client.post("/v1/forks", body).await
}

async fn promote(client: &Client, path: &str, from: &str, into: &str) -> Answer {
    client.post("/v1/promotions", json!({"path": path, "from": from, "into": into})).await
}

async fn put(client: &Client, path: &str, branch: &str, content: &str) -> Answer {
    client.put(&format!("/v1/tree{path}?ref={branch}"), content.to_owned()).await
}

async fn read(client: &Client, path: &str, branch: &str) -> Option<String> {
    let answer = client.get(&format!("/v1/tree{path}?ref={branch}")).await;
    (answer.status == 200).then(|| String::from_utf8(answer.body.to_vec()).unwrap())
}

async fn branches(client: &Client, path: &str) -> Vec<String> {
    let list: BranchList = client.get(&format!("/v1/branches{path}")).await.ok().json();
    list.branches.iter().map(|info| info.branch.to_string()).collect()
}

async fn head(client: &Client, path: &str, branch: &str) -> Option<String> {
    let list: BranchList = client.get(&format!("/v1/branches{path}")).await.ok().json();
    list.branches.iter().find(|info| info.branch.as_str() == branch).map(|info| info.version.to_string())
}

async fn protect(client: &Client, path: &str, branch: &str) -> Protection {
    client.ask(Method::PUT, &format!("/v1/protections{path}?branch={branch}")).answer().await.ok().json()
}

async fn run_on(client: &Client, path: &str) -> NewVersion {
    let body = json!({"command": ["true"], "mounts": [{"path": path, "at": "/data"}]});
    match client.run(body).await.last() {
        RunEventKind::Ended(mut result) => result.versions.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn label(client: &Client, path: &str, labels: &[&str]) -> PathLabels {
    let body = json!({ "labels": labels }).to_string();
    client.ask(Method::PUT, &format!("/v1/labels{path}")).body(body).answer().await.ok().json()
}

async fn labels(client: &Client, path: &str) -> Vec<String> {
    let shown: PathLabels = client.get(&format!("/v1/labels{path}")).await.ok().json();
    shown.labels.union(&shown.inherited).map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_fork_is_a_branch_of_its_own_in_either_store() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for root in [TENANT, OWN] {
        let file = format!("{root}/f");
        put(&ana, &file, "main", "1").await.ok();
        let made: BranchInfo = fork(&ana, root, "draft", None).await.ok().json();
        assert_eq!(Some(made.version.to_string()), head(&ana, root, "main").await);
        assert_eq!(read(&ana, &file, "draft").await.unwrap(), "1");
        put(&ana, &file, "draft", "2").await.ok();
        assert_eq!(read(&ana, &file, "main").await.unwrap(), "1");
        // From a branch and from a version.
        fork(&ana, root, "draft2", Some("draft")).await.ok();
        assert_eq!(read(&ana, &file, "draft2").await.unwrap(), "2");
        fork(&ana, root, "old", Some(made.version.as_str())).await.ok();
        assert_eq!(read(&ana, &file, "old").await.unwrap(), "1");
        assert_eq!(branches(&ana, root).await, ["draft", "draft2", "main", "old"]);
        let page: BranchList = ana.get(&format!("/v1/branches{root}?limit=2")).await.ok().json();
        assert_eq!((page.branches.len(), page.next.unwrap().as_str()), (2, "draft2"));
        // Stock git sees them.
        let store = if root == TENANT { "tenant.git" } else { "users/ana.git" };
        let refs =
            std::fs::read_to_string(world.folder.path().join("trees/acme").join(store).join("packed-refs")).unwrap();
        assert!(refs.contains("refs/heads/draft2") && refs.contains("refs/heads/old"), "{refs}");
    }
}

#[tokio::test]
async fn what_is_no_fork_is_refused() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    fork(&ana, TENANT, "early", None).await.error(404);
    put(&ana, "/tenants/acme/f", "main", "1").await.ok();
    fork(&ana, TENANT, "draft", None).await.ok();
    for (path, branch, from, status, code) in [
        (TENANT, "draft", None, 409, "branch_exists"),
        (TENANT, "main", None, 409, "branch_exists"),
        (TENANT, "draft/x", None, 409, "branch_taken"),
        (TENANT, "main/x", None, 400, "invalid_branch"),
        (TENANT, "runs/x", None, 400, "invalid_branch"),
        (TENANT, "runs", None, 400, "invalid_branch"),
        (TENANT, "x", Some("nowhere"), 404, "not_found"),
        (TENANT, "x", Some("1111111111111111111111111111111111111111"), 404, "not_found"),
        (TENANT, "x", Some("baseline:none"), 404, "not_found"),
        ("/tenants/acme/f", "x", None, 400, "not_a_store"),
        ("/tenants/globex", "x", None, 403, "denied"),
        ("/tenants/acme/users/bob", "x", None, 403, "denied"),
    ] {
        assert_eq!(fork(&ana, path, branch, from).await.error(status).error, code, "{path} {branch} {from:?}");
    }
    ana.post("/v1/forks", json!({"path": TENANT, "branch": "x", "tenant": "globex"})).await.error(400);
    assert_eq!(branches(&ana, TENANT).await, ["draft", "main"]);
    // A version of another store is none here.
    let eve = world.client("globex", "eve");
    put(&eve, "/tenants/globex/secret", "main", "canary").await.ok();
    let theirs = head(&eve, "/tenants/globex", "main").await.unwrap();
    fork(&ana, TENANT, "x", Some(&theirs)).await.error(404);
}

#[tokio::test]
async fn a_branch_is_deleted_but_not_main_and_not_by_a_stranger() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/f", "main", "1").await.ok();
    fork(&ana, TENANT, "draft", None).await.ok();
    let delete = |client: Client, branch: &'static str| async move {
        client.delete(&format!("/v1/branches/tenants/acme?branch={branch}")).await
    };
    assert_eq!(delete(ana.clone(), "main").await.error(400).error, "invalid_branch");
    delete(ana.clone(), "none").await.error(404);
    delete(world.client("globex", "eve"), "draft").await.error(403);
    delete(ana.clone(), "draft").await.ok();
    assert_eq!(branches(&ana, TENANT).await, ["main"]);
    ana.delete("/v1/branches/tenants/acme").await.error(400);
}

#[tokio::test]
async fn what_only_a_branch_has_is_asked_about_before_it_is_deleted() {
    let rules = r#"@id("legal-hold") forbid (principal, action == Action::"tree_delete", resource)
        when { resource.path like "/tenants/acme/legal/*" };"#;
    let world = World::under(Policies::new(&[("o.cedar".to_owned(), rules.to_owned())]).unwrap()).await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/legal/a", "main", "1").await.ok();
    fork(&ana, TENANT, "same", None).await.ok();
    fork(&ana, TENANT, "more", None).await.ok();
    put(&ana, "/tenants/acme/legal/b", "more", "1").await.ok();
    ana.delete("/v1/branches/tenants/acme?branch=same").await.ok();
    let error = ana.delete("/v1/branches/tenants/acme?branch=more").await.error(403);
    assert_eq!(error.policies, ["legal-hold"]);
    assert_eq!(branches(&ana, TENANT).await, ["main", "more"]);
}

#[tokio::test]
async fn a_promotion_forwards_merges_or_leaves_both_sides() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for root in [TENANT, OWN] {
        let file = |name: &str| format!("{root}/{name}");
        put(&ana, &file("a"), "main", "1").await.ok();
        fork(&ana, root, "draft", None).await.ok();
        put(&ana, &file("b"), "draft", "1").await.ok();
        let done: Promoted = promote(&ana, root, "draft", "main").await.ok().json();
        assert_eq!(done.outcome, PromotionOutcome::Forwarded);
        assert_eq!(Some(done.version.to_string()), head(&ana, root, "draft").await);
        let again: Promoted = promote(&ana, root, "draft", "main").await.ok().json();
        assert_eq!((again.outcome, again.version), (PromotionOutcome::Unchanged, done.version));
        put(&ana, &file("ours"), "main", "1").await.ok();
        put(&ana, &file("theirs"), "draft", "1").await.ok();
        let merged: Promoted = promote(&ana, root, "draft", "main").await.ok().json();
        assert_eq!(merged.outcome, PromotionOutcome::Merged);
        for name in ["a", "b", "ours", "theirs"] {
            assert_eq!(read(&ana, &file(name), "main").await.unwrap(), "1");
        }
        assert_eq!(read(&ana, &file("ours"), "draft").await, None);
        put(&ana, &file("a"), "main", "main's").await.ok();
        put(&ana, &file("a"), "draft", "draft's").await.ok();
        let before = (head(&ana, root, "main").await, head(&ana, root, "draft").await);
        let error = promote(&ana, root, "draft", "main").await.error(409);
        assert_eq!((error.error.as_str(), error.paths), ("promotion_conflict", vec![file("a")]));
        assert_eq!((head(&ana, root, "main").await, head(&ana, root, "draft").await), before);
    }
}

#[tokio::test]
async fn what_is_no_promotion_is_refused() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/f", "main", "1").await.ok();
    fork(&ana, TENANT, "draft", None).await.ok();
    for (path, from, into, status) in [
        (TENANT, "draft", "draft", 400),
        (TENANT, "none", "main", 404),
        (TENANT, "draft", "none", 404),
        ("/tenants/acme/f", "draft", "main", 400),
        ("/tenants/globex", "draft", "main", 403),
        ("/tenants/none", "draft", "main", 403),
        ("/tenants/acme/users/bob", "draft", "main", 403),
    ] {
        promote(&ana, path, from, into).await.error(status);
    }
}

#[tokio::test]
async fn a_run_never_promotes_protects_or_labels_and_a_reviewer_does() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/f", "main", "1").await.ok();
    fork(&ana, TENANT, "draft", None).await.ok();
    put(&ana, "/tenants/acme/f", "draft", "2").await.ok();
    let user = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
    let run = Principal { run: Some(RunId::mint(1, [1; 10])), roles: ["admin".to_owned()].into(), ..user };
    let caller = Caller::new(run, RequestId::mint(1, [1; 10]));
    let (root, main): (bailey_protocol::path::TreePath, _) =
        (TENANT.parse().unwrap(), bailey_protocol::path::BranchName::main());
    let request = serde_json::from_value(json!({"path": TENANT, "from": "draft", "into": "main"})).unwrap();
    let denied = ops::promotions::promote(&world.control, &caller, request).await.unwrap_err();
    assert_eq!(denied.policies, ["not-from-a-run"]);
    let denied = ops::protections::protect(&world.control, &caller, root.clone(), main.clone(), false).await;
    assert_eq!(denied.unwrap_err().policies, ["not-from-a-run"]);
    let denied = ops::protections::unprotect(&world.control, &caller, root.clone(), main).await;
    assert_eq!(denied.unwrap_err().policies, ["not-from-a-run"]);
    let request = serde_json::from_value(json!({"labels": []})).unwrap();
    let denied = ops::labels::set(&world.control, &caller, root, request).await;
    assert_eq!(denied.unwrap_err().policies, ["not-from-a-run"]);
    assert_eq!(read(&ana, "/tenants/acme/f", "main").await.unwrap(), "1");
    promote(&world.client("acme", "rita"), TENANT, "draft", "main").await.ok();
    assert_eq!(read(&ana, "/tenants/acme/f", "main").await.unwrap(), "2");
}

#[tokio::test]
async fn each_path_that_a_promotion_changes_is_decided_on() {
    let rules = r#"@id("plans-are-fixed") forbid (principal, action in [Action::"tree_write"], resource)
          when { resource.path like "/tenants/acme/plans/*" && context.branch == "main" };
        @id("legal-hold") forbid (principal, action == Action::"tree_delete", resource)
          when { resource.path == "/tenants/acme/legal" && context.branch == "main" };"#;
    let world = World::under(Policies::new(&[("o.cedar".to_owned(), rules.to_owned())]).unwrap()).await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/legal", "main", "1").await.ok();
    fork(&ana, TENANT, "plans", None).await.ok();
    fork(&ana, TENANT, "legal", None).await.ok();
    fork(&ana, TENANT, "fine", None).await.ok();
    put(&ana, "/tenants/acme/plans/2030/q1", "plans", "1").await.ok();
    ana.delete("/v1/tree/tenants/acme/legal?ref=legal").await.ok();
    put(&ana, "/tenants/acme/notes", "fine", "1").await.ok();
    for (branch, policy) in [("plans", "plans-are-fixed"), ("legal", "legal-hold")] {
        let before = head(&ana, TENANT, "main").await;
        assert_eq!(promote(&ana, TENANT, branch, "main").await.error(403).policies, [policy]);
        assert_eq!(head(&ana, TENANT, "main").await, before);
    }
    promote(&ana, TENANT, "fine", "main").await.ok();
}

#[tokio::test]
async fn a_protected_branch_is_changed_by_promotions_alone() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    put(&ana, "/tenants/acme/f", "main", "1").await.ok();
    assert!(!protect(&ana, TENANT, "main").await.review);
    for answer in [
        put(&ana, "/tenants/acme/f", "main", "2").await,
        put(&ana, "/tenants/acme/g", "main", "2").await,
        ana.delete("/v1/tree/tenants/acme/f").await,
    ] {
        let error = answer.error(409);
        assert_eq!(error.error, "branch_protected");
        assert!(error.hint.contains("/v1/forks") && error.hint.contains("/v1/promotions"), "{}", error.hint);
    }
    world.node.follow(|order| writes(order, "out", "from the run".to_owned()));
    let made = run_on(&ana, "/tenants/acme/reports").await;
    assert_eq!(made.outcome, CommitOutcome::SideBranch);
    assert!(made.branch.as_str().starts_with("runs/run_"), "{made:?}");
    assert_eq!(made.reason.as_deref(), Some("branch `main` is protected"));
    assert_eq!(read(&ana, "/tenants/acme/reports/out", "main").await, None);
    promote(&ana, TENANT, made.branch.as_str(), "main").await.ok();
    assert_eq!(read(&ana, "/tenants/acme/reports/out", "main").await.unwrap(), "from the run");
    // Another branch, and the same name in another store, are free.
    fork(&ana, TENANT, "draft", None).await.ok();
    put(&ana, "/tenants/acme/f", "draft", "3").await.ok();
    put(&ana, &format!("{OWN}/f"), "main", "1").await.ok();
    protect(&ana, TENANT, "draft").await;
    let none = ana.ask(Method::PUT, "/v1/protections/tenants/acme?branch=drat").answer().await.error(404);
    assert!(none.message.contains("`drat`") && none.hint.contains("/v1/branches"), "{none:?}");
    let refused = ana.delete("/v1/branches/tenants/acme?branch=draft").await.error(409);
    assert_eq!(refused.error, "branch_protected");
    // It is protected in the server's next life, too.
    let folder = world.stop().await;
    let world = World::on(folder).await;
    let ana = world.admin("acme", "ana");
    put(&ana, "/tenants/acme/f", "main", "2").await.error(409);
    let list: ProtectionList = ana.get("/v1/protections/tenants/acme").await.ok().json();
    assert_eq!(list.protections.iter().map(|one| one.branch.as_str()).collect::<Vec<_>>(), ["draft", "main"]);
    ana.delete("/v1/protections/tenants/acme?branch=main").await.ok();
    ana.delete("/v1/protections/tenants/acme?branch=main").await.error(404);
    put(&ana, "/tenants/acme/f", "main", "2").await.ok();
    for (path, status) in [("/tenants/globex", 403), ("/tenants/acme/f", 400), ("/tenants/acme/users/bob", 403)] {
        let asked = ana.ask(Method::PUT, &format!("/v1/protections{path}?branch=main"));
        asked.answer().await.error(status);
    }
}

#[tokio::test]
async fn a_promotion_reaches_a_protected_branch_under_our_example() {
    let example = include_str!("../../../../examples/policies/protected.cedar").to_owned();
    let world = World::under(Policies::new(&[("protected.cedar".to_owned(), example)]).unwrap()).await;
    let admin = world.admin("acme", "ana");
    put(&admin, "/tenants/acme/f", "main", "1").await.ok();
    fork(&admin, TENANT, "draft", None).await.ok();
    put(&admin, "/tenants/acme/f", "draft", "2").await.ok();
    protect(&admin, TENANT, "main").await;
    put(&admin, "/tenants/acme/f", "main", "3").await.error(409);
    promote(&admin, TENANT, "draft", "main").await.ok();
    assert_eq!(read(&admin, "/tenants/acme/f", "main").await.unwrap(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn protection_labels_and_purges_are_for_admins_in_the_tenants_store_and_for_its_owner_in_a_users() {
    let world = World::new().await;
    let (ana, admin) = (world.client("acme", "ana"), world.admin("acme", "root"));
    for path in [TENANT, OWN] {
        put(&ana, &format!("{path}/f"), "main", "1").await.ok();
    }
    protect(&admin, TENANT, "main").await;
    label(&admin, &format!("{TENANT}/f"), &["confidential"]).await;
    let denied = |answer: Answer| assert_eq!(answer.error(403).policies, ["stewards-only"]);
    denied(ana.delete(&format!("/v1/protections{TENANT}?branch=main")).await);
    denied(ana.ask(Method::PUT, &format!("/v1/protections{TENANT}?branch=main&review=false")).answer().await);
    denied(ana.delete(&format!("/v1/labels{TENANT}/f")).await);
    let body = json!({"labels": []}).to_string();
    denied(ana.ask(Method::PUT, &format!("/v1/labels{TENANT}/f")).body(body).answer().await);
    denied(ana.post("/v1/purges", json!({"path": format!("{TENANT}/f")})).await);
    assert_eq!(labels(&ana, &format!("{TENANT}/f")).await, ["confidential"]);
    put(&ana, &format!("{TENANT}/f"), "main", "2").await.error(409);
    // What is hers is hers to keep.
    protect(&ana, OWN, "main").await;
    ana.delete(&format!("/v1/protections{OWN}?branch=main")).await.ok();
    label(&ana, &format!("{OWN}/f"), &["draft"]).await;
    ana.delete(&format!("/v1/labels{OWN}/f")).await.ok();
    ana.post("/v1/purges", json!({"path": format!("{OWN}/f")})).await.ok();
}

#[tokio::test]
async fn a_reviewed_branch_takes_nothing_from_its_own_author() {
    let world = World::new().await;
    let (ana, rita) = (world.client("acme", "ana"), world.admin("acme", "rita"));
    put(&ana, "/tenants/acme/f", "main", "1").await.ok();
    let asked = rita.ask(Method::PUT, "/v1/protections/tenants/acme?branch=main&review=true").answer().await;
    assert!(asked.ok().json::<Protection>().review);
    fork(&ana, TENANT, "draft", None).await.ok();
    put(&ana, "/tenants/acme/f", "draft", "2").await.ok();
    assert_eq!(promote(&ana, TENANT, "draft", "main").await.error(403).error, "review_required");
    // Another name for the same versions changes nothing for their author.
    fork(&rita, TENANT, "hers", Some("draft")).await.ok();
    assert_eq!(promote(&ana, TENANT, "hers", "main").await.error(403).error, "review_required");
    promote(&rita, TENANT, "draft", "main").await.ok();
    assert_eq!(read(&ana, "/tenants/acme/f", "main").await.unwrap(), "2");
    // A copy is its copier's work, whoever wrote what is copied.
    let bob = world.client("acme", "bob");
    fork(&bob, TENANT, "his", None).await.ok();
    put(&bob, "/tenants/acme/g", "his", "bob's").await.ok();
    fork(&rita, TENANT, "copied", None).await.ok();
    let copy = json!({"from": "/tenants/acme/g", "from_ref": "his", "to": "/tenants/acme/g", "ref": "copied"});
    ana.post("/v1/tree-copy", copy).await.ok();
    assert_eq!(promote(&ana, TENANT, "copied", "main").await.error(403).error, "review_required");
    promote(&bob, TENANT, "copied", "main").await.ok();
}

#[tokio::test]
async fn a_users_folder_is_nobody_elses_by_any_of_these_verbs() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, &format!("{OWN}/f"), "main", "canary").await.ok();
    for other in
        [world.client("acme", "bob"), world.client_as("acme", "root", &["admin"]), world.client("globex", "ana")]
    {
        let denied = |answer: Answer| {
            let error = answer.error(403);
            assert!(error.policies.iter().any(|id| id == "own-folder-only" || id == "own-tenant-only"), "{error:?}");
            assert!(!error.message.contains("canary"));
        };
        denied(fork(&other, OWN, "x", None).await);
        denied(promote(&other, OWN, "main", "x").await);
        denied(other.get(&format!("/v1/branches{OWN}")).await);
        denied(other.delete(&format!("/v1/branches{OWN}?branch=main")).await);
        denied(other.get(&format!("/v1/protections{OWN}")).await);
        denied(other.ask(Method::PUT, &format!("/v1/protections{OWN}?branch=main")).answer().await);
        denied(other.delete(&format!("/v1/protections{OWN}?branch=main")).await);
        for path in [OWN.to_owned(), format!("{OWN}/f")] {
            denied(other.get(&format!("/v1/labels{path}")).await);
            let body = json!({"labels": ["x"]}).to_string();
            denied(other.ask(Method::PUT, &format!("/v1/labels{path}")).body(body).answer().await);
            denied(other.delete(&format!("/v1/labels{path}")).await);
            denied(other.get(&format!("/v1/tree{path}")).await);
            denied(other.put(&format!("/v1/tree{path}"), "x").await);
            denied(other.delete(&format!("/v1/tree{path}")).await);
            denied(other.get(&format!("/v1/tree-history{path}")).await);
            denied(other.get(&format!("/v1/tree-diff{path}")).await);
            for read_only in [true, false] {
                let mounts = json!([{"path": path, "at": "/data", "read_only": read_only}]);
                denied(other.run(json!({"command": ["true"], "mounts": mounts})).await);
            }
        }
    }
    assert_eq!(read(&ana, &format!("{OWN}/f"), "main").await.unwrap(), "canary");
}

#[tokio::test]
async fn labels_hold_below_their_path_and_are_inherited_by_what_a_run_writes() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    put(&ana, "/tenants/acme/secret/in", "main", "1").await.ok();
    let shown = label(&ana, "/tenants/acme/secret", &["confidential"]).await;
    assert_eq!(shown.labels.len(), 1);
    assert_eq!(labels(&ana, "/tenants/acme/secret/in").await, ["confidential"]);
    // A label may be there before what it is about; who misspelt a path is told.
    assert_eq!(shown.known, Some(true));
    assert_eq!(label(&ana, "/tenants/acme/public", &["x"]).await.known, Some(false));
    label(&ana, "/tenants/acme/public", &[]).await;
    put(&ana, "/tenants/acme/public/in", "main", "1").await.ok();
    assert!(labels(&ana, "/tenants/acme/public").await.is_empty());
    world.node.follow(|order| writes(order, "out", "1".to_owned()));
    // A read-only mount's labels go to what another mount gets, also where the label is deeper than the mount.
    for (mounted, at) in [("/tenants/acme/secret", "first"), ("/tenants/acme", "second")] {
        let out = format!("/tenants/acme/public/{at}");
        let mounts = json!([{"path": mounted, "at": "/in", "read_only": true}, {"path": out, "at": "/out"}]);
        let RunEventKind::Ended(result) = ana.run(json!({"command": ["true"], "mounts": mounts})).await.last() else {
            panic!("no end")
        };
        let made = &result.versions[0];
        assert_eq!(made.labels.iter().map(|label| label.as_str()).collect::<Vec<_>>(), ["confidential"]);
        assert_eq!(labels(&ana, &format!("{out}/out")).await, ["confidential"]);
    }
    assert!(labels(&ana, "/tenants/acme/public").await.is_empty());
    // On every branch, and in the next life.
    fork(&ana, TENANT, "draft", None).await.ok();
    let folder = world.stop().await;
    let world = World::on(folder).await;
    let ana = world.admin("acme", "ana");
    assert_eq!(labels(&ana, "/tenants/acme/public/first/out").await, ["confidential"]);
    world.node.follow(|order| writes(order, "out", "1".to_owned()));
    let plain = run_on(&ana, "/tenants/acme/other").await;
    assert!(plain.labels.is_empty());
    ana.delete("/v1/labels/tenants/acme/secret").await.ok();
    assert!(labels(&ana, "/tenants/acme/secret/in").await.is_empty());
    for bad in [json!({"labels": ["Upper"]}), json!({"labels": ["a b"]}), json!({"label": []}), json!({"labels": 1})] {
        let asked = ana.ask(Method::PUT, "/v1/labels/tenants/acme/x").body(bad.to_string());
        asked.answer().await.error(400);
    }
}

#[tokio::test]
async fn a_policy_about_a_label_holds_for_what_inherited_it() {
    let rules = r#"@id("confidential-stays") forbid (principal, action in [Action::"tree_read", Action::"tree_diff"], resource)
        when { resource.labels.contains("confidential") } unless { principal.roles.contains("cleared") };"#;
    let world = World::under(Policies::new(&[("o.cedar".to_owned(), rules.to_owned())]).unwrap()).await;
    let ana = world.admin("acme", "ana");
    put(&ana, "/tenants/acme/secret/in", "main", "1").await.ok();
    label(&ana, "/tenants/acme/secret", &["confidential"]).await;
    world.node.follow(|order| writes(order, "out", "1".to_owned()));
    let mounts = json!([{"path": "/tenants/acme/secret", "at": "/in", "read_only": true}, {"path": "/tenants/acme/out", "at": "/out"}]);
    ana.run(json!({"command": ["true"], "mounts": mounts})).await.last();
    for branch in ["main", "draft"] {
        if branch == "draft" {
            fork(&ana, TENANT, "draft", None).await.ok();
        }
        let error = ana.get(&format!("/v1/tree/tenants/acme/out/out?ref={branch}")).await.error(403);
        assert_eq!(error.policies, ["confidential-stays"]);
    }
    let cleared = world.client_as("acme", "ana", &["cleared"]);
    assert_eq!(read(&cleared, "/tenants/acme/out/out", "main").await.unwrap(), "1");
}

/// 64 writers on one head: one of them wins each version, the others are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f18_64_writers_on_one_head_have_one_winner_for_each_version() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/f", "main", "start").await.ok();
    for round in 0..8 {
        let head = head(&ana, TENANT, "main").await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..64 {
            let (ana, head) = (ana.clone(), head.clone());
            writers.spawn(async move {
                let asked = ana.ask(Method::PUT, "/v1/tree/tenants/acme/f").header("if-match", &format!("\"{head}\""));
                let answer = asked.body(format!("{round} {writer}")).answer().await;
                (writer, answer.status.as_u16())
            });
        }
        let answers = writers.join_all().await;
        let won: Vec<_> = answers.iter().filter(|(_, status)| *status == 200).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        assert!(answers.iter().all(|(_, status)| [200, 412].contains(status)), "{answers:?}");
        assert_eq!(read(&ana, "/tenants/acme/f", "main").await.unwrap(), format!("{round} {}", won[0].0));
    }
}

/// A fork is one row and one line for git: it looks at no folder, however many there are.
#[tokio::test]
async fn a_fork_costs_the_same_at_any_size() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "/tenants/acme/users/ana/f", "main", "1").await.ok();
    let names: Vec<String> = (0..50_000).map(|n| format!("{}/f{n}", n % 500)).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let stream = crate::node::changes(&files);
    world.node.follow(move |order| {
        let stream = stream.clone();
        async move {
            order.updates.send(crate::node::started()).await.unwrap();
            let ending = bailey_protocol::node::Ending::Exited { code: 0 };
            order.updates.send(crate::node::stopped(ending)).await.unwrap();
            crate::node::send_changes(&order, 0, &stream).await;
            order.updates.send(bailey_protocol::node::RunUpdate::Done).await.unwrap();
        }
    });
    run_on(&ana, "/tenants/acme/large").await;
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..40 {
        // In turns, so that both have the same neighbours.
        for (root, times) in [OWN, TENANT].into_iter().zip(&mut times) {
            let begin = tokio::time::Instant::now();
            fork(&ana, root, &format!("b{n}"), None).await.ok();
            times.push(begin.elapsed());
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let [small, large] = times.map(|times| times[times.len() / 2]);
    println!("fork, p50 over HTTP: one file {small:?}, 50,000 files {large:?}");
    assert!(large < 2 * small + std::time::Duration::from_millis(5), "{small:?} {large:?}");
    // Nothing is remembered from before, and no folder can be read.
    let stopped = world.stop().await;
    assert!(crate::world::spoil_folders(&stopped.path().join("trees/acme/tenant.git")) > 500);
    let world = World::on(stopped).await;
    let ana = world.client("acme", "ana");
    fork(&ana, TENANT, "unread", None).await.ok();
    ana.get("/v1/tree/tenants/acme?ref=unread").await.error(500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f20_nobody_reads_a_copy_before_it_has_the_labels_of_what_it_is_of() {
    let rules = r#"@id("confidential") forbid (principal, action == Action::"tree_read", resource is Path)
        when { resource.labels.contains("confidential") && !principal.roles.contains("admin") };"#;
    let policies = bailey_policy::Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap();
    let world = World::under(policies).await;
    let (ana, admin) = (world.client("acme", "ana"), world.admin("acme", "root"));
    put(&admin, "/tenants/acme/secret", "main", "canary").await.ok();
    label(&admin, "/tenants/acme/secret", &["confidential"]).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let copies = async {
        for n in 0..40 {
            let body = json!({"from": "/tenants/acme/secret", "to": format!("/tenants/acme/copies/{n}")});
            admin.post("/v1/tree-copy", body).await.ok();
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let readers = (0..6).map(|reader| {
        let (ana, over) = (ana.clone(), &over);
        async move {
            let mut denied = 0;
            for n in (0..40).cycle() {
                let answer = match reader % 2 {
                    0 => ana.get(&format!("/v1/tree/tenants/acme/copies/{n}")).await,
                    _ => ana.get("/v1/tree/tenants/acme?recursive=true").await,
                };
                if reader % 2 == 0 {
                    assert!(!answer.status.is_success(), "copy {n}: {answer:?}");
                    denied += usize::from(answer.status.as_u16() == 403);
                } else if answer.status.is_success() {
                    let listing: bailey_protocol::api::TreeListing = answer.json();
                    assert!(listing.entries.iter().all(|entry| entry.name == "copies"), "{listing:?}");
                }
                if over.load(std::sync::atomic::Ordering::SeqCst) {
                    break;
                }
            }
            denied
        }
    });
    let ((), denied) = tokio::join!(copies, futures_util::future::join_all(readers));
    assert!(denied.iter().sum::<usize>() > 0, "it was looked for while it came");
}
