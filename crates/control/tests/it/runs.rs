//! One run after another, over HTTP.

use std::time::Duration;

use bailey_control::node_link::StartRun;
use bailey_protocol::api::{RunAccepted, RunEvent, RunEventKind, RunList, RunStatus, RunSummary};
use bailey_protocol::limits::LargeDisks;
use bailey_protocol::node::{Ending, NodeFaultKind, RunUpdate};
use bailey_protocol::wall::{WallKind, WallReason};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use crate::node::{failed, output, quick, started, stopped, unchanged, until_cancelled};
use crate::world::World;

/// Polls until `holds`, for at most ten seconds.
async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..400 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn a_run_streams_its_events_in_order_and_ends() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let answer = ana.run(json!({"command": ["echo", "hello"], "env": {"A": "1"}, "root": true})).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let events = answer.events();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
    let RunEventKind::Started { run, parked: true, reason, .. } = &events[0].kind else { panic!("{events:?}") };
    assert_eq!(*reason, WallReason::Auto);
    assert_eq!(answer.header("bailey-run"), run.as_str());
    let RunEventKind::Stdout(data) = &events[1].kind else { panic!("{events:?}") };
    assert_eq!(data.text.as_deref(), Some("hello\n"));
    let RunEventKind::Ended(result) = &events[2].kind else { panic!("{events:?}") };
    assert_eq!(result.ending, Ending::Exited { code: 0 });
    assert_eq!(result.usage.wall_ms, 7);
    let spec = world.node.seen.lock().unwrap()[0].clone();
    assert_eq!((spec.tenant.as_str(), spec.command.len(), spec.root), ("acme", 2, true));
    let summary: RunSummary = ana.get(&format!("/v1/runs/{run}")).await.ok().json();
    assert_eq!((summary.status, summary.command.as_str()), (RunStatus::Ended, "echo hello"));
}

#[tokio::test]
async fn a_run_can_be_replayed_from_anywhere_while_it_goes_and_after() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(until_cancelled);
    let accepted = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await;
    assert_eq!(accepted.status, 202);
    let run = accepted.json::<RunAccepted>().run;
    let events = format!("/v1/runs/{run}/events");
    let mut live = ana.ask(Method::GET, &events).begin().await.into_body();
    let first = live.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"{\"seq\":1,"));
    ana.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
    let rest = live.collect().await.unwrap().to_bytes();
    let last: RunEvent = serde_json::from_slice(&rest).unwrap();
    assert!(matches!(last.kind, RunEventKind::Ended(result) if result.ending == Ending::Cancelled));
    for (after, count) in [(0, 2), (1, 1), (2, 0), (99, 0)] {
        let answer = ana.get(&format!("{events}?after={after}")).await;
        assert_eq!(answer.events().len(), count, "after {after}");
    }
    // A second cancel of a run that is over changes nothing.
    ana.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
}

#[tokio::test]
async fn server_sent_events_are_the_same_events_with_a_sign_of_life() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let plain = ana.run(json!({"command": ["true"]})).await;
    let path = format!("/v1/runs/{}/events", plain.header("bailey-run"));
    let sse = ana.ask(Method::GET, &path).header("accept", "text/event-stream").answer().await;
    assert_eq!(sse.header("content-type"), "text/event-stream");
    let text = String::from_utf8(sse.body.to_vec()).unwrap();
    let data: String = text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|l| format!("{l}\n")).collect();
    assert_eq!(data.as_bytes(), plain.body);
    let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    let resumed =
        ana.ask(Method::GET, &path).header("accept", "text/event-stream").header("last-event-id", "2").answer().await;
    assert!(resumed.body.starts_with(b"id: 3\n"));

    world.node.follow(until_cancelled);
    let asking = ana.ask(Method::POST, "/v1/runs").header("accept", "text/event-stream");
    let answer = asking.body(json!({"command": ["sleep", "9"]}).to_string()).begin().await;
    let run = answer.headers()["bailey-run"].to_str().unwrap().to_owned();
    let mut body = answer.into_body();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(": still running") {
        seen.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    ana.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("cancelled"));
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_end_the_run() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let (go, wait) = tokio::sync::watch::channel(false);
    world.node.follow(move |order: StartRun| {
        let mut wait = wait.clone();
        async move {
            order.updates.send(started()).await.unwrap();
            wait.wait_for(|go| *go).await.unwrap();
            assert!(!order.cancel.is_cancelled());
            order.updates.send(output("late\n")).await.unwrap();
            order.updates.send(stopped(Ending::Exited { code: 3 })).await.unwrap();
            order.updates.send(RunUpdate::Done).await.unwrap();
        }
    });
    let body = json!({"command": ["true"]}).to_string();
    let answer = ana.ask(Method::POST, "/v1/runs").body(body).begin().await;
    let run = answer.headers()["bailey-run"].to_str().unwrap().to_owned();
    drop(answer);
    go.send(true).unwrap();
    let last = ana.get(&format!("/v1/runs/{run}/events")).await.last();
    assert!(matches!(last, RunEventKind::Ended(result) if result.ending == Ending::Exited { code: 3 }));
}

#[tokio::test]
async fn d11_one_key_makes_one_run() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let ask = |body: serde_json::Value| {
        ana.ask(Method::POST, "/v1/runs").header("idempotency-key", "k-1").body(body.to_string()).answer()
    };
    let first = ask(json!({"command": ["true"], "env": {"A": "1", "B": "2"}})).await;
    let second = ask(json!({"env": {"B": "2", "A": "1"}, "command": ["true"]})).await;
    assert_eq!(first.body, second.body);
    assert_eq!(ask(json!({"command": ["false"]})).await.error(409).error, "idempotency_key_reused");
    assert_eq!(world.node.seen.lock().unwrap().len(), 1);
    // Another user's key is another key.
    let bob = world.client("acme", "bob");
    let asking = bob.ask(Method::POST, "/v1/runs").header("idempotency-key", "k-1");
    asking.body(json!({"command": ["false"]}).to_string()).answer().await.last();
    assert_eq!(world.node.seen.lock().unwrap().len(), 2);
    let asking = ana.ask(Method::POST, "/v1/runs").header("idempotency-key", "with space");
    asking.body(json!({"command": ["true"]}).to_string()).answer().await.error(400);
    // A retry is answered also when there is no room for a run.
    world.node.follow(until_cancelled);
    for _ in 0..4 {
        assert_eq!(ana.run(json!({"command": ["sleep", "9"], "detach": true})).await.status, 202);
    }
    assert_eq!(ask(json!({"command": ["true"], "env": {"A": "1", "B": "2"}})).await.body, first.body);
}

#[tokio::test]
async fn d11_a_key_used_at_the_same_time_makes_one_run() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let body = json!({"command": ["true"], "detach": true}).to_string();
    let asks =
        (0..4).map(|_| ana.ask(Method::POST, "/v1/runs").header("idempotency-key", "k-2").body(body.clone()).answer());
    let runs: Vec<_> = futures_util::future::join_all(asks).await.iter().map(|a| a.json::<RunAccepted>().run).collect();
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    eventually("one order", || async { world.node.seen.lock().unwrap().len() == 1 }).await;
    // Whoever came second follows the first one's run, however early.
    for round in 0..20 {
        let body = json!({"command": ["true"], "wall": "container"}).to_string();
        let key = format!("k-{round}-x");
        // Each takes room until it is known to be a retry.
        let asks = (0..3)
            .map(|_| ana.ask(Method::POST, "/v1/runs").header("idempotency-key", &key).body(body.clone()).answer());
        let answers = futures_util::future::join_all(asks).await;
        assert!(answers.iter().all(|answer| answer.events() == answers[0].events()), "{answers:?}");
        let events = answers[0].events();
        let RunEventKind::Started { reason: WallReason::Requested, .. } = events[0].kind else { panic!("{events:?}") };
    }
    // No request left a log of its own beside that of the run.
    let logs = std::fs::read_dir(world.folder.path().join("runs/acme")).unwrap().count();
    assert_eq!(logs, world.node.seen.lock().unwrap().len());
}

#[tokio::test]
async fn a_wall_is_chosen_with_its_reason_and_never_a_weaker_one_than_the_code_needs() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let why = |body| {
        let ana = ana.clone();
        async move {
            let events = ana.run(body).await.events();
            let RunEventKind::Started { wall, reason, why, .. } = &events[0].kind else { panic!("{events:?}") };
            assert_eq!(*wall, WallKind::Container);
            (*reason, why.clone())
        }
    };
    for body in
        [json!({"command": ["true"]}), json!({"command": ["true"], "wall": "auto", "about": {"latency_ms": 50}})]
    {
        let (reason, why) = why(body).await;
        assert!(reason == WallReason::Auto && why.starts_with("unreviewed code in short runs"), "{why}");
    }
    let (reason, why) = why(json!({"command": ["true"], "wall": "container", "about": {"hostile": true}})).await;
    assert!(reason == WallReason::Requested && why.contains("names it"), "{why}");
    let before = world.node.seen.lock().unwrap().len();
    for (body, code) in [
        (json!({"wall": "microvm"}), "wall_not_installed"),
        (json!({"wall": "isolate"}), "wall_not_installed"),
        (json!({"about": {"hostile": true}}), "wall_not_installed"),
        (json!({"about": {"untrusted_files": true}}), "wall_not_installed"),
        (json!({"about": {"provenance": "reviewed"}}), "no_sandbox_needed"),
        (json!({"about": {"place": "callers_process"}}), "wall_refused"),
        (json!({"about": {"assessment": true}}), "confirm_first"),
        (json!({"about": {"hostil": true}}), "unknown_field"),
    ] {
        let mut body = body;
        body["command"] = json!(["true"]);
        let refused = ana.run(body).await.error(400);
        assert!(refused.error == code && !refused.hint.is_empty(), "{refused:?}");
    }
    assert_eq!(world.node.seen.lock().unwrap().len(), before);
}

#[tokio::test]
async fn a_node_that_fails_is_never_a_success() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let run = |name: &'static str| {
        let ana = ana.clone();
        async move {
            let answer = ana.run(json!({"command": ["true"]})).await;
            let RunEventKind::Failed { error, message, hint } = answer.last() else { panic!("{name}") };
            assert!(!message.is_empty() && !hint.is_empty());
            let summary: RunSummary = ana.get(&format!("/v1/runs/{}", answer.header("bailey-run"))).await.json();
            assert_eq!(summary.status, RunStatus::Failed);
            error
        }
    };
    world.node.follow(|order: StartRun| async move {
        order.updates.send(failed(NodeFaultKind::Invalid, "`nope` is no program")).await.unwrap();
    });
    assert_eq!(run("invalid").await, "run_invalid");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
    });
    assert_eq!(run("gone").await, "node_lost");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        order.updates.send(RunUpdate::Done).await.unwrap();
        order.cancel.cancelled().await;
    });
    assert_eq!(run("out of order").await, "node_failed");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(output("before the start")).await.unwrap();
        order.cancel.cancelled().await;
    });
    assert_eq!(run("output first").await, "node_failed");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        let data = Bytes::from(vec![b'x'; 32 * 1024]);
        let stream = bailey_protocol::node::OutputStream::Stdout;
        while order.updates.send(RunUpdate::Output { stream, data: data.clone() }).await.is_ok() {}
    });
    assert_eq!(run("endless").await, "node_failed");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(failed(NodeFaultKind::Unavailable, "the node is going down")).await.unwrap();
    });
    assert_eq!(run("unavailable").await, "node_unavailable");
    world.node.follow(quick);
    ana.run(json!({"command": ["true"]})).await.last();
}

#[tokio::test]
async fn a_run_whose_node_goes_down_under_it_ends_as_node_restarted() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        order.updates.send(output("half\n")).await.unwrap();
        order.updates.send(failed(NodeFaultKind::Unavailable, "the jail is gone")).await.unwrap();
    });
    let last = ana.run(json!({"command": ["true"]})).await.last();
    assert!(matches!(last, RunEventKind::Ended(result) if result.ending == Ending::NodeRestarted));
}

#[tokio::test]
async fn runs_are_listed_newest_first_in_pages() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for n in 0..5 {
        ana.run(json!({"command": ["echo", n.to_string()]})).await.last();
    }
    world.client("acme", "bob").run(json!({"command": ["echo", "bob"]})).await.last();
    let first: RunList = ana.get("/v1/runs?limit=3").await.ok().json();
    let next = first.next.clone().unwrap();
    let second: RunList = ana.get(&format!("/v1/runs?limit=3&after={next}")).await.ok().json();
    let commands: Vec<_> = first.runs.iter().chain(&second.runs).map(|run| run.command.as_str()).collect();
    assert_eq!(commands, ["echo 4", "echo 3", "echo 2", "echo 1", "echo 0"]);
    assert_eq!(second.next, None);
}

#[tokio::test]
async fn t10_there_is_room_for_so_many_runs_and_it_comes_back() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(until_cancelled);
    let body = json!({"command": ["sleep", "9"], "detach": true});
    let answers = futures_util::future::join_all((0..10).map(|_| ana.run(body.clone()))).await;
    let (going, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 202);
    assert_eq!((going.len(), refused.len()), (4, 6));
    for answer in &refused {
        assert_eq!(answer.error(429).error, "too_many_runs");
        assert_eq!(answer.header("retry-after"), "1");
    }
    // Others have room still, up to the server's own limit.
    let globex = world.client("globex", "eve");
    let answers = futures_util::future::join_all((0..3).map(|_| globex.run(body.clone()))).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].error(429).error, "server_full");
    for answer in going {
        let run = answer.json::<RunAccepted>().run;
        ana.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
        ana.get(&format!("/v1/runs/{run}/events")).await.last();
    }
    assert_eq!(ana.run(body).await.status, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t10_a_hundred_creates_at_once_against_a_limit_of_ten_give_exactly_ten() {
    let world = World::with(|config| (config.runs.per_server, config.runs.per_tenant) = (200, 10)).await;
    let ana = world.client("acme", "ana");
    world.node.follow(until_cancelled);
    for round in 0..5 {
        let asks = (0..100).map(|_| {
            let ana = ana.clone();
            tokio::spawn(async move { ana.run(json!({"command": ["sleep", "9"], "detach": true})).await })
        });
        let answers = futures_util::future::join_all(asks).await;
        let mut going = Vec::new();
        for answer in answers.into_iter().map(Result::unwrap) {
            match answer.status.as_u16() {
                202 => going.push(answer.json::<RunAccepted>().run),
                _ => assert_eq!(answer.error(429).error, "too_many_runs"),
            }
        }
        assert_eq!(going.len(), 10, "round {round}");
        for run in going {
            ana.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
            ana.get(&format!("/v1/runs/{run}/events")).await.last();
        }
    }
}

#[tokio::test]
async fn a_full_server_has_runs_wait_and_judges_them_again_before_they_start() {
    let world = World::with(|config| (config.runs.per_server, config.runs.queued_per_tenant) = (1, 2)).await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    world.node.follow(until_cancelled);
    let body = json!({"command": ["sleep", "9"], "detach": true});
    let first = ana.run(body.clone()).await.json::<RunAccepted>().run;
    let (waiting, disabled) = (eve.clone(), world.client("acme", "bob"));
    let (waits, is_denied) = (
        tokio::spawn({
            let body = body.clone();
            async move { waiting.run(body).await }
        }),
        tokio::spawn({
            let body = body.clone();
            async move { disabled.run(body).await }
        }),
    );
    while !world.operator().get("/metrics").await.ok().body.windows(21).any(|part| part == b"bailey_runs_waiting 2") {
        tokio::task::yield_now().await;
    }
    world.operator().post("/v1/operator/tenants/acme/users/bob/disable", json!({})).await.ok();
    ana.post(&format!("/v1/runs/{first}/cancel"), json!({})).await.ok();
    let second = waits.await.unwrap();
    assert_eq!(second.status, 202, "{second:?}");
    let run = second.json::<RunAccepted>().run;
    eve.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
    assert!(!is_denied.await.unwrap().status.is_success());
    assert_eq!(world.node.seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn r05_a_tenant_has_its_share_of_large_disks_and_leaves_others_theirs() {
    let world = World::with(|config| {
        config.runs.large_disks = Some(LargeDisks { count: 2, bytes: 1 << 30, inodes: 40_000 });
        config.runs.queued_for = Duration::from_millis(200);
        config.runs.queued_per_tenant = 1;
    })
    .await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    world.node.follow(until_cancelled);
    let body = json!({"command": ["sleep", "9"], "detach": true, "limits": {"disk_bytes": 1 << 30}});
    let first = ana.run(body.clone()).await.json::<RunAccepted>().run;
    let refused = ana.run(body.clone()).await;
    assert_eq!(refused.error(429).error, "too_many_large_disks");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(eve.run(body.clone()).await.status, 202);
    // A third tenant waits in its turn, and in vain; whoever wants none is not in that line.
    let zoe = world.client("initech", "zoe");
    let refused = zoe.run(body.clone()).await;
    assert_eq!(refused.error(429).error, "large_disks_taken");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(zoe.run(json!({"command": ["sleep", "9"], "detach": true})).await.status, 202);
    ana.post(&format!("/v1/runs/{first}/cancel"), json!({})).await.ok();
    ana.get(&format!("/v1/runs/{first}/events")).await.last();
    assert_eq!(zoe.run(body).await.status, 202);
}

#[tokio::test]
async fn t10_a_tenant_launches_so_many_in_a_minute_and_is_told_when_the_next_may_be() {
    let world = World::with(|config| config.runs.launches_per_minute = Some(3)).await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    for _ in 0..3 {
        ana.run(json!({"command": ["true"]})).await.last();
    }
    let refused = ana.run(json!({"command": ["true"]})).await;
    assert_eq!(refused.error(429).error, "too_many_launches");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((15..=20).contains(&wait), "{wait}");
    eve.run(json!({"command": ["true"]})).await.last();
}

/// Memory is the whole process's, so this is measured in one of its own.
#[test]
fn r11_w10_a_client_that_never_reads_costs_no_memory_and_is_cut_off() {
    const ALONE: &str = "BAILEY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(a_client_that_never_reads());
    }
    let name = "runs::r11_w10_a_client_that_never_reads_costs_no_memory_and_is_cut_off";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

async fn a_client_that_never_reads() {
    let world = World::with(|config| {
        config.runs.ceiling.output_bytes = 64 << 20;
        config.runs.default_limits.output_bytes = 64 << 20;
        config.http.write_timeout = Duration::from_millis(1500);
    })
    .await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        let stream = bailey_protocol::node::OutputStream::Stdout;
        for _ in 0..2000 {
            let data = Bytes::from(vec![b'x'; 32 * 1024]);
            order.updates.send(RunUpdate::Output { stream, data }).await.unwrap();
        }
        order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
        unchanged(&order).await;
        order.updates.send(RunUpdate::Done).await.unwrap();
    });
    let before = resident();
    let body = json!({"command": ["yes"]}).to_string();
    let silent = ana.ask(Method::POST, "/v1/runs").body(body).begin().await;
    let run = silent.headers()["bailey-run"].to_str().unwrap().to_owned();
    eventually("the run to end", || async {
        let summary: RunSummary = ana.get(&format!("/v1/runs/{run}")).await.json();
        summary.status == RunStatus::Ended
    })
    .await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes more for 64 MiB of output");
    // Whoever reads gets all of it, whole.
    let events = ana.get(&format!("/v1/runs/{run}/events")).await.events();
    assert_eq!(events.len(), 2002);
    // And who left everything unread for the time that is allowed is cut off, which no success looks like.
    tokio::time::sleep(Duration::from_secs(3)).await;
    silent.into_body().collect().await.unwrap_err();
}

/// Memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn output_arrives_byte_exact() {
    let world = World::new().await;
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        let stream = bailey_protocol::node::OutputStream::Stderr;
        for piece in ["h\u{e9}".as_bytes().split_at(2).0, &[0xa9, b'\n'], &[0xff, 0], b"\0\x1b[0m"] {
            let data = Bytes::copy_from_slice(piece);
            order.updates.send(RunUpdate::Output { stream, data }).await.unwrap();
        }
        order.updates.send(stopped(Ending::Signaled { signal: 9 })).await.unwrap();
        order.updates.send(RunUpdate::Done).await.unwrap();
    });
    let events = world.client("acme", "ana").run(json!({"command": ["true"]})).await.events();
    let mut bytes = Vec::new();
    for event in events {
        if let RunEventKind::Stderr(data) = event.kind {
            bytes.extend(data.text.map(String::into_bytes).unwrap_or_default());
            use base64::Engine;
            let decoded = data.base64.map(|text| base64::engine::general_purpose::STANDARD.decode(text).unwrap());
            bytes.extend(decoded.unwrap_or_default());
        }
    }
    assert_eq!(bytes, b"h\xc3\xa9\n\xff\0\0\x1b[0m");
}

#[tokio::test]
async fn f21_names_are_names_and_what_is_passed_through_is_bytes() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for name in [
        "../../tenantB/vol",
        "registry/..%2f..",
        "127.0.0.1:5000/x",
        "169.254.169.254/x",
        "base\nUSER root",
        "base\r\nx: y",
        "base\n",
        "base\0",
        "",
    ] {
        for field in ["template", "wall"] {
            ana.run(json!({"command": ["true"], field: name})).await.error(400);
        }
        let mount = |at: String| json!({"command": ["true"], "mounts": [{"path": "/tenants/acme/d", "at": at}]});
        for at in [format!("/data/../{name}\0"), format!("data/{name}")] {
            ana.run(mount(at)).await.error(400);
        }
    }
    for (name, value) in [("A=B", "x"), ("", "x"), ("A\0", "x"), ("A", "x\0y")] {
        assert_eq!(ana.run(json!({"command": ["true"], "env": {name: value}})).await.error(400).error, "invalid_env");
    }
    assert!(world.node.seen.lock().unwrap().is_empty(), "something was started");
    let env = [("A", "\nUSER root"), ("B", "\r\nLD_PRELOAD=/x.so\n"), ("C\nPATH", "$(id) `id` ${PATH}")];
    let command = ["printf", "%s\n; rm -rf /", "\r\nx"];
    let asked: std::collections::BTreeMap<_, _> = env.into_iter().collect();
    ana.run(json!({"command": command, "env": asked, "stdin": "\r\n\u{0}"})).await.last();
    let seen = world.node.seen.lock().unwrap();
    let got: Vec<_> = seen[0].env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!((got.as_slice(), seen[0].command.as_slice()), (&env[..], &command.map(str::to_owned)[..]));
    assert_eq!(seen[0].stdin, b"\r\n\0");
}
