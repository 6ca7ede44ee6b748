//! Runs of attack programs on a server, and everything that came back from them.

use std::io::{BufRead as _, Read as _};

use bailey_protocol::api::{OutputData, RunEvent, RunEventKind, RunResult};
use bailey_protocol::node::{Ending, LimitHit};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::attack;
use crate::host::{self, Process};
use crate::http::{self, Answer, Request};
use crate::server::{Server, User};

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    body: Value,
}

impl Order {
    pub(crate) fn command(command: &[&str]) -> Self {
        Self { body: json!({ "command": command, "limits": { "timeout_ms": 60_000 } }) }
    }

    /// An attack program of [`attack`].
    pub(crate) fn attack(program: &str, args: &[&str]) -> Self {
        let text = attack::text(program);
        let command: Vec<&str> = ["python3", "-c", &text].into_iter().chain(args.iter().copied()).collect();
        Self::command(&command)
    }

    /// A few lines of Python.
    pub(crate) fn python(code: &str) -> Self {
        Self::command(&["python3", "-c", code])
    }

    pub(crate) fn shell(code: &str) -> Self {
        Self::command(&["bash", "-c", code])
    }

    /// Sets a field of the request's body.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Self {
        self.body[field] = value;
        self
    }

    pub(crate) fn limit(mut self, field: &str, value: u64) -> Self {
        self.body["limits"][field] = json!(value);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.body["env"][name] = json!(value);
        self
    }

    pub(crate) fn root(self) -> Self {
        self.with("root", json!(true))
    }

    /// Mounts a folder of the user's tree at `/data`.
    pub(crate) fn data(self, user: &User, below: &str) -> Self {
        self.with("mounts", json!([{ "path": user.path(below), "at": "/data" }]))
    }
}

/// A run whose events are still coming.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    server: &'a Server,
    user: User,
    answer: Answer,
    outcome: Outcome,
}

/// Everything that came back.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) run: String,
    pub(crate) sandbox: String,
    pub(crate) parked: bool,
    pub(crate) fences: Vec<String>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) result: Option<RunResult>,
    /// For a run that could not be carried out: code and message.
    pub(crate) failed: Option<(String, String)>,
    /// The answer as received.
    pub(crate) received: Vec<u8>,
}

impl Outcome {
    /// The run's result, or a panic that shows what came instead.
    pub(crate) fn result(&self) -> &RunResult {
        self.result.as_ref().unwrap_or_else(|| panic!("no ending: {}", self.summary()))
    }

    pub(crate) fn ending(&self) -> Ending {
        self.result().ending
    }

    pub(crate) fn hit(&self, limit: LimitHit) -> bool {
        self.result().limits_hit.contains(&limit)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Asserts that the program ended by itself with code 0.
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.ending(), Ending::Exited { code: 0 }, "{}", self.summary());
        self
    }

    pub(crate) fn summary(&self) -> String {
        let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]).into_owned();
        let (out, err) = (cut(&self.stdout), cut(&self.stderr));
        format!("{:?} {:?}\nstdout: {out}\nstderr: {err}", self.result, self.failed)
    }

    /// What the attacker could have sent out: raw events and the bytes inside them.
    pub(crate) fn everything(&self) -> Vec<u8> {
        [self.received.as_slice(), b"\0", &self.stdout, b"\0", &self.stderr].concat()
    }
}

impl Server {
    /// Starts a run and hands back its stream.
    pub(crate) fn start_run(&self, user: &User, order: &Order) -> Live<'_> {
        let answer = self.post_run(user, order);
        let mut answer = answer.unwrap_or_else(|error| panic!("start a run: {error}"));
        if answer.status != 200 {
            let mut body = String::new();
            answer.body.read_to_string(&mut body).expect("the refusal's text");
            panic!("the run was refused: {} {body}", answer.status);
        }
        Live { server: self, user: user.clone(), answer, outcome: Outcome::default() }
    }

    /// The bare answer to `POST /v1/runs`.
    pub(crate) fn post_run(&self, user: &User, order: &Order) -> std::io::Result<Answer> {
        let bearer = format!("Bearer {}", user.token);
        let headers =
            [("Authorization", bearer.as_str()), ("Content-Type", "application/json"), ("Connection", "close")];
        let body = order.body.to_string();
        let request = Request { method: "POST", target: "/v1/runs", headers: &headers, body: body.as_bytes() };
        http::open(self.address, request)
    }

    /// A run, to its end.
    pub(crate) fn run(&self, user: &User, order: &Order) -> Outcome {
        self.start_run(user, order).finish()
    }

    /// A run up to the point where the attack says that it holds whatever it got.
    pub(crate) fn hold(&self, user: &User, order: &Order) -> Live<'_> {
        let mut live = self.start_run(user, order);
        live.ready();
        live
    }
}

impl Live<'_> {
    /// Reads one event; `false` after the last.
    pub(crate) fn next(&mut self) -> bool {
        let mut line = Vec::new();
        let got = self.answer.body.read_until(b'\n', &mut line).expect("the stream of events is whole");
        self.outcome.received.extend_from_slice(&line);
        if got == 0 {
            return false;
        }
        let event: RunEvent = serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error} in event {}", String::from_utf8_lossy(&line)));
        match event.kind {
            RunEventKind::Started { run, sandbox, parked, fences, .. } => {
                self.outcome.run = run.to_string();
                self.outcome.sandbox = sandbox.to_string();
                self.outcome.parked = parked;
                self.outcome.fences = fences;
            }
            RunEventKind::Stdout(data) => self.outcome.stdout.extend(bytes(&data)),
            RunEventKind::Stderr(data) => self.outcome.stderr.extend(bytes(&data)),
            RunEventKind::Ended(result) => self.outcome.result = Some(result),
            RunEventKind::Failed { error, message, .. } => self.outcome.failed = Some((error, message)),
        }
        true
    }

    /// Reads on until the attack has printed a line that starts with `ready`.
    pub(crate) fn ready(&mut self) {
        let seen = |out: &[u8]| out.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"ready"));
        while !seen(&self.outcome.stdout) {
            assert!(self.next(), "the run ended early: {}", self.outcome.summary());
        }
    }

    /// What has come so far.
    pub(crate) fn so_far(&self) -> &Outcome {
        &self.outcome
    }

    /// The sandbox's processes as the host sees them, its PID 1 first.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let found = host::cage(&self.outcome.sandbox);
        assert!(found.len() >= 2, "the host sees {found:?} in {}", self.outcome.sandbox);
        found
    }

    /// The sandbox's processes without its PID 1.
    pub(crate) fn code(&self) -> Vec<Process> {
        self.processes().into_iter().filter(|process| !host::is_init(*process)).collect()
    }

    /// The sandbox's PID 1.
    pub(crate) fn init(&self) -> Process {
        *self.processes().first().expect("a process")
    }

    pub(crate) fn cancel(&self) {
        let reply = self.server.request(&self.user, "POST", &format!("/v1/runs/{}/cancel", self.outcome.run), b"");
        assert!(reply.status < 500, "cancel: {}", String::from_utf8_lossy(&reply.raw));
    }

    /// Reads to the end.
    pub(crate) fn finish(mut self) -> Outcome {
        while self.next() {}
        assert!(self.outcome.result.is_some() || self.outcome.failed.is_some(), "a stream without an ending");
        self.outcome
    }

    /// Cancels and reads to the end.
    pub(crate) fn end(self) -> Outcome {
        self.cancel();
        self.finish()
    }
}

fn bytes(data: &OutputData) -> Vec<u8> {
    match (&data.text, &data.base64) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD.decode(text).expect("base64 in an event"),
        other => panic!("output with {other:?}"),
    }
}
