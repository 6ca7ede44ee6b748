//! Files over HTTP.

use bailey_protocol::api::{Diff, DiffChange, History, TreeListing, WriteAnswer};
use http::Method;

use crate::client::Client;
use crate::world::World;

async fn put_if(client: &Client, path: &str, name: &str, tag: &str, content: &str) -> crate::client::Answer {
    client.ask(Method::PUT, path).header(name, tag).body(content.to_owned()).answer().await
}

#[tokio::test]
async fn what_was_written_is_read_listed_and_deleted() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let empty: TreeListing = ana.get("/v1/tree/tenants/acme").await.ok().json();
    assert_eq!((empty.entries.len(), empty.version), (0, None));
    ana.get("/v1/tree/tenants/acme/x").await.error(404);
    let written = ana.put("/v1/tree/tenants/acme/reports/q1.csv", "a,b\n").await.ok();
    let answer: WriteAnswer = written.json();
    assert_eq!(answer.branch.as_str(), "main");
    let read = ana.get("/v1/tree/tenants/acme/reports/q1.csv").await.ok();
    assert_eq!(read.body, "a,b\n");
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("x-content-type-options", "nosniff"),
        ("content-disposition", "attachment"),
        ("bailey-kind", "file"),
        ("accept-ranges", "bytes"),
        ("etag", written.header("etag")),
        ("bailey-version", answer.version.as_str()),
        ("content-length", "4"),
    ] {
        assert_eq!(read.header(name), value);
    }
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme/reports").await.ok().json();
    assert_eq!(listing.entries[0].name, "q1.csv");
    assert_eq!(format!("\"{}\"", listing.entries[0].id.as_deref().unwrap()), written.header("etag"));
    let head = ana.ask(Method::HEAD, "/v1/tree/tenants/acme/reports/q1.csv").answer().await.ok();
    assert_eq!((head.body.len(), head.header("content-length")), (0, "4"));
    ana.delete("/v1/tree/tenants/acme/reports/q1.csv").await.ok();
    ana.get("/v1/tree/tenants/acme/reports/q1.csv").await.error(404);
    ana.delete("/v1/tree/tenants/acme/reports/q1.csv").await.error(404);
    let old = ana.get(&format!("/v1/tree/tenants/acme/reports/q1.csv?ref={}", answer.version)).await.ok();
    assert_eq!(old.body, "a,b\n");
}

#[tokio::test]
async fn ranges_and_conditions_on_reads() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let path = "/v1/tree/tenants/acme/x";
    let tag = ana.put(path, "0123456789").await.ok().header("etag").to_owned();
    let range = |range: &'static str| ana.ask(Method::GET, path).header("range", range).answer();
    let part = range("bytes=2-4").await;
    assert_eq!((part.status.as_u16(), part.header("content-range")), (206, "bytes 2-4/10"));
    assert_eq!(part.body, "234");
    assert_eq!(range("bytes=-3").await.body, "789");
    assert_eq!(range("bytes=0-1,4-5").await.body, "0123456789");
    range("bytes=10-").await.error(416);
    let same = ana.ask(Method::GET, path).header("if-none-match", &tag).answer().await;
    assert_eq!((same.status.as_u16(), same.body.len()), (304, 0));
    let stale = ana.ask(Method::GET, path).header("range", "bytes=2-4").header("if-range", "\"old\"").answer().await;
    assert_eq!((stale.status.as_u16(), stale.body.as_ref()), (200, b"0123456789".as_slice()));
}

#[tokio::test]
async fn a_write_happens_only_on_what_it_was_based_on() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let path = "/v1/tree/tenants/acme/x";
    put_if(&ana, path, "if-match", "*", "1").await.error(412);
    let first = put_if(&ana, path, "if-none-match", "*", "1").await.ok();
    put_if(&ana, path, "if-none-match", "*", "2").await.error(412);
    let tag = first.header("etag").to_owned();
    let second = put_if(&ana, path, "if-match", &tag, "2").await.ok();
    assert_eq!(put_if(&ana, path, "if-match", &tag, "3").await.error(412).error, "precondition_failed");
    // The version of the branch's head is a condition on everything.
    let version = format!("\"{}\"", second.header("bailey-version"));
    ana.put("/v1/tree/tenants/acme/other", "1").await.ok();
    put_if(&ana, path, "if-match", &version, "3").await.error(412);
    put_if(&ana, path, "if-match", "W/\"x\"", "3").await.error(400);
    let stale = ana.ask(Method::DELETE, path).header("if-match", &tag).answer().await;
    stale.error(412);
    assert_eq!(ana.get(path).await.body, "2");
}

#[tokio::test]
async fn f18_of_many_writers_on_one_version_exactly_one_wins() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let path = "/v1/tree/tenants/acme/x";
    let mut tag = ana.put(path, "start").await.ok().header("etag").to_owned();
    for round in 0..4 {
        let contents: Vec<_> = (0..16).map(|writer| format!("{round}.{writer}")).collect();
        let writes = contents.iter().map(|content| put_if(&ana, path, "if-match", &tag, content));
        let answers = futures_util::future::join_all(writes).await;
        let won: Vec<_> = answers.iter().zip(&contents).filter(|(answer, _)| answer.status == 200).collect();
        assert_eq!(won.len(), 1);
        answers.iter().filter(|answer| answer.status != 200).for_each(|answer| drop(answer.error(412)));
        assert_eq!(ana.get(path).await.body, won[0].1.as_str());
        tag = won[0].0.header("etag").to_owned();
    }
    let history: History = ana.get("/v1/tree-history/tenants/acme/x").await.ok().json();
    assert_eq!(history.versions.len(), 5);
}

#[tokio::test]
async fn many_writers_into_one_new_folder_all_succeed() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let paths: Vec<_> = (0..50).map(|n| format!("/v1/tree/tenants/acme/a/b/c/{n}")).collect();
    let writes = paths.iter().map(|path| ana.put(path, "x"));
    futures_util::future::join_all(writes).await.into_iter().for_each(|answer| drop(answer.ok()));
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme/a/b/c").await.ok().json();
    assert_eq!(listing.entries.len(), 50);
}

#[tokio::test]
async fn what_cannot_be_written_changes_nothing() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/file", "1").await.ok();
    for (path, status, code) in [
        ("/v1/tree/tenants/acme", 400, "is_a_folder"),
        ("/v1/tree/tenants/acme/file/below", 400, "not_a_folder"),
        ("/v1/tree/tenants/acme/x?ref=draft", 404, "not_found"),
        ("/v1/tree/tenants/acme/x?ref=0123456789012345678901234567890123456789", 400, "invalid_query"),
    ] {
        assert_eq!(ana.put(path, "2").await.error(status).error, code, "{path}");
    }
    ana.get("/v1/tree/tenants/acme/file/below").await.error(404);
    ana.get("/v1/tree/tenants/acme/file?ref=draft").await.error(404);
    ana.get("/v1/tree/tenants/acme/file?ref=0123456789012345678901234567890123456789").await.error(404);
    let ranged = ana.ask(Method::PUT, "/v1/tree/tenants/acme/file").header("content-range", "bytes 0-0/1");
    ranged.body("2").answer().await.error(400);
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme").await.ok().json();
    assert_eq!(listing.entries.len(), 1);
}

#[tokio::test]
async fn f16_a_version_of_another_tenant_does_not_exist() {
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    let version = ana.put("/v1/tree/tenants/acme/x", "canary").await.ok().json::<WriteAnswer>().version;
    eve.put("/v1/tree/tenants/globex/x", "own").await.ok();
    for unknown in [version.as_str(), "0123456789012345678901234567890123456789"] {
        for path in [
            format!("/v1/tree/tenants/globex/x?ref={unknown}"),
            format!("/v1/tree-history/tenants/globex/x?ref={unknown}"),
            format!("/v1/tree-diff/tenants/globex/x?from={unknown}"),
            format!("/v1/tree-diff/tenants/globex/x?to={unknown}"),
        ] {
            let message = eve.get(&path).await.error(404).message;
            assert_eq!(message, format!("there is no version `{unknown}` in this tree"));
        }
    }
}

#[tokio::test]
async fn history_and_diff_tell_what_changed() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let versions: Vec<_> = ["one\n", "two\n", "three\n"].into_iter().collect();
    let mut made = Vec::new();
    for content in versions {
        made.push(ana.put("/v1/tree/tenants/acme/x", content).await.ok().json::<WriteAnswer>().version);
    }
    ana.put("/v1/tree/tenants/acme/other", "o").await.ok();
    let history: History = ana.get("/v1/tree-history/tenants/acme/x?limit=2").await.ok().json();
    assert_eq!(history.versions.iter().map(|info| &info.version).collect::<Vec<_>>(), [&made[2], &made[1]]);
    assert_eq!(history.versions[0].author, "ana");
    let path = format!("/v1/tree-history/tenants/acme/x?after={}", history.next.unwrap());
    let rest: History = ana.get(&path).await.ok().json();
    assert_eq!(rest.versions.len(), 1);
    let path = format!("/v1/tree-diff/tenants/acme?from={}&to={}", made[0], made[2]);
    let diff: Diff = ana.get(&path).await.ok().json();
    assert_eq!((diff.changes.len(), diff.changes[0].change), (1, DiffChange::Modified));
    assert!(diff.changes[0].unified.as_ref().unwrap().contains("+three"));
    // Without `from`: what the last version changed.
    let diff: Diff = ana.get("/v1/tree-diff/tenants/acme").await.ok().json();
    assert_eq!((diff.changes.len(), diff.changes[0].path.as_str()), (1, "other"));
    let first: Diff = ana.get(&format!("/v1/tree-diff/tenants/acme?to={}", made[0])).await.ok().json();
    assert_eq!((first.from, first.changes[0].change), (None, DiffChange::Added));
}

#[tokio::test]
async fn the_executable_bit_is_set_kept_and_cleared() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let path = "/v1/tree/tenants/acme/tool";
    let kind = || async { ana.get(path).await.ok().header("bailey-kind").to_owned() };
    ana.put(&format!("{path}?executable=true"), "#!/bin/sh\n").await.ok();
    assert_eq!(kind().await, "executable");
    ana.put(path, "#!/bin/bash\n").await.ok();
    assert_eq!(kind().await, "executable");
    ana.put(&format!("{path}?executable=false"), "#!/bin/bash\n").await.ok();
    assert_eq!(kind().await, "file");
}

#[tokio::test]
async fn odd_names_make_the_round_trip() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for name in ["new%0aline", "%22quotes%22", "%23hash", "%F0%9F%90%99", &"n".repeat(255), ".git", "a%2520b", "%3Fq"] {
        ana.put(&format!("/v1/tree/tenants/acme/{name}"), name.to_owned()).await.ok();
        assert_eq!(ana.get(&format!("/v1/tree/tenants/acme/{name}")).await.ok().body, name);
    }
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme").await.ok().json();
    let names: Vec<_> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
    for name in ["new\nline", "\"quotes\"", "#hash", "\u{1f419}", ".git", "a%20b", "?q"] {
        assert!(names.contains(&name), "{name:?} in {names:?}");
    }
}

#[tokio::test]
async fn stock_git_sees_the_branch() {
    let world = World::new().await;
    let version = world.client("acme", "ana").put("/v1/tree/tenants/acme/x", "1").await.ok().json::<WriteAnswer>();
    let git = world.folder.path().join("trees/acme/tenant.git");
    let output = std::process::Command::new("git").arg("--git-dir").arg(git).args(["rev-parse", "main"]).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap().trim(), version.version.as_str());
}

/// Whoever sends slowly holds a thread: a tenant has so many turns, and no other tenant waits for them.
#[tokio::test]
async fn t10_slow_uploads_of_one_tenant_take_no_more_than_its_turns() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    let mut slow = Vec::new();
    for number in 0..32 {
        let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
        let token = ana.token.as_deref().unwrap();
        let head = format!(
            "PUT /v1/tree/tenants/acme/{number} HTTP/1.1\r\nhost: bailey\r\nauthorization: Bearer {token}\r\n\
             expect: 100-continue\r\ncontent-length: 2\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The body is asked for by who has the turn.
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        stream.write_all(b"x").await.unwrap();
        slow.push(stream);
    }
    let (refused, other) =
        tokio::join!(ana.put("/v1/tree/tenants/acme/one-more", "x"), eve.put("/v1/tree/tenants/globex/f", "x"));
    other.ok();
    assert_eq!(refused.error(429).error, "too_many_uploads");
    // A client that is gone gives its turn back.
    drop(slow);
    ana.put("/v1/tree/tenants/acme/one-more", "x").await.ok();
}
