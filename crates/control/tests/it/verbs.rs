//! The tree's verbs over HTTP: what each does, on what condition, and what policy says below it.

use std::io::Read as _;

use bailey_policy::Policies;
use bailey_protocol::api::{Blame, Diff, ExtractAnswer, History, TreeListing, WriteAnswer};
use bailey_tree::archive::{MemberKind, TarReader, TarWriter};
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::world::World;

const ROOT: &str = "/v1/tree/tenants/acme";

fn names(answer: Answer) -> Vec<String> {
    answer.ok().json::<TreeListing>().entries.into_iter().map(|entry| entry.name).collect()
}

async fn put(client: &Client, path: &str, content: &str) -> Answer {
    client.put(&format!("{ROOT}/{path}"), content.to_owned()).await.ok()
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(&format!("{ROOT}/{path}")).await
}

async fn patch(client: &Client, path: &str, body: serde_json::Value) -> Answer {
    client.ask(Method::PATCH, &format!("{ROOT}/{path}")).body(body.to_string()).answer().await
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = TarWriter::new(Vec::new(), 0);
    for (path, content) in files {
        tar.file(path.as_bytes(), false, content.len() as u64, &mut content.as_bytes()).unwrap();
    }
    tar.finish().unwrap()
}

async fn under(rules: &str) -> World {
    World::under(Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap()).await
}

const SECRET: &str = r#"@id("no-secrets") forbid (principal, action in [Action::"tree_read", Action::"tree_diff"], resource)
    when { resource.path like "*/secret*" };"#;

#[tokio::test]
async fn pages_go_on_to_the_end() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for path in ["a/1.csv", "a/2.txt", "b/c/3.csv", "z"] {
        put(&ana, path, "x").await;
    }
    let whole = names(ana.get(&format!("{ROOT}?recursive=true")).await);
    assert_eq!(whole, ["a", "a/1.csv", "a/2.txt", "b", "b/c", "b/c/3.csv", "z"]);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page: TreeListing = ana.get(&format!("{ROOT}?recursive=true&limit=2{after}")).await.ok().json();
        assert!(page.entries.len() <= 2);
        seen.extend(page.entries.into_iter().map(|entry| entry.name));
        let Some(next) = page.next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, whole);
    assert_eq!(names(ana.get(&format!("{ROOT}?recursive=true&glob=**/*.csv")).await), ["a/1.csv", "b/c/3.csv"]);
    assert_eq!(ana.get(&format!("{ROOT}?glob=%5B")).await.error(400).error, "invalid_content");
    assert_eq!(ana.get(&format!("{ROOT}?after=%21")).await.error(400).error, "invalid_content");
    ana.get(&format!("{ROOT}?recurse=true")).await.error(400);
}

#[tokio::test]
async fn parts_of_a_file_change_on_a_condition() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let tag = put(&ana, "f", "one two one").await.header("etag").to_owned();
    let edits = json!({"edits": [{"old": "two", "new": "2"}]});
    let at = format!("{ROOT}/f");
    let with = |tag: &str| ana.ask(Method::PATCH, &at).header("if-match", tag).body(edits.to_string()).answer();
    let edited = with(&tag).await.ok();
    assert_eq!(get(&ana, "f").await.body, "one 2 one");
    assert_eq!(edited.header("etag"), get(&ana, "f").await.header("etag"));
    with(&tag).await.error(412);
    assert_eq!(
        patch(&ana, "f", json!({"edits": [{"old": "one", "new": "1"}]})).await.error(409).error,
        "edit_does_not_fit"
    );
    patch(&ana, "f", json!({"edits": [{"start": 0, "length": 3, "new": "1"}, {"start": 9, "new_base64": "IQ=="}]}))
        .await
        .ok();
    assert_eq!(get(&ana, "f").await.body, "1 2 one!");
    assert_eq!(patch(&ana, "f", json!({"executable": true})).await.ok().status, 200);
    assert_eq!(get(&ana, "f").await.header("bailey-kind"), "executable");
    for body in [
        json!({"edits": [{"old": "1"}]}),
        json!({"edits": [{"new": "1"}]}),
        json!({"edits": [{"old": "1", "start": 1, "new": "2"}]}),
        json!({"edits": [{"old": "1", "new": "2", "new_base64": "Mg=="}]}),
        json!({"edits": [{"start": u64::MAX, "length": 1, "new": ""}]}),
        json!({"edits": [], "exec": true}),
    ] {
        patch(&ana, "f", body).await.error(400);
    }
    patch(&ana, "none", json!({"executable": true})).await.error(404);
    let unread = under(r#"@id("no-reading") forbid (principal, action == Action::"tree_read", resource);"#).await;
    let ana = unread.client("acme", "ana");
    ana.put(&format!("{ROOT}/f"), "x").await.ok();
    let told = patch(&ana, "f", json!({"edits": [{"old": "x", "new": "y"}]})).await.error(403);
    assert_eq!(told.policies, ["no-reading"], "an edit tells whether a text is there");
}

#[tokio::test]
async fn folders_are_made_copied_and_moved() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let first = ana.put(&format!("{ROOT}/d/empty?type=folder"), "").await.ok().json::<WriteAnswer>();
    let again = ana.put(&format!("{ROOT}/d/empty?type=folder"), "").await.ok().json::<WriteAnswer>();
    assert_eq!(first, again);
    put(&ana, "d/f", "x").await;
    let copy = |body: serde_json::Value| async { ana.post("/v1/tree-copy", body).await };
    let (d, e) = ("/tenants/acme/d", "/tenants/acme/e");
    copy(json!({"from": d, "to": e})).await.ok();
    assert_eq!(names(get(&ana, "e").await), ["empty", "f"]);
    assert_eq!(copy(json!({"from": d, "to": e})).await.error(409).error, "already_exists");
    copy(json!({"from": e, "to": "/tenants/acme/g/h", "move": true})).await.ok();
    get(&ana, "e").await.error(404);
    assert_eq!(names(get(&ana, "g/h").await), ["empty", "f"]);
    copy(json!({"from": d, "to": "/tenants/acme/d/x", "move": true})).await.error(400);
    copy(json!({"from": "/tenants/acme/none", "to": e})).await.error(404);
    copy(json!({"from": d, "to": e, "from_ref": first.version})).await.ok();
    assert_eq!(names(get(&ana, "e").await), ["empty"], "as it was then");
    copy(json!({"from": d, "to": e, "from_ref": first.version, "move": true})).await.error(400);
    // Between the tenant's store and the user's own, and in one step back.
    let own = "/tenants/acme/users/ana/d";
    copy(json!({"from": d, "to": own})).await.ok();
    assert_eq!(ana.get(&format!("/v1/tree{own}/f")).await.ok().body, "x");
    copy(json!({"from": own, "to": "/tenants/acme/back", "move": true})).await.ok();
    assert_eq!(get(&ana, "back/f").await.ok().body, "x");
    ana.get(&format!("/v1/tree{own}")).await.error(404);
    for (from, to) in [(d, "/tenants/globex/d"), ("/tenants/globex/d", e), ("/tenants/acme/users/bob/d", e)] {
        let denied = copy(json!({"from": from, "to": to})).await.error(403);
        assert!(!denied.policies.is_empty());
    }
    let tag = get(&ana, "g/h/f").await.header("etag").to_owned();
    let onto = json!({"from": "/tenants/acme/d/f", "to": "/tenants/acme/g/h/f"}).to_string();
    let onto = |tag: &str| ana.ask(Method::POST, "/v1/tree-copy").header("if-match", tag).body(onto.clone()).answer();
    onto("\"0000000000000000000000000000000000000000\"").await.error(412);
    onto(&tag).await.ok();
}

#[tokio::test]
async fn what_was_comes_back_and_what_was_done_is_undone() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let first = put(&ana, "d/f", "1").await.json::<WriteAnswer>().version;
    let second = put(&ana, "d/f", "2").await.json::<WriteAnswer>().version;
    put(&ana, "d/g", "new").await;
    let restored = ana.post("/v1/tree-restore", json!({"path": "/tenants/acme/d", "from_version": first})).await;
    assert_eq!(restored.ok().json::<WriteAnswer>().branch.as_str(), "main");
    assert_eq!((names(get(&ana, "d").await), get(&ana, "d/f").await.body), (vec!["f".to_owned()], "1".into()));
    let third = put(&ana, "d/f", "3").await.json::<WriteAnswer>().version;
    let conflict = ana.post("/v1/tree-revert", json!({"path": "/tenants/acme", "version": second})).await.error(409);
    assert_eq!(conflict.error, "revert_conflict");
    assert!(conflict.message.contains("`/tenants/acme/d/f`"), "{}", conflict.message);
    ana.post("/v1/tree-revert", json!({"path": "/tenants/acme", "version": third})).await.ok();
    assert_eq!(get(&ana, "d/f").await.body, "1");
    let none = "0".repeat(40);
    ana.post("/v1/tree-revert", json!({"path": "/tenants/acme", "version": none})).await.error(404);
    ana.post("/v1/tree-restore", json!({"path": "/tenants/acme/d", "from_version": none})).await.error(404);
    ana.post("/v1/tree-restore", json!({"path": "/tenants/acme/h", "from_version": first})).await.error(404);
}

#[tokio::test]
async fn blame_is_a_matter_of_history() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let first = put(&ana, "f", "a\nb\n").await.json::<WriteAnswer>().version;
    let bob = world.client("acme", "bob");
    let second = bob.put(&format!("{ROOT}/f"), "a\nB\n").await.ok().json::<WriteAnswer>().version;
    let blame: Blame = ana.get("/v1/tree-blame/tenants/acme/f").await.ok().json();
    let spans: Vec<_> = blame.spans.iter().map(|span| (span.first, span.version.clone().unwrap())).collect();
    assert_eq!(spans, [(1, first), (2, second)]);
    assert_eq!(blame.versions.iter().filter(|info| info.author == "bob").count(), 1);
    let world = under(r#"@id("no-history") forbid (principal, action == Action::"tree_history", resource);"#).await;
    let ana = world.client("acme", "ana");
    put(&ana, "f", "a\n").await;
    assert_eq!(ana.get("/v1/tree-blame/tenants/acme/f").await.error(403).policies, ["no-history"]);
}

#[tokio::test]
async fn archives_go_out_and_come_in() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "d/f", "text").await;
    ana.put(&format!("{ROOT}/d/empty?type=folder"), "").await.ok();
    for (kind, format) in [("application/x-tar", "tar"), ("application/zip", "zip")] {
        let packed = ana.ask(Method::GET, &format!("{ROOT}/d")).header("accept", kind).answer().await.ok();
        assert_eq!(packed.header("content-type"), kind);
        let version = packed.header("bailey-version").to_owned();
        assert_eq!(version.len(), 40);
        let sent = ana.put(&format!("{ROOT}/{format}?extract={format}"), packed.body).await.ok();
        let answer: ExtractAnswer = sent.json();
        assert_eq!((answer.members, answer.bytes, answer.notices.len()), (2, 4, 0));
        assert_eq!(sent.header("bailey-version"), answer.version.as_str());
        assert_eq!(names(get(&ana, format).await), ["empty", "f"]);
    }
    let before: TreeListing = ana.get(ROOT).await.ok().json();
    for (bytes, format) in [(tar(&[("a", "1"), ("../b", "2")]), "tar"), (b"PK no zip".to_vec(), "zip")] {
        let refused = ana.put(&format!("{ROOT}/in?extract={format}"), bytes).await.error(400);
        assert_eq!(refused.error, "archive_refused");
    }
    let refused = ana.put(&format!("{ROOT}/in?extract=tar"), tar(&[("a", "1"), ("../b", "2")])).await.error(400);
    assert!(refused.message.contains("`../b`"), "{}", refused.message);
    assert_eq!(before, ana.get(ROOT).await.ok().json(), "nothing of it is there");
    let large = "x".repeat(1024 * 1024 + 1);
    ana.put(&format!("{ROOT}/in?extract=tar"), tar(&[("large", &large)])).await.error(413);
    ana.put(&format!("{ROOT}/in?extract=rar"), "x").await.error(400);
    ana.put(&format!("{ROOT}/in?extract=tar&type=folder"), "x").await.error(400);
    let many = ana.ask(Method::GET, &format!("{ROOT}/none")).header("accept", "application/zip").answer().await;
    many.error(404);
}

#[tokio::test]
async fn listings_leave_out_what_is_denied_below_and_archives_refuse() {
    let world = under(SECRET).await;
    let ana = world.client("acme", "ana");
    put(&ana, "d/open", "1").await;
    let key = put(&ana, "d/secret/key", "2").await.ok().json::<WriteAnswer>().version;
    let text = put(&ana, "d/secret.txt", "3").await.ok().json::<WriteAnswer>().version;
    assert_eq!(names(ana.get(&format!("{ROOT}/d?recursive=true")).await), ["open"]);
    assert_eq!(names(get(&ana, "d").await), ["open"]);
    let history: History = ana.get("/v1/tree-history/tenants/acme/d").await.ok().json();
    assert_eq!(history.versions.len(), 1, "the others changed nothing that she may see");
    let from = &history.versions[0].version;
    let diff: Diff = ana.get(&format!("/v1/tree-diff/tenants/acme/d?from={from}")).await.ok().json();
    assert_eq!(diff.changes, []);
    for kind in ["application/x-tar", "application/zip"] {
        let refused = ana.ask(Method::GET, &format!("{ROOT}/d")).header("accept", kind).answer().await.error(403);
        assert_eq!(refused.policies, ["no-secrets"]);
        assert!(refused.message.contains("/tenants/acme/d/secret"), "{}", refused.message);
    }
    // Nor does it get out under another name.
    for moves in [false, true] {
        let body = json!({"from": "/tenants/acme/d", "to": "/tenants/acme/e", "move": moves});
        assert_eq!(ana.post("/v1/tree-copy", body).await.error(403).policies, ["no-secrets"]);
    }
    let body = json!({"path": "/tenants/acme/d", "from_version": text});
    assert_eq!(ana.post("/v1/tree-restore", body).await.error(403).policies, ["no-secrets"]);
    let body = json!({"path": "/tenants/acme", "version": key});
    assert_eq!(ana.post("/v1/tree-revert", body).await.error(403).policies, ["no-secrets"]);
}

#[tokio::test]
async fn every_change_below_is_asked_about() {
    const KEPT: &str = r#"@id("kept") forbid (principal, action in [Action::"tree_write", Action::"tree_delete"], resource)
        when { resource.path like "/tenants/acme/*/kept" && !(resource.path like "/tenants/acme/users/*") };"#;
    let world = under(KEPT).await;
    let ana = world.client("acme", "ana");
    let version = put(&ana, "d/f", "1").await.json::<WriteAnswer>().version;
    let archive = tar(&[("f", "2"), ("kept", "evil")]);
    assert_eq!(ana.put(&format!("{ROOT}/d?extract=tar"), archive).await.error(403).policies, ["kept"]);
    assert_eq!(get(&ana, "d/f").await.body, "1");
    ana.put(&format!("{ROOT}/kept"), "fine: not below a folder").await.ok();
    for to in ["/tenants/acme/d/kept", "/tenants/acme/x/kept"] {
        let body = json!({"from": "/tenants/acme/d/f", "to": to});
        assert_eq!(ana.post("/v1/tree-copy", body).await.error(403).policies, ["kept"]);
    }
    let own = "/tenants/acme/users/ana";
    ana.put(&format!("/v1/tree{own}/w/kept"), "mine").await.ok();
    let body = json!({"from": format!("{own}/w"), "to": "/tenants/acme/w"});
    assert_eq!(ana.post("/v1/tree-copy", body).await.error(403).policies, ["kept"]);
    ana.post("/v1/tree-restore", json!({"path": "/tenants/acme/d", "from_version": version})).await.ok();
}

#[tokio::test]
async fn f01_an_archive_that_goes_out_has_nothing_of_another_tenant() {
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    put(&ana, "d/f", "canary-7d1f").await;
    eve.put("/v1/tree/tenants/globex/g", "x").await.ok();
    let ask = |path: &str| eve.ask(Method::GET, path).header("accept", "application/x-tar").answer();
    ask(&format!("{ROOT}/d")).await.error(403);
    ask("/v1/tree/tenants/acme/users/ana").await.error(403);
    let own = ask("/v1/tree/tenants/globex").await.ok();
    let mut tar = TarReader::new(&*own.body);
    let member = tar.next_member().unwrap().unwrap();
    let mut content = String::new();
    assert_eq!(member.kind, MemberKind::File { size: 1, executable: false });
    tar.content().read_to_string(&mut content).unwrap();
    assert_eq!(content, "x");
    assert_eq!(tar.next_member().unwrap(), None);
}

#[tokio::test]
async fn a_name_that_is_no_text_is_a_name_like_others() {
    let world = under(SECRET).await;
    let ana = world.admin("acme", "ana");
    let mut tar = TarWriter::new(Vec::new(), 0);
    tar.file(b"\xff", false, 1, &mut &b"x"[..]).unwrap();
    ana.put(&format!("{ROOT}/d?extract=tar"), tar.finish().unwrap()).await.ok();
    let listing: TreeListing = get(&ana, "d").await.ok().json();
    assert_eq!(listing.entries[0].name_base64.as_deref(), Some("/w=="));
    assert_eq!(listing.entries[0].name, "\u{10ffff}");
    // By its bytes, and by the text that listings have.
    for path in ["d/%ff", "d/%f4%8f%bf%bf"] {
        assert_eq!(get(&ana, path).await.ok().body, "x", "{path}");
    }
    let packed = ana.ask(Method::GET, &format!("{ROOT}/d")).header("accept", "application/x-tar").answer().await.ok();
    assert_eq!(TarReader::new(&*packed.body).next_member().unwrap().unwrap().path, b"\xff");
    ana.post("/v1/tree-copy", json!({"from": "/tenants/acme/d", "to": "/tenants/acme/e"})).await.ok();
    let moved = json!({"from": "/tenants/acme/d/\u{10ffff}", "to": "/tenants/acme/d/\u{10fffe}", "move": true});
    ana.post("/v1/tree-copy", moved).await.ok();
    assert_eq!(names(get(&ana, "d").await), ["\u{10fffe}"]);
    assert_eq!(get(&ana, "d/%fe").await.ok().body, "x");
    let edit = json!({"edits": [{"old": "x", "new": "y"}]});
    patch(&ana, "d/%fe", edit).await.ok();
    ana.put(&format!("{ROOT}/%80/%81"), "z").await.ok();
    for verb in ["history", "blame", "diff"] {
        ana.get(&format!("/v1/tree-{verb}/tenants/acme/d/%fe")).await.ok();
    }
    ana.delete(&format!("{ROOT}/d/%fe")).await.ok();
    assert!(names(get(&ana, "d").await).is_empty());
    // What policy says of a name holds for it, whatever else is in it, and for no other.
    ana.put(&format!("{ROOT}/e/secret%ff"), "1").await.ok();
    assert_eq!(get(&ana, "e/secret%ff").await.error(403).policies, ["no-secrets"]);
    assert_eq!(names(get(&ana, "e").await), ["\u{10ffff}"]);
    let refused = ana.ask(Method::GET, &format!("{ROOT}/e")).header("accept", "application/x-tar").answer().await;
    assert!(refused.error(403).message.contains("e/secret\u{10ffff}"));
    // Out of all history, by that name.
    let receipt = ana.post("/v1/purges", json!({"path": "/tenants/acme/e/secret\u{10ffff}"})).await;
    assert!(receipt.status.is_success(), "{receipt:?}");
    ana.ask(Method::GET, &format!("{ROOT}/e")).header("accept", "application/x-tar").answer().await.ok();
    // Two texts of one name are not two names.
    let twice = json!({"from": "/tenants/acme/e", "to": "/tenants/acme/\u{10ffc3}\u{10ffa9}"});
    ana.post("/v1/tree-copy", twice).await.error(400);
}

/// With each verb that shows content, one that does not show what may not be read.
#[tokio::test]
async fn every_verb_that_shows_content_asks_whether_it_may_be_read() {
    let world = under(
        r#"@id("no-secrets") forbid (principal, action == Action::"tree_read", resource)
        when { resource.path like "*/secret*" && !principal.roles.contains("admin") };"#,
    )
    .await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let version = |answer: Answer| answer.json::<WriteAnswer>().version.to_string();
    put(&boss, "d/open", "1").await;
    let first = version(put(&boss, "d/secret", "canary").await);
    let second = version(put(&boss, "d/secret", "canary 2").await);
    let packed = async |client: &Client, path: &str| {
        client.ask(Method::GET, &format!("{ROOT}/{path}")).header("accept", "application/x-tar").answer().await
    };
    let body = |path: &str, value: serde_json::Value| (path.to_owned(), value);
    let (file, folder) = ("/tenants/acme/d/secret", "/tenants/acme/d");
    for path in [
        format!("{ROOT}/d/secret"),
        format!("/v1/tree-blame{file}"),
        format!("/v1/tree-diff{file}?from={first}"),
        format!("/v1/tree-diff{file}?from={first}&to={first}"),
    ] {
        assert_eq!(ana.get(&path).await.error(403).policies, ["no-secrets"], "{path}");
        boss.get(&path).await.ok();
    }
    for path in [
        format!("{ROOT}/d"),
        format!("{ROOT}?recursive=true"),
        format!("/v1/tree-diff{folder}?from={first}"),
        format!("/v1/tree-diff/tenants/acme?from={first}"),
        format!("/v1/tree-history{folder}"),
    ] {
        let shown = ana.get(&path).await.ok();
        let text = String::from_utf8_lossy(&shown.body).into_owned();
        assert!(!text.contains("secret") && !text.contains("canary"), "{path}: {text}");
    }
    // Of which no version may be told, as of one that never was.
    for path in [file, "/tenants/acme/d/never"] {
        ana.get(&format!("/v1/tree-history{path}")).await.error(404);
    }
    for (path, request) in [
        body("/v1/tree-copy", json!({"from": file, "to": "/tenants/acme/mine"})),
        body("/v1/tree-copy", json!({"from": folder, "to": "/tenants/acme/mine"})),
        body("/v1/tree-copy", json!({"from": folder, "to": "/tenants/acme/mine", "move": true})),
        body("/v1/tree-restore", json!({"path": folder, "from_version": first})),
        body("/v1/tree-revert", json!({"path": folder, "version": second})),
    ] {
        assert_eq!(ana.post(&path, request.clone()).await.error(403).policies, ["no-secrets"], "{path} {request}");
    }
    let edit = json!({"edits": [{"old": "canary", "new": "x"}]});
    assert_eq!(patch(&ana, "d/secret", edit).await.error(403).policies, ["no-secrets"]);
    for path in ["d", "d/secret"] {
        assert_eq!(packed(&ana, path).await.error(403).policies, ["no-secrets"], "{path}");
        packed(&boss, path).await.ok();
    }
}

/// An id is made of the content: whoever may not see that is neither told the id nor told that a guess of it is right.
#[tokio::test]
async fn ids_tell_nothing_of_what_may_not_be_read() {
    let world = under(
        r#"@id("no-secrets") forbid (principal, action == Action::"tree_read", resource)
        when { resource.path like "*/secret*" && !principal.roles.contains("admin") };"#,
    )
    .await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    put(&boss, "d/secret", "pin 1234").await;
    let head = put(&boss, "d/open", "1").await.json::<WriteAnswer>().version.to_string();
    let id = get(&boss, "d/secret").await.ok().header("etag").to_owned();
    let ids = async |path: &str| {
        let listing: TreeListing = ana.get(path).await.ok().json();
        listing.entries.into_iter().map(|entry| (entry.name, entry.id.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(ids(ROOT).await, [("d".to_owned(), false)]);
    assert_eq!(ids(&format!("{ROOT}?recursive=true")).await, [("d".to_owned(), false), ("d/open".to_owned(), true)]);
    for answer in [
        ana.put(&format!("{ROOT}/d?type=folder"), "").await.ok(),
        ana.put(&format!("{ROOT}/d?extract=tar"), tar(&[("new", "1")])).await.ok(),
    ] {
        assert_eq!(answer.headers.get("etag"), None);
    }
    // She may write it, blindly: on no condition, or on one about the branch.
    let on = |path: &'static str, tag: String| {
        ana.ask(Method::PUT, &format!("{ROOT}/{path}")).header("if-match", &tag).body("2").answer()
    };
    assert_eq!(on("d/secret", id).await.status, 412);
    assert_eq!(on("d/secret", "\"0000\"".to_owned()).await.status, 412);
    assert_eq!(on("d/secret", format!("\"{head}\"")).await.status, 412, "the branch has moved");
    let head = put(&boss, "d/open", "2").await.json::<WriteAnswer>().version.to_string();
    let written = on("d/secret", format!("\"{head}\"")).await.ok();
    assert_eq!(written.headers.get("etag"), None);
    let open = get(&ana, "d/open").await.ok().header("etag").to_owned();
    on("d/open", open).await.ok();
    // Where nothing is hidden, a folder has its id, and may be changed on that condition.
    let free = World::new().await;
    let ana = free.client("acme", "ana");
    put(&ana, "d/x", "1").await;
    let listing: TreeListing = ana.get(ROOT).await.ok().json();
    let id = listing.entries[0].id.clone().unwrap();
    ana.ask(Method::DELETE, &format!("{ROOT}/d")).header("if-match", &format!("\"{id}\"")).answer().await.ok();
}

#[tokio::test]
async fn f03_no_verb_writes_through_a_link() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let mut links = TarWriter::new(Vec::new(), 0);
    for (name, target) in [(&b"d"[..], &b"/"[..]), (b"up", b"../.."), (b"self", b"/proc/self/root")] {
        links.link(name, target).unwrap();
    }
    ana.put(&format!("{ROOT}/l?extract=tar"), links.finish().unwrap()).await.ok();
    put(&ana, "f", "x").await;
    for link in ["d", "up", "self"] {
        let below = format!("{ROOT}/l/{link}/srv/f03");
        ana.put(&below, "x").await.error(400);
        ana.put(&format!("{below}?type=folder"), "").await.error(400);
        ana.put(&format!("{below}?extract=tar"), tar(&[("x", "x")])).await.error(400);
        ana.put(&format!("{ROOT}/l/{link}?extract=tar"), tar(&[("x", "x")])).await.error(400);
        ana.put(&format!("{ROOT}/l?extract=tar"), tar(&[(&format!("{link}/x"), "x")])).await.error(400);
        let to = format!("/tenants/acme/l/{link}/srv/f03");
        ana.post("/v1/tree-copy", json!({"from": "/tenants/acme/f", "to": to})).await.error(400);
        ana.post("/v1/tree-copy", json!({"from": "/tenants/acme/f", "to": to, "move": true})).await.error(400);
        ana.get(&below).await.error(404);
        // F05, F06: such names are names, and dots are none.
        ana.get(&format!("{ROOT}/l/{link}/../f")).await.error(400);
        patch(&ana, &format!("l/{link}"), json!({"edits": [{"start": 0, "new": "x"}]})).await.error(400);
        assert_eq!(get(&ana, &format!("l/{link}")).await.ok().header("bailey-kind"), "symlink");
    }
    assert!(!std::path::Path::new("/srv/f03").exists());
}

/// What is to be done to `d`, and as what, once `d` is there or not.
async fn conditional(ana: &Client, verb: &str, there: bool) -> (Method, String, Vec<u8>) {
    put(ana, "d/f", "1").await;
    let first = put(ana, "d/f", "2").await.json::<WriteAnswer>().version;
    let mut last = put(ana, "d/f", "3").await.json::<WriteAnswer>().version;
    if !there {
        last = ana.delete(&format!("{ROOT}/d")).await.ok().json::<WriteAnswer>().version;
    }
    let of_body = |verb: &str, body: serde_json::Value| (Method::POST, format!("/v1/{verb}"), body.to_string().into());
    match verb {
        "mkdir" => (Method::PUT, format!("{ROOT}/d?type=folder"), Vec::new()),
        "extract" => (Method::PUT, format!("{ROOT}/d?extract=tar"), tar(&[("f", "4")])),
        "restore" => of_body("tree-restore", json!({"path": "/tenants/acme/d", "from_version": first})),
        "revert" => of_body("tree-revert", json!({"path": "/tenants/acme/d", "version": last})),
        verb => panic!("{verb}"),
    }
}

#[tokio::test]
async fn folders_archives_and_what_was_come_on_a_condition() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let none = "0".repeat(40);
    for verb in ["mkdir", "extract", "restore", "revert"] {
        for there in [true, false] {
            // Whether it holds, by header and value; `tag` and `head` stand for what they are then.
            let cases = [
                ("if-match", "tag", there),
                ("if-match", "head", true),
                ("if-match", "*", there),
                ("if-match", none.as_str(), false),
                ("if-none-match", "*", !there),
            ];
            for (header, value, holds) in cases {
                let (method, path, body) = conditional(&ana, verb, there).await;
                let root = ana.get(ROOT).await.ok();
                let head = root.header("bailey-version").to_owned();
                let entries = root.json::<TreeListing>().entries;
                let tag =
                    entries.into_iter().find(|entry| entry.name == "d").map_or(none.clone(), |entry| entry.id.unwrap());
                let value = match value {
                    "*" => value.to_owned(),
                    "tag" => format!("\"{tag}\""),
                    "head" => format!("\"{head}\""),
                    id => format!("\"{id}\""),
                };
                let answer = ana.ask(method, &path).header(header, &value).body(body).answer().await;
                let case = format!("{verb}, there: {there}, {header}: {value}");
                if holds {
                    assert_eq!(answer.status, 200, "{case}: {answer:?}");
                    assert_eq!(names(get(&ana, "d").await).is_empty(), verb == "mkdir" && !there, "{case}");
                } else {
                    assert_eq!(answer.error(412).error, "precondition_failed", "{case}");
                    assert_eq!(ana.get(ROOT).await.header("bailey-version"), head, "{case}");
                }
            }
        }
    }
}
