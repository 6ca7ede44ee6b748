//! Execs: their events, their end, their powers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::guest::{Guest, init_request, possible};

#[tokio::test]
async fn nothing_but_health_answers_before_init_and_init_answers_once() {
    if !possible() {
        return;
    }
    let guest = Guest::park();
    let health = http::Request::get("/health").body(http_body_util::Empty::new()).unwrap();
    assert_eq!(guest.send(health).await.status(), 204);
    let (status, answer) = guest.call("/process.Process/List", &json!({})).await;
    assert_eq!((status, answer["code"].as_str()), (400, Some("failed_precondition")));
    let mut other = init_request(false);
    other["generation"] = json!(99);
    assert_eq!(guest.call("/init", &other).await.0, 400);
    let (status, answer) = guest.call("/init", &init_request(false)).await;
    assert_eq!(status, 200, "{answer}");
    let fences: Vec<&str> = answer["fences"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert!(fences.iter().any(|f| f.starts_with("landlock:")), "{fences:?}");
    assert!(fences.iter().any(|f| f.starts_with("seccomp:") && f.len() == 16), "{fences:?}");
    assert_eq!(guest.call("/init", &init_request(true)).await.0, 409);
}

#[tokio::test]
async fn a_command_has_its_output_then_its_end() {
    if !possible() {
        return;
    }
    let guest = Guest::start(false).await;
    let outcome = guest.shell("echo out; echo err >&2; exit 3").await;
    assert_eq!((outcome.text().as_str(), outcome.stderr.as_slice(), outcome.code()), ("out\n", &b"err\n"[..], 3));
    assert_eq!(outcome.end["status"], "exit status 3");
    let outcome = guest.shell("kill -9 $$").await;
    assert_eq!((outcome.end["status"].as_str(), outcome.end["signal"].as_i64()), (Some("signal: killed"), Some(9)));
}

#[tokio::test]
async fn latency() {
    if !possible() {
        return;
    }
    let guest = Guest::start(false).await;
    let start = json!({ "process": { "cmd": "/bin/true" }, "stdin": false });
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        let outcome = guest.start_exec(&start, &[]).await.outcome().await;
        times.push(began.elapsed());
        assert_eq!(outcome.code(), 0);
    }
    times.sort();
    eprintln!("p50 {:?} p90 {:?}", times[100], times[180]);
    assert!(times[100] < Duration::from_millis(20));
}
