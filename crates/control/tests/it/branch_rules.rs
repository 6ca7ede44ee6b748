//! A rule about a branch is one about what is on it, by whatever name it is asked for: the branch's, or a version's.

use bailey_policy::Policies;
use bailey_protocol::api::{History, WriteAnswer};
use http::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::node::quick;
use crate::world::World;

const TENANT: &str = "/tenants/acme";
const PLAN: &str = "/tenants/acme/d/plan";

const READS: &str =
    r#"[Action::"tree_read", Action::"tree_list", Action::"tree_history", Action::"tree_diff", Action::"mount_read"]"#;

async fn under(condition: &str) -> World {
    let rule = format!(
        r#"@id("team-only") @reason("only its team looks at it")
        forbid (principal, action in {READS}, resource) when {{ {condition} }} unless {{ principal.roles.contains("team") }};"#
    );
    World::under(Policies::new(&[("operator.cedar".to_owned(), rule)]).unwrap()).await
}

const SECRET: &str = r#"context has branch && context.branch == "secret""#;

async fn put(client: &Client, path: &str, branch: &str, content: &str) -> String {
    let answer = client.put(&format!("/v1/tree{path}?ref={branch}"), content.to_owned()).await.ok();
    answer.json::<WriteAnswer>().version.to_string()
}

async fn fork(client: &Client, branch: &str, from: &str) -> Answer {
    client.post("/v1/forks", json!({"path": TENANT, "branch": branch, "from": from})).await
}

/// One way to look at `at`, a branch or version.
struct Look {
    name: &'static str,
    method: Method,
    path: String,
    tar: bool,
    body: Option<Value>,
}

impl Look {
    async fn by(&self, client: &Client) -> Answer {
        let mut asking = client.ask(self.method.clone(), &self.path);
        if self.tar {
            asking = asking.header("accept", "application/x-tar");
        }
        if let Some(body) = &self.body {
            asking = asking.header("content-type", "application/json").body(body.to_string());
        }
        asking.answer().await
    }
}

fn looks(at: &str, n: usize) -> Vec<Look> {
    let get = |name, path: String| Look { name, method: Method::GET, path, tar: false, body: None };
    let post = |name, path: &str, body| Look {
        name,
        method: Method::POST,
        path: path.to_owned(),
        tar: false,
        body: Some(body),
    };
    let mut looks = vec![
        get("read", format!("/v1/tree{PLAN}?ref={at}")),
        get("list", format!("/v1/tree{TENANT}/d?ref={at}")),
        get("list below", format!("/v1/tree{TENANT}?ref={at}&recursive=true")),
        Look { tar: true, ..get("archive", format!("/v1/tree{TENANT}/d?ref={at}")) },
        get("history", format!("/v1/tree-history{PLAN}?ref={at}")),
        get("blame", format!("/v1/tree-blame{PLAN}?ref={at}")),
        get("diff to", format!("/v1/tree-diff{TENANT}?from=main&to={at}")),
        get("diff from", format!("/v1/tree-diff{TENANT}?from={at}&to=main")),
        get("diff before", format!("/v1/tree-diff{TENANT}?to={at}")),
        post("copy", "/v1/tree-copy", json!({"from": PLAN, "to": format!("{TENANT}/copy{n}"), "from_ref": at})),
        post(
            "copy folder",
            "/v1/tree-copy",
            json!({"from": format!("{TENANT}/d"), "to": format!("{TENANT}/dir{n}"), "from_ref": at}),
        ),
        post("fork", "/v1/forks", json!({"path": TENANT, "branch": format!("fork{n}"), "from": at})),
    ];
    if at.len() == 40 {
        looks.push(post("restore", "/v1/tree-restore", json!({"path": PLAN, "from_version": at})));
        looks.push(post("revert", "/v1/tree-revert", json!({"path": TENANT, "version": at, "ref": "scratch"})));
    } else {
        let mount =
            json!({"command": ["true"], "mounts": [{"path": TENANT, "at": "/data", "branch": at, "read_only": true}]});
        looks.push(post("mount", "/v1/runs", mount));
        looks.push(post("promote", "/v1/promotions", json!({"path": TENANT, "from": at, "into": "main"})));
    }
    looks
}

#[tokio::test]
async fn a_rule_about_a_branch_holds_for_every_verb_by_its_name_and_by_its_versions() {
    let world = under(SECRET).await;
    world.node.follow(quick);
    let (ana, fay) = (world.client("acme", "ana"), world.client_as("acme", "fay", &["team"]));
    let first = put(&ana, PLAN, "main", "first").await;
    fork(&fay, "secret", "main").await.ok();
    let older = put(&fay, PLAN, "secret", "canary-1").await;
    let newer = put(&fay, PLAN, "secret", "canary-2").await;
    // What it was forked from is on `main` as well, so that it is everybody's.
    for look in looks(&first, 0).iter().filter(|look| look.name != "revert") {
        look.by(&ana).await.ok();
    }
    for (n, at) in ["secret", &older, &newer].into_iter().enumerate() {
        for look in looks(at, n + 1) {
            let answer = look.by(&ana).await;
            let denied = answer.error(403);
            assert_eq!(denied.policies, ["team-only"], "{} of {at}: {answer:?}", look.name);
            assert!(!String::from_utf8_lossy(&answer.body).contains("canary"), "{} of {at}", look.name);
        }
    }
    // A page that goes on after a version of another branch is none.
    ana.get(&format!("/v1/tree-history{TENANT}?after={newer}")).await.error(404);
    fay.get(&format!("/v1/tree-history{TENANT}?ref=secret&after={newer}")).await.ok();
    // Git hands out all branches or nothing.
    let advertised = "/git/acme.git/info/refs?service=git-upload-pack";
    assert_eq!(ana.get(advertised).await.error(403).policies, ["team-only"]);
    fay.get(advertised).await.ok();
    // Its team may all of it, the promotion last; then it is on `main`, and everybody's.
    fork(&fay, "scratch", "secret").await.ok();
    for (n, at) in [&older, &newer, "secret"].into_iter().enumerate() {
        for look in looks(at, n + 10) {
            let answer = look.by(&fay).await;
            // What changed again since cannot be undone: that is told to who may look.
            let undone = look.name == "revert" && answer.status == 409;
            assert!(undone || (200..300).contains(&answer.status.as_u16()), "{} of {at}: {answer:?}", look.name);
        }
    }
    for look in looks(&newer, 20).iter().filter(|look| look.name != "revert") {
        look.by(&ana).await.ok();
    }
}

#[tokio::test]
async fn a_rule_about_a_path_on_a_branch_holds_through_comparisons_forks_and_promotions() {
    let world = under(&format!(r#"{SECRET} && resource.path like "*/hidden*""#)).await;
    let (ana, fay) = (world.client("acme", "ana"), world.client_as("acme", "fay", &["team"]));
    put(&ana, PLAN, "main", "first").await;
    fork(&ana, "secret", "main").await.ok();
    let open = put(&ana, PLAN, "secret", "second").await;
    // Nothing is hidden there yet.
    fork(&ana, "early", "secret").await.ok();
    put(&fay, &format!("{TENANT}/hidden/x"), "secret", "canary").await;
    let gone: WriteAnswer = fay.delete(&format!("/v1/tree{TENANT}/hidden?ref=secret")).await.ok().json();
    let head = gone.version.to_string();
    // In the history it still is.
    for (branch, from) in [("a", "secret"), ("b", &head)] {
        let denied = fork(&ana, branch, from).await.error(403);
        assert_eq!(denied.policies, ["team-only"], "{from}");
        assert!(denied.message.contains("/tenants/acme/hidden"), "{}", denied.message);
    }
    fork(&ana, "c", &open).await.ok();
    let promote = json!({"path": TENANT, "from": "secret", "into": "main"});
    assert_eq!(ana.post("/v1/promotions", promote.clone()).await.error(403).policies, ["team-only"]);
    let hidden = put(&fay, &format!("{TENANT}/hidden/x"), "secret", "canary").await;
    for at in ["secret", &hidden] {
        for query in [format!("from=main&to={at}"), format!("from={at}&to=main")] {
            let shown = ana.get(&format!("/v1/tree-diff{TENANT}?{query}")).await.ok();
            let text = String::from_utf8_lossy(&shown.body).into_owned();
            assert!(text.contains("plan") && !text.contains("hidden") && !text.contains("canary"), "{query}: {text}");
        }
        let listed = ana.get(&format!("/v1/tree{TENANT}?recursive=true&ref={at}")).await.ok();
        assert!(!String::from_utf8_lossy(&listed.body).contains("hidden"));
    }
    fay.post("/v1/promotions", promote).await.ok();
    ana.get(&format!("/v1/tree{TENANT}/hidden/x?ref={hidden}")).await.ok();
}

#[tokio::test]
async fn a_version_that_no_branch_leads_to_any_more_cannot_be_judged_by_its_branch() {
    let world = under(SECRET).await;
    let (ana, fay) = (world.client("acme", "ana"), world.client_as("acme", "fay", &["team"]));
    put(&ana, PLAN, "main", "first").await;
    fork(&fay, "secret", "main").await.ok();
    let version = put(&fay, PLAN, "secret", "canary").await;
    fay.get(&format!("/v1/tree{PLAN}?ref={version}")).await.ok();
    fay.delete(&format!("/v1/branches{TENANT}?branch=secret")).await.ok();
    for who in [&ana, &fay] {
        let denied = who.get(&format!("/v1/tree{PLAN}?ref={version}")).await.error(403);
        assert!(denied.message.contains("none leads to this version"), "{}", denied.message);
    }
}

#[tokio::test]
async fn a_rule_against_reads_without_a_branch_and_one_about_protected_branches_hold_for_versions() {
    let world = under("!(context has branch)").await;
    let ana = world.client("acme", "ana");
    let version = put(&ana, PLAN, "main", "first").await;
    ana.get(&format!("/v1/tree{PLAN}")).await.ok();
    assert_eq!(ana.get(&format!("/v1/tree{PLAN}?ref={version}")).await.error(403).policies, ["team-only"]);
    let world = under("resource.protected").await;
    let (root, ana) = (world.admin("acme", "root"), world.client("acme", "ana"));
    put(&ana, PLAN, "main", "first").await;
    let history: History = ana.get(&format!("/v1/tree-history{TENANT}")).await.ok().json();
    let version = &history.versions[0].version;
    ana.get(&format!("/v1/tree{PLAN}?ref={version}")).await.ok();
    root.ask(Method::PUT, &format!("/v1/protections{TENANT}?branch=main")).answer().await.ok();
    for at in ["main", version.as_str()] {
        assert_eq!(ana.get(&format!("/v1/tree{PLAN}?ref={at}")).await.error(403).policies, ["team-only"], "{at}");
    }
}
