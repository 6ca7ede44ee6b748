//! Who may write a path and not read it learns by no verb whether what it wrote is what was there.

use bailey_control::api_error::ApiError;
use bailey_control::control::Caller;
use bailey_control::node_link::StartRun;
use bailey_control::ops;
use bailey_control::ops::tree::{Condition, WriteAsk};
use bailey_control::pipe::pipe;
use bailey_policy::{Policies, Principal};
use bailey_protocol::api::{BranchList, CommitOutcome, RunEventKind, WriteAnswer};
use bailey_protocol::id::RequestId;
use bailey_protocol::node::{Ending, RunUpdate};
use bailey_protocol::path::BranchName;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::credentials::credential;
use crate::node::{changes, send_changes, started, stopped};
use crate::shares::tar;
use crate::world::World;

const TENANT: &str = "/tenants/acme";

/// Nobody but an admin reads a vault; what is shut there nobody else writes either.
const VAULT: &str = r#"
    @id("unseen") forbid (principal, action in [Action::"tree_read", Action::"tree_diff"], resource)
        when { resource.path like "*/vault/*" && !principal.roles.contains("admin") };
    @id("shut") forbid (principal, action in [Action::"tree_write", Action::"tree_delete"], resource)
        when { resource.path like "*/vault/shut*" && !principal.roles.contains("admin") };
    @id("below") forbid (principal, action == Action::"tree_write", resource)
        when { resource.path == "/tenants/acme/d/vault/odd/below" && !principal.roles.contains("admin") };"#;

/// A right guess and two wrong ones, of the same length.
const GUESSES: [&str; 3] = ["1234", "1235", "4321"];

async fn under(rules: &str) -> World {
    World::under(Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap()).await
}

async fn put(client: &Client, path: &str, branch: &str, content: &str) -> Answer {
    client.put(&format!("/v1/tree{TENANT}/{path}?ref={branch}"), content.to_owned()).await
}

async fn version(client: &Client, path: &str, branch: &str, content: &str) -> String {
    put(client, path, branch, content).await.ok().json::<WriteAnswer>().version.to_string()
}

async fn head(client: &Client, branch: &str) -> String {
    let list: BranchList = client.get(&format!("/v1/branches{TENANT}")).await.ok().json();
    list.branches.iter().find(|info| info.branch.as_str() == branch).unwrap().version.to_string()
}

/// All that an answer tells but what differs from answer to answer, whatever was asked.
fn told(answer: &Answer) -> Value {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
    for own in ["version", "request_id", "branch"] {
        if let Some(own) = body.get_mut(own) {
            *own = Value::Null;
        }
    }
    let names: Vec<&str> = answer.headers.keys().map(http::HeaderName::as_str).collect();
    json!({"status": answer.status.as_u16(), "headers": names, "body": body})
}

/// What `verb` comes to with each guess, each on a fork of its own: the answer, and whether the fork moved. It has to be the
/// same.
async fn each_guess(world: &World, name: &str, verb: impl AsyncFn(&Client, &str, &str) -> Answer) -> Value {
    let ana = world.client("acme", "ana");
    let mut outcomes = Vec::new();
    for (number, guess) in GUESSES.into_iter().enumerate() {
        let branch = format!("{name}-{number}");
        ana.post("/v1/forks", json!({"path": TENANT, "branch": branch, "from": "main"})).await.ok();
        put(&ana, "d/guess", &branch, guess).await.ok();
        let before = head(&ana, &branch).await;
        let answer = verb(&ana, &branch, guess).await;
        outcomes.push(json!({"told": told(&answer), "moved": head(&ana, &branch).await != before}));
    }
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{name}: {outcomes:#?}");
    outcomes.swap_remove(0)
}

async fn vault() -> World {
    let world = under(VAULT).await;
    let boss = world.admin("acme", "boss");
    for file in ["pin", "shut", "odd"] {
        put(&boss, &format!("d/vault/{file}"), "main", GUESSES[0]).await.ok();
    }
    let ana = world.client("acme", "ana");
    assert_eq!(ana.get(&format!("/v1/tree{TENANT}/d/vault/pin")).await.error(403).policies, ["unseen"]);
    world
}

#[tokio::test]
async fn f16_an_equal_write_where_one_may_not_read_is_a_write_like_any_other() {
    let world = vault().await;
    let wrote =
        each_guess(&world, "put", async |ana, branch, guess| put(ana, "d/vault/pin", branch, guess).await).await;
    assert_eq!((&wrote["told"]["status"], &wrote["moved"]), (&json!(200), &json!(true)), "{wrote}");
    for (name, to, moves) in
        [("copy", "d/vault/pin", false), ("move", "d/vault/pin", true), ("odd", "d/vault/odd", false)]
    {
        let done = each_guess(&world, name, async |ana, branch, _guess| {
            let (from, to) = (format!("{TENANT}/d/guess"), format!("{TENANT}/{to}"));
            ana.post("/v1/tree-copy", json!({"from": from, "to": to, "ref": branch, "move": moves})).await
        });
        let status = if name == "odd" { 403 } else { 200 };
        assert_eq!(done.await["told"]["status"], status, "{name}");
    }
    for (name, file, status) in
        [("extract", "vault/pin", 200), ("shut", "vault/shut", 403), ("mixed", "vault/odd", 403)]
    {
        let done = each_guess(&world, name, async |ana, branch, guess| {
            let bytes = tar(&[("plain", "1"), (file, guess)]);
            ana.put(&format!("/v1/tree{TENANT}/d?ref={branch}&extract=tar"), bytes).await
        });
        let done = done.await;
        assert_eq!(
            (&done["told"]["status"], &done["moved"]),
            (&json!(status), &json!(status == 200)),
            "{name}: {done}"
        );
    }
    // Who may read it is told as before that nothing changed.
    let boss = world.admin("acme", "boss");
    let before = head(&boss, "main").await;
    assert_eq!(version(&boss, "d/vault/pin", "main", GUESSES[0]).await, before);
}

#[tokio::test]
async fn f16_what_is_put_where_one_may_not_read_is_looked_at_whether_or_not_it_was_there() {
    let world = under(VAULT).await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let secret = credential();
    put(&boss, "d/vault/key", "main", &secret).await.ok();
    let (prefix, noise) = secret.split_at(4);
    let wrong = format!("{prefix}{}", noise.chars().rev().collect::<String>());
    for guess in [&wrong, &secret, &secret] {
        let answer: WriteAnswer = put(&ana, "d/vault/key", "main", guess).await.ok().json();
        assert_eq!(answer.warnings.len(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn f16_restoring_and_reverting_tell_nothing_of_a_branch_that_one_may_not_read() {
    let world = under(
        r#"@id("closed") forbid (principal, action == Action::"tree_read", resource)
            when { context has branch && context.branch like "closed*" && resource.path like "*/pin" }
            unless { principal.roles.contains("admin") };"#,
    )
    .await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let mut outcomes = Vec::new();
    for (number, guess) in GUESSES.into_iter().enumerate() {
        let guessed = version(&ana, "pin", "main", guess).await;
        let closed = format!("closed-{number}");
        boss.post("/v1/forks", json!({"path": TENANT, "branch": closed, "from": guessed})).await.ok();
        put(&boss, "pin", &closed, GUESSES[0]).await.ok();
        let before = head(&boss, &closed).await;
        let restore = json!({"path": format!("{TENANT}/pin"), "ref": closed, "from_version": guessed});
        let restored = ana.post("/v1/tree-restore", restore).await;
        let moved = head(&boss, &closed).await != before;
        let revert = json!({"path": TENANT, "ref": closed, "version": guessed});
        let reverted = ana.post("/v1/tree-revert", revert).await;
        assert_eq!(reverted.error(403).policies, ["closed"]);
        outcomes.push((told(&restored), moved));
    }
    assert!(outcomes.iter().all(|(told, moved)| *told == outcomes[0].0 && *moved), "{outcomes:#?}");
    assert_eq!(outcomes[0].0["status"], 200);
}

/// A write by `ana` that begins, has `meanwhile` happen once what it grows from was read, and ends.
async fn slowly(world: &World, path: &str, content: &str, meanwhile: impl AsyncFnOnce()) -> Result<(), ApiError> {
    let principal = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
    let caller = Caller::new(principal, RequestId::mint(1, [1; 10]));
    let (path, branch) = (format!("{TENANT}/{path}").parse().unwrap(), BranchName::main());
    let ask = WriteAsk { path, branch, condition: Condition::None };
    let ((writer, reader), length) = (pipe(), u64::try_from(content.len()).unwrap());
    let control = world.control.clone();
    let writing =
        tokio::spawn(async move { ops::tree::write(&control, &caller, ask, None, Some(length), reader).await });
    // More than the pipe holds: with the last piece but one it is being read, and the branch was before.
    let pieces: Vec<Bytes> = content.bytes().map(|byte| Bytes::copy_from_slice(&[byte])).collect();
    let (last, first) = pieces.split_last().unwrap();
    for piece in first {
        writer.send(piece.clone()).await.unwrap();
    }
    meanwhile().await;
    writer.send(last.clone()).await.unwrap();
    writer.finish().await.unwrap_or_default();
    writing.await.unwrap().map(drop)
}

#[tokio::test]
async fn f16_a_write_that_another_one_overtakes_is_in_conflict_whatever_both_wrote() {
    let world = vault().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    ana.get("/v1/runs").await.ok();
    let [first, second, other] = ["1".repeat(20), "2".repeat(20), "3".repeat(20)];
    // Equal to what was there, to what is there when it lands, and to neither.
    for guess in [&first, &second, &other] {
        put(&boss, "d/vault/pin", "main", &first).await.ok();
        let meanwhile = async || drop(put(&boss, "d/vault/pin", "main", &second).await.ok());
        assert_eq!(slowly(&world, "d/vault/pin", guess, meanwhile).await.unwrap_err().code, "path_changed", "{guess}");
    }
    // Where it may be read, equal changes are none.
    for (guess, code) in [(&first, None), (&second, None), (&other, Some("path_changed"))] {
        put(&boss, "pin", "main", &first).await.ok();
        let meanwhile = async || drop(put(&boss, "pin", "main", &second).await.ok());
        assert_eq!(slowly(&world, "pin", guess, meanwhile).await.err().map(|error| error.code), code, "{guess}");
    }
}

#[tokio::test]
async fn f16_a_run_and_a_promotion_over_what_came_meanwhile_are_in_conflict_whatever_both_wrote() {
    let world = under(VAULT).await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    put(&ana, "plain", "main", "1").await.ok();
    for (number, guess) in GUESSES.into_iter().enumerate() {
        let folder = format!("d{number}");
        put(&ana, &format!("{folder}/plain"), "main", "1").await.ok();
        let meanwhile = (boss.clone(), format!("{folder}/vault/pin"));
        world.node.follow(move |order: StartRun| {
            let (boss, pin) = meanwhile.clone();
            async move {
                put(&boss, &pin, "main", GUESSES[0]).await.ok();
                order.updates.send(started()).await.unwrap();
                order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
                send_changes(&order, 0, &changes(&[("vault/pin", guess)])).await;
                order.updates.send(RunUpdate::Done).await.unwrap();
            }
        });
        let mounts = json!([{"path": format!("{TENANT}/{folder}"), "at": "/data"}]);
        let answer = ana.run(json!({"command": ["true"], "mounts": mounts})).await;
        let RunEventKind::Ended(mut result) = answer.last() else { panic!("{answer:?}") };
        let made = result.versions.pop().unwrap();
        assert_eq!(made.outcome, CommitOutcome::SideBranch, "{made:?}");
        assert_eq!(made.conflicts, [format!("{folder}/vault/pin")]);
    }
    for (number, guess) in GUESSES.into_iter().enumerate() {
        let (branch, pin) = (format!("fork-{number}"), format!("e{number}/vault/pin"));
        ana.post("/v1/forks", json!({"path": TENANT, "branch": branch, "from": "main"})).await.ok();
        put(&ana, &pin, &branch, guess).await.ok();
        put(&boss, &pin, "main", GUESSES[0]).await.ok();
        let ask = json!({"path": TENANT, "from": branch, "into": "main"});
        let error = ana.post("/v1/promotions", ask.clone()).await.error(409);
        assert_eq!(error.error, "promotion_conflict");
        assert_eq!(error.paths, [format!("{TENANT}/{pin}")]);
        let status = if guess == GUESSES[0] { 200 } else { 409 };
        assert_eq!(boss.post("/v1/promotions", ask).await.status, status);
    }
}
