//! D03, D05: every call on the disk fails once, at each of its turns; and the power goes. What was acknowledged is
//! there, what was not is as it was or as it was to be, and the server goes on without a restart.
//!
//! `BAILEY_LONG=1` has each fault at each call; without it they are at every 41st.

use std::collections::BTreeMap;
use std::path::Path;

use bailey_protocol::api::{RunEvent, RunEventKind, RunResult};
use bailey_protocol::node::Ending;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use crate::client::Client;
use crate::disk::{Disk, Disks, Fault};
use crate::node::writes;
use crate::world::World;

/// What may be at a path: nothing, or a content.
type Maybe = Option<&'static str>;

/// What was acknowledged, and what else may be there since.
#[derive(Debug, Default)]
struct Ledger(BTreeMap<&'static str, Vec<Maybe>>);

impl Ledger {
    fn told(&mut self, path: &'static str, content: Maybe, acknowledged: bool) {
        let may = self.0.entry(path).or_insert_with(|| vec![None]);
        if acknowledged {
            may.clear();
        }
        may.push(content);
    }

    /// Looks at every path.
    async fn check(&self, ana: &Client, when: &str) {
        for (path, may) in &self.0 {
            let answer = ana.get(&format!("/v1/tree{path}")).await;
            let there = match answer.status.as_u16() {
                404 => None,
                200 => Some(String::from_utf8(answer.body.to_vec()).unwrap()),
                _ => panic!("{when}: {path} answers {answer:?}"),
            };
            assert!(may.contains(&there.as_deref()), "{when}: {path} is {there:?}, told {may:?}");
        }
    }
}

/// Whether an answer acknowledges. Everything else has to be the error that the fault is for callers.
fn acknowledged(fault: Fault, what: &str, status: u16) -> bool {
    match (status, fault) {
        (200..300, _) => true,
        (503 | 507, Fault::Full) | (500 | 503, Fault::Broken | Fault::NoDescriptor) => false,
        _ => panic!("{what} answers {status} to {fault:?}"),
    }
}

/// Everything that writes, once.
async fn write_all(world: &World, fault: Fault, ledger: &mut Ledger) {
    let ana = world.client("acme", "ana");
    let puts = [("/tenants/acme/kept", "second"), ("/tenants/acme/new", "new"), ("/tenants/acme/users/ana/own", "own")];
    for (path, content) in puts {
        let answer = ana.put(&format!("/v1/tree{path}"), content).await;
        ledger.told(path, Some(content), acknowledged(fault, path, answer.status.as_u16()));
    }
    let body = json!({"from": "/tenants/acme/fixed", "to": "/tenants/acme/copy"});
    let answer = ana.post("/v1/tree-copy", body).await;
    ledger.told("/tenants/acme/copy", Some("fixed"), acknowledged(fault, "copy", answer.status.as_u16()));
    let answer = ana.delete("/v1/tree/tenants/acme/gone").await;
    ledger.told("/tenants/acme/gone", None, acknowledged(fault, "delete", answer.status.as_u16()));
    world.node.follow(|order| writes(order, "out", "from the run".to_owned()));
    let body = json!({"command": ["true"], "mounts": [{"path": "/tenants/acme/run", "at": "/data"}]});
    // An answer that breaks off acknowledges nothing.
    let answer = ana.ask(Method::POST, "/v1/runs").body(body.to_string()).begin().await;
    let mut done = acknowledged(fault, "run", answer.status().as_u16());
    let (mut body, mut received) = (answer.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            done = false;
            break;
        };
        received.extend(frame.into_data().unwrap_or_default());
    }
    if done {
        let last = received.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
        done = match serde_json::from_slice::<RunEvent>(last).unwrap().kind {
            RunEventKind::Ended(RunResult { ending: Ending::Exited { code: 0 }, versions, .. }) => {
                versions.iter().any(|one| one.branch.as_str() == "main")
            }
            _ => false,
        };
    }
    ledger.told("/tenants/acme/run/out", Some("from the run"), done);
}

/// Before anything fails.
async fn prepared(disks: &Disks) -> (Disk<'_>, Ledger) {
    let disk = disks.empty();
    let world = World::at(disk.path()).await;
    let (ana, mut ledger) = (world.client("acme", "ana"), Ledger::default());
    for (path, content) in
        [("/tenants/acme/kept", "first"), ("/tenants/acme/fixed", "fixed"), ("/tenants/acme/gone", "gone")]
    {
        ana.put(&format!("/v1/tree{path}"), content).await.ok();
        ledger.told(path, Some(content), true);
    }
    world.stop_in_place().await;
    (disk, ledger)
}

/// That no index below `folder` is without its pack.
fn indexes_have_packs(folder: &Path, when: &str) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            indexes_have_packs(&path, when);
        } else if path.extension().is_some_and(|extension| extension == "idx") {
            assert!(path.with_extension("pack").exists(), "{when}: {} is alone", path.display());
        }
    }
}

/// One life with one fault; whether it came to it.
async fn one(prepared: &Disk<'_>, told: &Ledger, fault: Fault, at: u64, lasts: bool) -> bool {
    let name = format!("{fault:?} at {at}, lasting: {lasts}");
    let disk = prepared.copy();
    let mut ledger = Ledger(told.0.clone());
    let world = World::at(disk.path()).await;
    disk.arm(fault, at, lasts);
    write_all(&world, fault, &mut ledger).await;
    let failed = disk.disarm();
    let ana = world.client("acme", "ana");
    ledger.check(&ana, &format!("{name}, same life")).await;
    // It goes on without a restart.
    let answer = ana.put("/v1/tree/tenants/acme/after", "after").await;
    assert_eq!(answer.status, 200, "{name}: {answer:?}");
    ledger.told("/tenants/acme/after", Some("after"), true);
    let lost = disk.without_power(at);
    indexes_have_packs(lost.path(), &name);
    world.abandon().await;
    let world = World::at(lost.path()).await;
    ledger.check(&world.client("acme", "ana"), &format!("{name}, after the power went")).await;
    world.abandon().await;
    failed > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_whichever_call_fails_nothing_acknowledged_is_lost() {
    let disks = Disks::start();
    let (disk, told) = prepared(&disks).await;
    let stride = if std::env::var_os("BAILEY_LONG").is_some() { 1 } else { 41 };
    let mut lives = 0;
    for fault in Fault::ALL {
        for lasts in [false, true] {
            if lasts && fault == Fault::Short {
                continue;
            }
            let mut at = 0;
            while one(&disk, &told, fault, at, lasts).await {
                at += stride;
                lives += 1;
            }
            assert!(at > 0, "{fault:?} hits nothing");
        }
    }
    println!("{lives} lives with a fault");
}
