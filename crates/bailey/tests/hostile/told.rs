//! A ledger outside of the server: what it acknowledged, what nobody was answered about, and whether that is what is there.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use bailey_protocol::api::{CommitOutcome, RunEvent, RunEventKind};
use bailey_protocol::node::Ending;

use crate::host::{self, Process};
use crate::http::{self, Request};
use crate::run::Order;
use crate::server::{Server, User, binary};

/// What may be at a path: what was acknowledged last, or what nobody was answered about since. 0 is nothing.
#[derive(Debug, Default)]
pub(crate) struct Told {
    acknowledged: u64,
    in_doubt: BTreeSet<u64>,
}

/// How a change ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Refused,
    Unknown,
}

impl Told {
    pub(crate) fn tried(&mut self, value: u64, answer: &Answer) {
        match answer {
            Answer::Done => *self = Self { acknowledged: value, in_doubt: BTreeSet::new() },
            Answer::Refused => {}
            Answer::Unknown => {
                self.in_doubt.insert(value);
            }
        }
    }

    /// Reads the path; whether there was an answer.
    pub(crate) fn look(&mut self, server: &Server, user: &User, path: &str) -> bool {
        match send(server, user, "GET", path, b"") {
            Some((200, content)) => self.saw(path, value(&content)),
            Some((404, _)) => self.saw(path, 0),
            Some((status, _)) if status < 500 && status != 429 => panic!("{path} answers {status}"),
            Some(_) | None => return false,
        }
        true
    }

    fn saw(&mut self, path: &str, value: u64) {
        assert!(value == self.acknowledged || self.in_doubt.contains(&value), "{path} holds {value}, told: {self:?}");
        *self = Self { acknowledged: value, in_doubt: BTreeSet::new() };
    }
}

fn lines(value: u64) -> u64 {
    1 + value * 7919 % 2000
}

pub(crate) fn content(value: u64) -> Vec<u8> {
    format!("{value:020}\n").repeat(usize::try_from(lines(value)).unwrap()).into_bytes()
}

/// The value whose content this is, every byte of it.
fn value(content: &[u8]) -> u64 {
    let text = std::str::from_utf8(content).expect("the content is text");
    let value = text.lines().next().expect("a line").parse().expect("a number");
    assert!(self::content(value) == content, "torn: {} bytes that start with {value}", content.len());
    value
}

/// A program that writes a value's content below `/data`, whole or not at all: also where one of its processes is killed.
pub(crate) fn program(name: &str, value: u64) -> String {
    let lines = lines(value);
    format!(
        "yes {value:020} | head -n {lines} > /data/.{name}; \
         [ $(wc -l < /data/.{name}) = {lines} ] && mv /data/.{name} /data/{name}"
    )
}

fn send(server: &Server, user: &User, method: &str, below: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let bearer = format!("Bearer {}", user.token);
    let headers =
        [("Authorization", bearer.as_str()), ("Connection", "close"), ("Content-Type", "application/octet-stream")];
    let target = format!("/v1/tree{}", user.path(below));
    let reply = http::send(server.address, Request { method, target: &target, headers: &headers, body }).ok()?;
    Some((reply.status, reply.body))
}

/// Changes a path by a request.
pub(crate) fn change(server: &Server, user: &User, method: &str, below: &str, body: &[u8]) -> Answer {
    match send(server, user, method, below, body) {
        Some((200..300, _)) => Answer::Done,
        Some((400..500, _)) => Answer::Refused,
        Some(_) | None => Answer::Unknown,
    }
}

/// Changes a path by a run with one mount; with its last event, if the stream was whole.
pub(crate) fn run(server: &Server, user: &User, order: &Order) -> (Answer, Option<RunEventKind>) {
    let Ok(mut answer) = server.post_run(user, order) else { return (Answer::Unknown, None) };
    let mut body = Vec::new();
    if answer.status != 200 {
        return (if answer.status < 500 { Answer::Refused } else { Answer::Unknown }, None);
    }
    if answer.body.read_to_end(&mut body).is_err() {
        return (Answer::Unknown, None);
    }
    let last = body.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let last = serde_json::from_slice::<RunEvent>(last).map(|event| event.kind).ok();
    let answer = match &last {
        Some(RunEventKind::Ended(result)) => match &*result.versions {
            [] => Answer::Refused,
            [one] if one.outcome == CommitOutcome::SideBranch => Answer::Refused,
            [_one] if result.ending == (Ending::Exited { code: 0 }) => Answer::Done,
            _ => Answer::Unknown,
        },
        Some(_) | None => Answer::Unknown,
    };
    (answer, last)
}

/// A process that a number cannot be mistaken for later: with the time of its start.
pub(crate) type Known = (Process, String);

pub(crate) fn known(process: Process) -> Option<Known> {
    let stat = std::fs::read_to_string(process.path("stat")).ok()?;
    let started = stat.rsplit(')').next()?.split_whitespace().nth(19)?.to_owned();
    process.alive().then_some((process, started))
}

pub(crate) fn in_groups(ledger: &str) -> Vec<Known> {
    let inside =
        |process: &Process| std::fs::read_to_string(process.path("cgroup")).is_ok_and(|groups| groups.contains(ledger));
    host::processes().into_iter().filter(inside).filter_map(known).collect()
}

/// That the audit and the tenant's store are sound, by programs that are not the server.
pub(crate) fn verify(data: &Path, tenant: &str) {
    let verified = std::process::Command::new(binary())
        .args(["audit", "verify", "--data"])
        .arg(data)
        .output()
        .expect("start `bailey audit verify`");
    assert!(verified.status.success(), "the audit: {}", String::from_utf8_lossy(&verified.stderr));
    let checked = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(data.join(format!("serve/trees/{tenant}/tenant.git")))
        .args(["fsck", "--full", "--strict", "--no-dangling"])
        .output()
        .expect("start git");
    assert!(checked.status.success(), "git fsck: {}", String::from_utf8_lossy(&checked.stderr));
}
