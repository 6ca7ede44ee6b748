//! What clients do, and what the model makes of the answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bailey_protocol::api::{RunEvent, RunEventKind};
use http::Method;
use serde_json::{Value, json};

use crate::fate::{Dice, Fate};
use crate::life::{Answer, Asking, Life, Who};
use crate::model::{Asked, Content, Decided, Model};
use crate::wall::WRITE;

/// The tenant's files that everybody of it reads and writes.
pub const FILES: [&str; 5] =
    ["/tenants/acme/a", "/tenants/acme/d/b", "/tenants/acme/w/x", "/tenants/acme/w/y", "/tenants/acme/users/ana/n"];
/// Written once, and copied from.
const FIXED: &str = "/tenants/acme/fixed";
/// Read by all but `bo` while the policy is in force.
const SECRET: &str = "/tenants/acme/secret";
/// The cell that says whether it is.
const CLOSED: &str = "#closed";
const POLICY: &str = r#"@reason("closed") forbid (principal == User::"acme/bo", action == Action::"tree_read", resource)
    when { resource.path == "/tenants/acme/secret" };"#;

/// A run that was asked for, of which nobody knows how it ended.
#[derive(Debug, Clone)]
pub struct Unsure {
    key: String,
    body: Value,
    asked: Asked,
    content: String,
    who: usize,
}

/// What all clients of a seed share.
pub struct Story {
    pub fate: Arc<Fate>,
    pub people: [Who; 4],
    pub operator: Who,
    model: Mutex<Model>,
    unsure: Mutex<Vec<Unsure>>,
    names: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Story {
    pub fn new(fate: Arc<Fate>) -> Self {
        let people = [
            Who::user(&fate, "acme", "ana", &["member"]),
            Who::user(&fate, "acme", "bo", &["member"]),
            Who::user(&fate, "acme", "root", &["admin", "member"]),
            Who::user(&fate, "globex", "eve", &["admin", "member"]),
        ];
        let operator = Who::operator(&fate);
        Self { fate, people, operator, model: Mutex::default(), unsure: Mutex::default(), names: Mutex::default() }
    }

    pub fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.model)
    }

    pub fn take_unsure(&self) -> Vec<Unsure> {
        std::mem::take(&mut lock(&self.unsure))
    }

    fn name(&self, kind: &str) -> String {
        let mut names = lock(&self.names);
        *names += 1;
        format!("{kind}{}", *names)
    }
}

/// A client: who asks, by what chance.
pub struct Client {
    pub story: Arc<Story>,
    pub life: Arc<Life>,
    pub who: usize,
    pub dice: Dice,
}

impl Client {
    fn who(&self) -> &Who {
        &self.story.people[self.who]
    }

    /// Does so many things.
    pub async fn act(mut self, times: u64) {
        for _ in 0..times {
            let pause = Duration::from_millis(self.dice.below(30));
            tokio::time::sleep(pause).await;
            match (self.who().name, self.dice.below(100)) {
                ("eve", _) => self.foreign().await,
                ("root", 0..20) => self.close(true).await,
                ("root", 20..35) => self.close(false).await,
                ("root", 35..50) => {
                    // What is garbage in one cycle goes in the next.
                    for _ in 0..=self.dice.below(3) {
                        self.collect_garbage().await;
                    }
                }
                ("bo", 0..20) => self.secret().await,
                (_, 0..35) => self.put(false).await,
                (_, 35..42) => self.put(true).await,
                (_, 42..50) => self.delete().await,
                (_, 50..55) => self.copy().await,
                (_, 55..72) => self.run().await,
                (_, 72..82) => self.merge().await,
                (_, _) => {
                    let file = self.file();
                    self.read(file).await;
                }
            }
        }
    }

    fn file(&mut self) -> &'static str {
        let own = FILES.len() - usize::from(self.who().name != "ana");
        self.dice.pick::<&'static str>(&FILES[..own])
    }

    pub fn content(&mut self) -> String {
        let name = self.story.name("content-");
        if self.dice.one_in(8) { format!("{name} {}", "x".repeat(3000)) } else { name }
    }

    /// Asks, and may hang up before the answer. A dead process answers nobody.
    async fn send(&mut self, asking: Asking<'_>) -> Option<Answer> {
        let hangs_up = self.dice.one_in(8) && !self.story.fate.is_calm();
        let patience = Duration::from_millis(self.dice.below(15));
        let what = format!("{} {} {}", asking.who.name, asking.method, asking.path);
        let fate = Arc::clone(&self.story.fate);
        fate.note(|| format!("{what} asks"));
        let before = fate.failed();
        let asked = self.life.ask(asking);
        let answer = if hangs_up { tokio::time::timeout(patience, asked).await.ok() } else { Some(asked.await) };
        if fate.is_dead() {
            return std::future::pending().await;
        }
        let Some(answer) = answer else {
            fate.note(|| format!("{what} hangs up"));
            return None;
        };
        let (status, text) = (answer.status.as_u16(), answer.text());
        fate.note(|| format!("{what} gets {status} {}", shortened(&text)));
        let mut model = self.story.model();
        if status >= 500 && !is_full(&answer) && fate.failed() == 0 {
            model.fault(format!("{what} gets {status} {text} without a fault"));
        }
        let Some(request) = answer.header("x-request-id").map(str::to_owned) else {
            model.fault(format!("{what}: an answer without the id of its request"));
            return Some(answer);
        };
        // A denial that cannot be put on the audit stays one.
        if answer.status.is_success() || (status == 403 && fate.failed() == before) {
            model.decided.push(Decided { request, what, allowed: status != 403 });
        }
        Some(answer)
    }

    pub async fn ask(&mut self, method: Method, path: &str, body: impl Into<Vec<u8>>) -> Option<Answer> {
        let who = self.who().clone();
        self.send(Asking { who: &who, method, path, headers: &[], body: body.into() }).await
    }

    async fn post(&mut self, path: &str, body: &Value) -> Option<Answer> {
        self.ask(Method::POST, path, body.to_string()).await
    }

    /// What became of a write.
    fn settle(&self, asked: &Asked, answer: Option<&Answer>) -> bool {
        let mut model = self.story.model();
        match answer.map(|answer| answer.status.as_u16()) {
            Some(200..300) => model.done(asked),
            Some(400..500) => model.refused(asked),
            Some(_) if answer.is_some_and(is_full) => model.refused(asked),
            // Nobody knows.
            Some(_) | None => return false,
        }
        answer.is_some_and(|answer| answer.status.is_success())
    }

    /// Writes a file; with `new` only if there is none.
    async fn put(&mut self, new: bool) {
        let (path, content) = (self.file(), self.content());
        let (url, who) = (format!("/v1/tree{path}"), self.who().clone());
        let headers: &[(&str, String)] = if new { &[("if-none-match", "*".to_owned())] } else { &[] };
        let begun = self.story.model().now();
        let asked = self.story.model().ask(path, Some(content.clone()));
        let body = content.clone().into_bytes();
        let answer = self.send(Asking { who: &who, method: Method::PUT, path: &url, headers, body }).await;
        if new && answer.as_ref().is_some_and(|answer| answer.status.is_success()) {
            // What it has written itself is no reason for there to be something.
            self.story.model().refused(&asked);
            self.story.model().read(path, begun, &None, "whoever may only make a file");
            let asked = self.story.model().ask_at(path, Some(content.clone()), &asked);
            self.settle(&asked, answer.as_ref());
        } else {
            self.settle(&asked, answer.as_ref());
        }
        if let Some(version) = answer.and_then(|answer| Some(answer.json()["version"].as_str()?.to_owned())) {
            self.story.model().versions.push((path.to_owned(), version, content));
        }
    }

    async fn delete(&mut self) {
        let path = self.file();
        let begun = self.story.model().now();
        let asked = self.story.model().ask(path, None);
        let answer = self.ask(Method::DELETE, &format!("/v1/tree{path}"), "").await;
        self.settle(&asked, answer.as_ref());
        if answer.is_some_and(|answer| answer.status == 404) {
            self.story.model().read(path, begun, &None, "whoever deletes");
        }
    }

    /// Reads a file, and says what it holds.
    pub async fn read(&mut self, path: &str) {
        let begun = self.story.model().now();
        let Some(answer) = self.ask(Method::GET, &format!("/v1/tree{path}"), "").await else { return };
        let content: Content = match (answer.status.as_u16(), answer.body.is_some()) {
            (200, true) => Some(answer.text()),
            (404, _) => None,
            (200 | 429 | 500.., _) => return,
            (other, _) => {
                self.story.model().fault(format!("reading {path} gives {other} {}", answer.text()));
                return;
            }
        };
        self.story.model().read(path, begun, &content, self.who().name);
    }

    async fn copy(&mut self) {
        let begun = self.story.model().ask(FIXED, Some("fixed".to_owned()));
        let made = self.ask(Method::PUT, &format!("/v1/tree{FIXED}"), "fixed").await;
        if !self.settle(&begun, made.as_ref()) {
            return;
        }
        let to = self.file();
        let asked = self.story.model().ask(to, Some("fixed".to_owned()));
        let answer = self.post("/v1/tree-copy", &json!({"from": FIXED, "to": to})).await;
        self.settle(&asked, answer.as_ref());
    }

    /// Changes a file on a branch of its own, and brings that into `main`.
    async fn merge(&mut self) {
        let branch = self.story.name("b");
        let (path, content) = (self.file(), self.content());
        let root = if path.contains("/users/") { "/tenants/acme/users/ana" } else { "/tenants/acme" };
        let ok = |answer: &Option<Answer>| answer.as_ref().is_some_and(|answer| answer.status.is_success());
        let forked = self.post("/v1/forks", &json!({"path": root, "branch": branch})).await;
        if !ok(&forked) {
            return;
        }
        let put = self.ask(Method::PUT, &format!("/v1/tree{path}?ref={branch}"), content.clone()).await;
        if !ok(&put) {
            return;
        }
        let asked = self.story.model().ask(path, Some(content));
        let answer = self.post("/v1/promotions", &json!({"path": root, "from": branch, "into": "main"})).await;
        self.settle(&asked, answer.as_ref());
    }

    async fn run(&mut self) {
        let (key, name) = (self.story.name("key"), *self.dice.pick(&["x", "y"]));
        let content = self.content();
        let asked = self.story.model().ask(&format!("/tenants/acme/w/{name}"), Some(content.clone()));
        let body = json!({
            "command": ["sim", format!("{WRITE}{name}={content}")],
            "mounts": [{"path": "/tenants/acme/w", "at": "/data"}],
        });
        let unsure = Unsure { key, body, asked, content, who: self.who };
        match self.started(&unsure).await {
            Some(Some(true)) => self.story.model().done(&unsure.asked),
            Some(Some(false)) => self.story.model().refused(&unsure.asked),
            Some(None) | None => lock(&self.story.unsure).push(unsure),
        }
    }

    /// Whether a run put its file on `main`; nothing where nobody knows.
    async fn started(&mut self, run: &Unsure) -> Option<Option<bool>> {
        let (who, headers) = (self.who().clone(), [("idempotency-key", run.key.clone())]);
        let (method, body) = (Method::POST, run.body.to_string().into_bytes());
        let asking = Asking { who: &who, method, path: "/v1/runs", headers: &headers, body };
        let answer = self.send(asking).await?;
        if let Some(id) = answer.header("bailey-run") {
            let mut model = self.story.model();
            let same = model.runs.entry(run.key.clone()).or_default();
            same.insert(id.to_owned());
            if same.len() > 1 {
                let fault = format!("one key has made several runs: {same:?}");
                model.fault(fault);
            }
        }
        Some(match answer.status.as_u16() {
            200 => landed(&answer),
            400..500 => Some(false),
            _ => None,
        })
    }

    /// Asks again for a run of an earlier life: it has its old end, or is made now.
    pub async fn again(&mut self, unsure: Unsure) {
        self.who = unsure.who;
        let begun_ms = self.story.fate.now_ms();
        let cell = format!("/tenants/acme/w/{}", if unsure.body.to_string().contains("write=x=") { "x" } else { "y" });
        let asked = self.story.model().ask(&cell, Some(unsure.content.clone()));
        let landed = self.started(&unsure).await.flatten();
        let id = self.story.model().runs.get(&unsure.key).and_then(|runs| runs.first().cloned());
        let Some(id) = id else {
            if landed == Some(false) {
                self.story.model().refused(&asked);
            }
            return;
        };
        let shown = self.ask(Method::GET, &format!("/v1/runs/{id}"), "").await;
        let created = shown.and_then(|answer| answer.json()["created_ms"].as_u64());
        let mut model = self.story.model();
        match (created, landed) {
            (Some(created), Some(landed)) => {
                let (old, other) = if created < begun_ms { (unsure.asked, asked) } else { (asked, unsure.asked) };
                model.refused(&other);
                if landed { model.done(&old) } else { model.refused(&old) }
            }
            _ => model.fault(format!("a run of an earlier life cannot be asked for again: {id}")),
        }
    }

    async fn close(&mut self, closed: bool) {
        let url = "/v1/policies/closed";
        let begun = self.story.model().now();
        let asked = self.story.model().ask(CLOSED, closed.then(|| "closed".to_owned()));
        let (method, body) = if closed {
            (Method::PUT, json!({ "policy": POLICY }).to_string())
        } else {
            (Method::DELETE, String::new())
        };
        let answer = self.ask(method, url, body).await;
        self.settle(&asked, answer.as_ref());
        if answer.is_some_and(|answer| answer.status == 404) {
            self.story.model().read(CLOSED, begun, &None, "whoever deletes a policy");
        }
    }

    /// Reads what a policy may deny.
    pub async fn secret(&mut self) {
        let begun = self.story.model().now();
        let Some(answer) = self.ask(Method::GET, &format!("/v1/tree{SECRET}"), "").await else { return };
        let closed = match answer.status.as_u16() {
            403 => Some("closed".to_owned()),
            200 | 404 => None,
            _ => return,
        };
        self.story.model().read(CLOSED, begun, &closed, "bo");
    }

    /// Asks for what is another tenant's, which nobody gets.
    async fn foreign(&mut self) {
        let path = *self.dice.pick(&FILES);
        let (method, body) = if self.dice.one_in(2) { (Method::GET, "") } else { (Method::PUT, "eve's") };
        if let Some(answer) = self.ask(method, &format!("/v1/tree{path}"), body).await
            && !matches!(answer.status.as_u16(), 403 | 500..)
        {
            self.story.model().fault(format!("another tenant's {path} is answered {answer:?}"));
        }
    }

    pub async fn collect_garbage(&mut self) {
        let who = self.story.operator.clone();
        let (method, path) = (Method::POST, "/v1/operator/tenants/acme/gc");
        drop(self.send(Asking { who: &who, method, path, headers: &[], body: Vec::new() }).await);
    }
}

/// Whether the tenant has used up its quota, which is an answer of its own.
fn is_full(answer: &Answer) -> bool {
    answer.json()["error"] == "quota_exceeded"
}

/// Whether the events of a run end with its file on `main`; `None` where they break off.
fn landed(answer: &Answer) -> Option<bool> {
    let text = answer.text();
    let last: RunEvent = serde_json::from_str(text.lines().last()?).ok()?;
    match last.kind {
        _ if answer.body.is_none() => None,
        RunEventKind::Ended(result) => Some(result.versions.iter().any(|version| version.branch.as_str() == "main")),
        RunEventKind::Failed { .. } => Some(false),
        RunEventKind::Started { .. } | RunEventKind::Stdout(_) | RunEventKind::Stderr(_) => None,
    }
}

/// What the trace shows of a text: its first words, and which it is.
fn shortened(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let begin: String = text.chars().take(60).filter(|letter| *letter != '\n').collect();
    format!("{begin:?} {hash:x}")
}
