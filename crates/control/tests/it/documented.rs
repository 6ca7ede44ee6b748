//! The server answers what its document says. Every answer of every test here is compared with it; and each operation is
//! asked in every wrong way, so that what is compared is more than what goes well.

mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use bailey_control::http::openapi;
use futures_util::future::join_all;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::guards::{Callers, Case, Made, cases, content_type};
use crate::node::quick;
use crate::world::World;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(openapi::text()).unwrap());

/// Which statuses each operation was seen to answer, in this process.
static SEEN: Mutex<BTreeMap<String, BTreeSet<u16>>> = Mutex::new(BTreeMap::new());

/// The operation that a request reaches.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let method = if method == "HEAD" { "GET" } else { method };
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let fits = |shown: &str| {
        let (mut wanted, mut given) = (shown.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                // The one name that stands for the rest.
                (Some("{path}"), Some(_)) => return path.len() > shown.len() - "{path}".len(),
                (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() || wanted == given => {}
                (None, None) => return true,
                _ => return false,
            }
        }
    };
    // What is written out is before what has a name in it.
    let found = paths.iter().filter(|(shown, _)| fits(shown)).min_by_key(|(shown, _)| shown.matches('{').count());
    found?.1.get(method.to_ascii_lowercase())
}

/// What is wrong about the head of an answer; its media type where it may have a body.
fn head(operation: &Value, status: StatusCode, headers: &HeaderMap) -> Result<Option<(String, Value)>, String> {
    let response = &operation["responses"][status.as_str()];
    if response.is_null() {
        return Err(format!("{status} is not in the document"));
    }
    let Some(content) = response["content"].as_object() else { return Ok(None) };
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match content.get(kind) {
        Some(media) => Ok(Some((kind.to_owned(), media["schema"].clone()))),
        None => Err(format!("{status} is not `{kind}` in the document")),
    }
}

fn body(kind: &str, schema: &Value, body: &[u8]) -> Result<(), String> {
    if schema.is_null() {
        return Ok(());
    }
    let one = |text: &[u8]| {
        let value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
        schema::fits(&DOCUMENT, schema, &value)
    };
    match kind {
        "application/json" => one(body),
        "application/x-ndjson" => body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).try_for_each(one),
        // The last may be one of another name, that says why there are no more.
        "text/event-stream" if !body.windows(14).any(|part| part == b"event: cut_off") => {
            let lines = body.split(|byte| *byte == b'\n');
            lines.filter_map(|line| line.strip_prefix(b"data: ")).try_for_each(one)
        }
        _ => Ok(()),
    }
}

/// Fails when an answer is not in the document. `sent` is `None` for an answer whose body is still to come.
pub fn check(method: &Method, path: &str, status: StatusCode, headers: &HeaderMap, sent: Option<&[u8]>) {
    let Some(operation) = operation(method.as_str(), path) else {
        let fine = [401, 403, 404, 405].contains(&status.as_u16());
        assert!(fine, "{method} {path} is in no document, and answered {status}");
        return;
    };
    let outcome = head(operation, status, headers).and_then(|media| match (media, sent) {
        (_, None) => Ok(()),
        (_, Some(sent)) if *method == Method::HEAD && sent.is_empty() => Ok(()),
        (None, Some([])) => Ok(()),
        (None, Some(_)) => Err("its body is not in the document".to_owned()),
        (Some((kind, schema)), Some(sent)) => body(&kind, &schema, sent),
    });
    let shown = || String::from_utf8_lossy(sent.unwrap_or_default()).into_owned();
    let id = operation["operationId"].as_str().unwrap();
    assert!(outcome.is_ok(), "`{id}`: {method} {path}: {status}: {} {}", outcome.unwrap_err(), shown());
    SEEN.lock().unwrap().entry(id.to_owned()).or_default().insert(status.as_u16());
}

/// A body with something more than is taken.
fn with_more(body: &Value) -> String {
    let mut body = body.clone();
    match &mut body {
        Value::Object(fields) => drop(fields.insert("nonsense".to_owned(), json!(1))),
        Value::String(text) => return format!("{text}&nonsense=1"),
        _ => {}
    }
    body.to_string()
}

/// Sends a head and nothing more; the status of the answer.
async fn begun(client: &Client, case: &Case, length: u64) -> u16 {
    let token = client.token.clone().unwrap();
    let (method, path, kind) = (&case.method, &case.path, content_type(case.id, &case.path));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: {kind}\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut seen = vec![0; 12];
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut seen)).await;
    read.unwrap_or_else(|_| panic!("`{}` waits for ever", case.id)).unwrap();
    let status: u16 = String::from_utf8_lossy(&seen).split(' ').next_back().unwrap().parse().unwrap();
    let responses = &operation(case.method.as_str(), &case.path).unwrap()["responses"];
    assert!(!responses[status.to_string()].is_null(), "`{}`: {status} is not in the document", case.id);
    SEEN.lock().unwrap().entry(case.id.to_owned()).or_default().insert(status);
    status
}

/// Everything that may be wrong with a request of any operation.
async fn ask_wrongly(callers: &Callers, case: &Case) {
    let client = callers.of(case);
    let kind = content_type(case.id, &case.path);
    let ask = |path: &str| client.ask(case.method.clone(), path);
    let separator = if case.path.contains('?') { '&' } else { '?' };
    ask(&format!("{}{separator}nonsense=1", case.path)).header("content-type", &kind).answer().await.error(400);
    Client { token: None, ..client.clone() }.ask(case.method.clone(), &case.path).answer().await.error(401);
    callers.other(case).ask(case.method.clone(), &case.path).answer().await.error(403);
    ask(&case.path).header("if-match", "\"0\"").header("range", "bytes=900-").answer().await;
    if let Some(body) = &case.body {
        for body in [String::new(), "[]".to_owned(), "{".to_owned(), with_more(body)] {
            ask(&case.path).header("content-type", &kind).body(body).answer().await;
        }
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        ask(&case.path).header("content-type", "text/plain").body(text.clone()).answer().await;
        ask(&case.path).header("content-type", &kind).header("if-match", "\"0\"").body(text).answer().await;
        begun(client, case, 1 << 40).await;
        begun(client, case, 10).await;
    }
    let nothing = case.path.replace("acme/x", "acme/nothing").replace("_0", "_1");
    ask(&nothing).answer().await;
}

#[tokio::test]
async fn every_operation_answers_what_is_documented_however_it_is_asked() {
    let world = World::with(|config| config.http.body_timeout = Duration::from_millis(500)).await;
    world.node.follow(quick);
    let boss = world.admin("acme", "boss");
    let made = Made::by(&boss).await;
    boss.put("/v1/tree/tenants/acme/x", "1\n").await.ok();
    let callers = Callers::from(&world);
    let all = cases(&made);
    for chunk in all.chunks(8) {
        join_all(chunk.iter().map(|case| ask_wrongly(&callers, case))).await;
    }
    for case in &all {
        callers.ask(case).await;
    }
    // What comes of every declaration of that kind was seen.
    let seen = SEEN.lock().unwrap().clone();
    for case in &all {
        let responses = &operation(case.method.as_str(), &case.path).unwrap()["responses"];
        let kind = content_type(case.id, &case.path);
        for status in [400, 401, 403, 408, 413, 415] {
            // What is no JSON may be of any size, until it is.
            let asked = match status {
                413 => {
                    case.body.is_some() && ["application/json", "application/x-www-form-urlencoded"].contains(&&*kind)
                }
                408 | 415 => case.body.is_some(),
                _ => true,
            };
            let (documented, was) = (responses[status.to_string()].is_object(), seen[case.id].contains(&status));
            assert!(!asked || was == documented, "`{}`: {status}: in the document {documented}, seen {was}", case.id);
        }
    }
}

#[tokio::test]
async fn what_was_purged_is_answered_as_documented_and_names_the_receipt() {
    let world = World::new().await;
    let boss = world.admin("acme", "boss");
    let old: Value = boss.put("/v1/tree/tenants/acme/x", "1").await.ok().json();
    let old = old["version"].as_str().unwrap();
    let purge: Value = boss.post("/v1/purges", json!({"path": "/tenants/acme/x"})).await.ok().json();
    let purge = purge["id"].as_str().unwrap();
    let mut answers = Vec::new();
    for path in ["tree", "tree-history", "tree-blame"] {
        answers.push(boss.get(&format!("/v1/{path}/tenants/acme/x?ref={old}")).await);
    }
    answers.push(boss.get(&format!("/v1/tree-diff/tenants/acme?from={old}")).await);
    for (path, body) in [
        ("tree-restore", json!({"path": "/tenants/acme/x", "from_version": old})),
        ("tree-revert", json!({"path": "/tenants/acme", "version": old})),
        ("tree-copy", json!({"from": "/tenants/acme/x", "from_ref": old, "to": "/tenants/acme/y"})),
        ("forks", json!({"path": "/tenants/acme", "branch": "b", "from": old})),
    ] {
        answers.push(boss.post(&format!("/v1/{path}"), body).await);
    }
    for answer in answers {
        assert_eq!(answer.error(410).purge.unwrap().as_str(), purge, "{answer:?}");
    }
}

/// `docs/identity.md`: the example, as it is written.
#[tokio::test(flavor = "multi_thread")]
async fn the_exchange_works_as_written() {
    let world = World::new().await;
    world.client("acme", "ana").put("/v1/tree/tenants/acme/docs/a", "1").await.ok();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/identity.md")).unwrap();
    let example = text.split("```sh\n").find(|block| block.starts_with("curl")).unwrap().split("```").next().unwrap();
    let example = example.replace("https://bailey.example", &format!("http://{}", world.address));
    let service = world.service("billing", &["acme"]).token.unwrap();
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-euc", &example]).env("SERVICE_TOKEN", service).env("no_proxy", "*").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let token = world.holder(answer["access_token"].as_str().unwrap());
    token.get("/v1/tree/tenants/acme/docs/a").await.ok();
    assert_eq!(token.put("/v1/tree/tenants/acme/docs/a", "2").await.error(403).policies, ["credential-scope"]);
    // What the answer is said to hold, it holds.
    let shown = example.lines().find_map(|line| line.strip_prefix("# ")).unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&shown), names(&answer));
    for name in ["issued_token_type", "token_type", "expires_in"] {
        assert_eq!(shown[name], answer[name], "{name}");
    }
}

/// Hints send nobody to an operation that is not there.
#[test]
fn every_operation_that_is_named_anywhere_exists() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices(" /v1/") {
                let method = text[..at].rsplit(|letter: char| !letter.is_ascii_uppercase()).next().unwrap();
                if !["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method) {
                    continue;
                }
                let end = |letter: char| letter.is_whitespace() || "`\".,:;)?".contains(letter);
                let named = text[at + 1..].split(end).next().unwrap();
                let known = operation(method, named).or_else(|| operation(method, &format!("{named}/x")));
                assert!(
                    known.is_some() || named.contains("nothing") || named.contains("/a/b"),
                    "{}: {method} {named}",
                    path.display()
                );
                found += 1;
            }
        }
    }
    assert!(found > 50, "{found}");
}

#[test]
fn an_answer_that_is_not_in_the_document_is_found() {
    let json: HeaderMap = [(http::header::CONTENT_TYPE, "application/json".parse().unwrap())].into_iter().collect();
    let run = operation("GET", "/v1/runs").unwrap();
    let (kind, schema) = head(run, StatusCode::OK, &json).unwrap().unwrap();
    body(&kind, &schema, br#"{"runs":[]}"#).unwrap();
    for wrong in [r#"{"runs":[],"more":1}"#, r#"{"runs":{}}"#, "{}", "[]", "", r#"{"runs":[{}]}"#] {
        assert!(body(&kind, &schema, wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert!(head(run, StatusCode::IM_A_TEAPOT, &json).is_err());
    assert!(head(run, StatusCode::OK, &HeaderMap::new()).is_err());
    assert!(operation("GET", "/v1/nothing").is_none() && operation("PATCH", "/v1/runs").is_none());
    for (path, id) in [("/v1/tree/tenants/acme/a/b?x=1", "tree_read"), ("/v1/runs/run_1/events", "run_events")] {
        assert_eq!(operation("GET", path).unwrap()["operationId"], id);
    }
}
