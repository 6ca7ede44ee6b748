//! Runs on a wall that is played by hand: what callers are told, and that no sandbox stays.

use std::time::Duration;

use bailey_protocol::jail::StopFacts;
use bailey_protocol::node::{Ending, LimitHit, NodeFaultKind, RunSpec, RunUpdate};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bench::{self, Bench, PATIENCE, Told, eventually, mount, spec};
use crate::fake_wall::{Behaviour, FakeWall};
use crate::guest::{Step, answer, chunk, envelope, event, exited, honest, on_start, output, started, stream_head};

fn bench(steps: Vec<Step>, behaviour: Behaviour) -> Bench {
    Bench::new(FakeWall::new(honest(steps), behaviour), 0)
}

fn quick() -> Bench {
    bench(vec![Step::Say(exited(0))], Behaviour::default())
}

#[tokio::test]
async fn a_run_tells_its_whole_story() {
    let changes = b"changes, unread".repeat(20_000);
    let steps = vec![Step::Say(output("stdout", b"out")), Step::Say(output("stderr", b"err")), Step::Say(exited(3))];
    let bench = bench(steps, Behaviour { changes: changes.clone(), ..Behaviour::default() });
    let mut spec = spec(&["program", "arg"]);
    spec.mounts = vec![mount('1', "/ro", false), mount('2', "/rw", true)];
    let told = bench.run(spec).await;
    assert_eq!(told.ending(), Ending::Exited { code: 3 });
    assert_eq!((told.stdout.as_slice(), told.stderr.as_slice()), (&b"out"[..], &b"err"[..]));
    assert_eq!(told.changes.len(), 1);
    assert_eq!(told.changes[&1], changes);
    let started = told.started.unwrap();
    assert_eq!(started.fences, ["fake", "landlock"]);
    assert!(!started.parked);
    bench.empty().await;
    let (sandbox, order) = bench.wall.orders().pop().unwrap();
    assert_eq!(order.mounts.iter().map(|mount| mount.writable).collect::<Vec<_>>(), [false, true]);
    assert_eq!(started.sandbox, sandbox, "another sandbox is named than the one that served");
    assert_eq!(bench.wall.destroyed(), [sandbox]);
}

#[tokio::test]
async fn all_runs_of_a_tenant_take_one_share_and_those_of_another_another() {
    let bench = bench(vec![Step::Say(exited(0))], Behaviour::default());
    for tenant in ["acme", "globex", "acme"] {
        let told = bench.run(RunSpec { tenant: tenant.parse().unwrap(), ..spec(&["x"]) }).await;
        assert_eq!(told.ending(), Ending::Exited { code: 0 });
    }
    let shares: Vec<_> = bench.wall.orders().into_iter().map(|(_, order)| order.share).collect();
    assert_eq!(shares.len(), 3);
    assert!(shares[0] == shares[2] && shares[0] != shares[1], "{shares:?}");
}

#[tokio::test]
async fn output_is_byte_exact_however_it_is_cut() {
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut steps: Vec<Step> = all.chunks(999).map(|piece| Step::Say(output("stdout", piece))).collect();
    steps.push(Step::Say(output("stdout", &all)));
    steps.push(Step::Say(exited(0)));
    let told = bench(steps, Behaviour::default()).run(spec(&["x"])).await;
    assert!(told.stdout == [all.clone(), all].concat());
}

#[tokio::test]
async fn signals_are_reported() {
    let end = [event(r#""end":{"exitCode":-1,"status":"signal: killed"}"#), chunk(&envelope(2, "{}"))].concat();
    let told = bench(vec![Step::Say(end)], Behaviour::default()).run(spec(&["x"])).await;
    assert_eq!(told.ending(), Ending::Signaled { signal: 9 });
}

#[tokio::test]
async fn r03_an_oom_kill_is_the_ending_however_the_guest_tells_it() {
    let facts = StopFacts { oom_kills: 1, disk_full: true, files_full: true, pids_refused: 2, ..StopFacts::default() };
    for steps in [vec![Step::Say(exited(137))], vec![Step::Die]] {
        let told = bench(steps, Behaviour { facts, ..Behaviour::default() }).run(spec(&["x"])).await;
        assert_eq!(told.ending(), Ending::Oom);
        assert_eq!(told.stopped().limits_hit, [LimitHit::Disk, LimitHit::Files, LimitHit::Pids, LimitHit::Memory]);
    }
}

#[tokio::test]
async fn r10_a_timeout_comes_on_time_with_the_output_before_it() {
    let bench = bench(vec![Step::Say(output("stdout", b"before")), Step::Hang], Behaviour::default());
    let mut spec = spec(&["x"]);
    spec.limits.timeout_ms = 300;
    let begun = Instant::now();
    let told = bench.run(spec).await;
    let took = begun.elapsed();
    assert_eq!(told.ending(), Ending::Timeout);
    assert_eq!(told.stopped().limits_hit, [LimitHit::Timeout]);
    assert_eq!(told.stdout, b"before");
    assert!((100..500).contains(&told.stopped().wall_ms), "{told:?}");
    assert!(took < Duration::from_millis(800), "{took:?}");
    bench.empty().await;
}

#[tokio::test]
async fn r11_output_is_cut_at_its_limit() {
    let bench = bench(vec![Step::Repeat(output("stdout", &[b'y'; 10_000]))], Behaviour::default());
    let mut spec = spec(&["yes"]);
    spec.limits.output_bytes = 123_456;
    let told = bench.run(spec).await;
    assert_eq!(told.ending(), Ending::OutputLimit);
    assert_eq!(told.stdout.len(), 123_456);
    assert!(told.stopped().output_dropped > 0);
    assert_eq!(told.stopped().limits_hit, [LimitHit::Output]);
}

/// Runs with a caller that takes nothing until `wake`.
async fn slow_caller(bench: &Bench, timeout_ms: u64, wake: Duration) -> Told {
    let (updates, mut heard) = mpsc::channel(1);
    let mut spec = spec(&["yes"]);
    spec.limits.timeout_ms = timeout_ms;
    spec.limits.output_bytes = 1 << 30;
    let listen = async {
        tokio::time::sleep(wake).await;
        let mut told = Told::default();
        while let Some(update) = heard.recv().await {
            told.hear(update);
        }
        told
    };
    let both = async { tokio::join!(bench.node.run(spec, updates, CancellationToken::new()), listen).1 };
    tokio::time::timeout(PATIENCE, both).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_caller_that_does_not_read_stalls_only_its_own_run_and_no_deadline() {
    let bench = bench(vec![Step::Repeat(output("stdout", &[b'y'; 16_000]))], Behaviour::default());
    let neighbour = async {
        let begun = Instant::now();
        let told = quick().run(spec(&["true"])).await;
        assert_eq!(told.ending(), Ending::Exited { code: 0 });
        assert!(begun.elapsed() < Duration::from_secs(1));
    };
    let (told, ()) = tokio::join!(slow_caller(&bench, 400, Duration::from_secs(2)), neighbour);
    assert_eq!(told.ending(), Ending::Timeout);
    assert!((200..650).contains(&told.stopped().wall_ms), "{:?}", told.stopped());
    let written = bench.wall.written.load(std::sync::atomic::Ordering::Relaxed);
    assert!(written < 2 << 20, "the guest got rid of {written} bytes while nobody listened");
}

#[tokio::test]
async fn a_cancelled_run_ends_as_cancelled_wherever_it_is() {
    for after in [0, 20, 120, 300] {
        let behaviour = Behaviour {
            park_takes: Duration::from_millis(50),
            claim_takes: Duration::from_millis(100),
            ..Behaviour::default()
        };
        let bench = bench(vec![Step::Hang], behaviour);
        let cancel = CancellationToken::new();
        let mut spec = spec(&["sleep"]);
        spec.mounts = vec![mount('1', "/data", true)];
        let later = async {
            tokio::time::sleep(Duration::from_millis(after)).await;
            cancel.cancel();
        };
        let (told, ()) = tokio::join!(bench::run(&bench.node, spec, cancel.clone()), later);
        assert_eq!(told.ending(), Ending::Cancelled, "after {after} ms");
        bench.empty().await;
    }
}

#[tokio::test]
async fn a_dropped_run_leaves_no_sandbox() {
    for after in [0, 20, 120, 300] {
        let behaviour = Behaviour {
            park_takes: Duration::from_millis(50),
            claim_takes: Duration::from_millis(100),
            ..Behaviour::default()
        };
        let bench = bench(vec![Step::Hang], behaviour);
        let (updates, _heard) = mpsc::channel(8);
        let run = bench.node.run(spec(&["sleep"]), updates, CancellationToken::new());
        assert!(tokio::time::timeout(Duration::from_millis(after), run).await.is_err());
        bench.node.shutdown(Duration::from_secs(5)).await;
        assert_eq!(bench.wall.alive(), 0, "after {after} ms");
    }
}

#[tokio::test]
async fn a_caller_that_hangs_up_ends_its_run() {
    let bench = bench(vec![Step::Hang], Behaviour::default());
    let (updates, mut heard) = mpsc::channel(8);
    let hang_up = async {
        assert!(matches!(heard.recv().await, Some(RunUpdate::Started { .. })));
        drop(heard);
    };
    let run = bench.node.run(spec(&["sleep"]), updates, CancellationToken::new());
    tokio::time::timeout(PATIENCE, async { tokio::join!(run, hang_up) }).await.unwrap();
    bench.empty().await;
}

#[tokio::test]
async fn programs_that_cannot_start_are_the_callers_fault_and_said_so() {
    for (code, part) in [("not_found", "`no/such` was not found"), ("permission_denied", "may not be executed")] {
        let trailer = envelope(2, &format!(r#"{{"error":{{"code":"{code}","message":"/host/path"}}}}"#));
        let script =
            on_start(move |_| vec![Step::Say([stream_head(), chunk(&trailer), b"0\r\n\r\n".to_vec()].concat())]);
        let bench = Bench::new(FakeWall::new(script, Behaviour::default()), 0);
        let fault = bench.run(spec(&["no/such"])).await.fault.unwrap();
        assert_eq!(fault.kind, NodeFaultKind::Invalid);
        assert!(fault.message.contains(part), "{fault}");
        assert!(!fault.message.contains("host"), "{fault}");
        bench.empty().await;
    }
}

#[tokio::test]
async fn specs_that_cannot_be_carried_out_cost_no_sandbox() {
    let bench = quick();
    let mut bad = [spec(&["x"]), spec(&[]), spec(&[""]), spec(&["x"]), spec(&["x"]), spec(&["x"])];
    bad[0].template = "other".parse().unwrap();
    bad[3].limits.memory_bytes = u64::MAX;
    bad[4].mounts = vec![mount('1', "/d", false); 17];
    bad[5].env.insert("BIG".to_owned(), "x".repeat(200_000));
    for spec in bad {
        let fault = bench.run(spec).await.fault.unwrap();
        assert_eq!(fault.kind, NodeFaultKind::Invalid, "{fault}");
    }
    assert_eq!(bench.wall.parks(), 0);
}

#[tokio::test]
async fn a_wall_that_fails_fails_the_run_and_keeps_nothing() {
    let claim_fails = Behaviour { claim_fails: true, ..Behaviour::default() };
    let collect_fails = Behaviour { collect_fails: true, ..Behaviour::default() };
    for behaviour in [claim_fails, collect_fails] {
        let bench = bench(vec![Step::Say(exited(0))], behaviour);
        let mut spec = spec(&["x"]);
        spec.mounts = vec![mount('1', "/data", true)];
        let fault = bench.run(spec).await.fault.unwrap();
        assert_eq!(fault.kind, NodeFaultKind::Internal);
        bench.empty().await;
    }
}

#[tokio::test]
async fn a_lost_jail_fails_runs_as_unavailable() {
    let bench = bench(vec![Step::Hang], Behaviour::default());
    let lose = async {
        eventually("the run is claimed", || !bench.wall.orders().is_empty()).await;
        bench.wall.lost.cancel();
    };
    let (told, ()) = tokio::join!(bench.run(spec(&["sleep"])), lose);
    assert_eq!(told.fault.unwrap().kind, NodeFaultKind::Unavailable);
    assert!(!bench.node.is_ready());
}

#[tokio::test]
async fn a_shutdown_drains_then_ends_what_is_left() {
    let bench = Bench::new(FakeWall::new(honest(vec![Step::Hang]), Behaviour::default()), 2);
    let shutdown = async {
        eventually("the run is claimed", || !bench.wall.orders().is_empty()).await;
        bench.node.shutdown(Duration::from_millis(100)).await;
    };
    let (told, ()) = tokio::join!(bench.run(spec(&["sleep"])), shutdown);
    assert_eq!(told.ending(), Ending::NodeRestarted);
    assert_eq!(bench.wall.alive(), 0);
    let fault = bench.run(spec(&["late"])).await.fault.unwrap();
    assert_eq!(fault.kind, NodeFaultKind::Unavailable);
}

#[tokio::test]
async fn input_is_sent_whole_and_closed() {
    let (heard, mut inputs) = mpsc::channel(64);
    let script: crate::guest::Script = std::sync::Arc::new(move |path, body| {
        if path.ends_with("SendInput") || path.ends_with("CloseStdin") {
            heard.try_send((path.to_owned(), body.to_vec())).unwrap();
            return vec![Step::Say(answer("200 OK", "application/json", b"{}"))];
        }
        match path {
            "/process.Process/Start" => {
                assert!(String::from_utf8_lossy(body).contains(r#""stdin":true"#));
                let end = vec![Step::Wait(Duration::from_millis(300)), Step::Say(exited(0))];
                [vec![Step::Say(stream_head()), Step::Say(started())], end].concat()
            }
            _ => honest(vec![])(path, body),
        }
    });
    let bench = Bench::new(FakeWall::new(script, Behaviour::default()), 0);
    let mut spec = spec(&["cat"]);
    spec.stdin = (0..=255).cycle().take(150_000).collect();
    let stdin = spec.stdin.clone();
    assert_eq!(bench.run(spec).await.ending(), Ending::Exited { code: 0 });
    let mut got = Vec::new();
    let mut last = String::new();
    while let Ok((path, body)) = inputs.try_recv() {
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["process"]["pid"], 7);
        if let Some(text) = body["input"]["stdin"].as_str() {
            use base64::Engine;
            got.extend(base64::engine::general_purpose::STANDARD.decode(text).unwrap());
        }
        last = path;
    }
    assert!(got == stdin);
    assert_eq!(last, "/process.Process/CloseStdin");
}
