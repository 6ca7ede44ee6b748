//! Requests that nobody means well with.

use std::time::Duration;

use bailey_control::config::ControlConfig;
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::World;

/// Waits for no client for long.
fn impatient(config: &mut ControlConfig) {
    config.http.header_timeout = Duration::from_millis(500);
    config.http.body_timeout = Duration::from_millis(500);
}

/// Sends `head` as it is and reads until the server closes or `wait` is over.
async fn raw(world: &World, head: &[u8], wait: Duration) -> Option<String> {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(head).await.unwrap();
    let mut seen = Vec::new();
    tokio::time::timeout(wait, stream.read_to_end(&mut seen)).await.ok()?.ok()?;
    Some(String::from_utf8_lossy(&seen).into_owned())
}

#[tokio::test]
async fn f01_traversal_is_refused_or_stays_inside_the_tree() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let inside = |path: &str| path.starts_with("/tenants/acme/");
    for (path, status) in [
        ("/v1/tree/tenants/acme/../globex/x", 400),
        ("/v1/tree/tenants/acme/..%2fglobex/x", 400),
        ("/v1/tree/tenants/acme/%2e%2e/globex/x", 400),
        ("/v1/tree/tenants/acme/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 400),
        ("/v1/tree/..%2f..%2fetc%2fpasswd", 400),
        ("/v1/tree//etc/passwd", 400),
        ("/v1/tree/tenants/acme//x", 400),
        ("/v1/tree/tenants/acme/", 400),
        ("/v1/tree/tenants/acme/x/.", 400),
        ("/v1/tree/tenants/acme/x%00y", 400),
        ("/v1/tree/tenants/acme/%zz", 400),
        ("/v1/tree/proc/self/root/etc/passwd", 400),
        ("/v1/tree/tenants/acme/%252e%252e/x", 200),
        ("/v1/tree/tenants/acme/..%5cx", 200),
        // A name of four bytes, and nothing else: no spelling of dots that is not theirs means them.
        ("/v1/tree/tenants/acme/%c0%ae%c0%ae/x", 200),
        ("/v1/tree/tenants/acme/..../x", 200),
        ("/v1/tree/tenants/acme/%ef%bc%8e%ef%bc%8e/x", 200),
        ("/v1/tree/tenants/acme/a%0d%0aX-Evil:%201", 200),
        ("/v1/tree/tenants/acme/.git/config", 200),
        ("/v1/tree/tenants/acme/trailing.%20", 200),
    ] {
        let answer = ana.put(path, "mine").await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        if status == 400 {
            answer.error(400);
            ana.get(path).await.error(400);
            continue;
        }
        let written: bailey_protocol::api::WriteAnswer = answer.json();
        assert!(inside(written.path.as_str()));
        assert_eq!(ana.get(path).await.ok().body, "mine", "{path}");
    }
    assert_eq!(world.tenants_on_disk(), ["acme"]);
}

#[tokio::test]
async fn w05_hostile_json_is_a_400_that_names_the_fault() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let deep = format!("{{\"env\":{}", "[".repeat(100_000));
    for (body, code) in [
        (deep.as_str(), "invalid_json"),
        (r#"{"command":["true"],"command":["false"]}"#, "doubled_key"),
        (r#"{"command":["true"],"env":{"A":"1","A":"2"}}"#, "doubled_key"),
        (r#"{"command":["true"],"limits":{"pids":1e400}}"#, "invalid_json"),
        (r#"{"command":["\ud800"]}"#, "invalid_json"),
        ("\u{feff}{}", "invalid_json"),
        (r#"{"command":["true"],"limits":{"pids":NaN}}"#, "invalid_json"),
        (r#"{"command":["true"],"Read_Only":true}"#, "unknown_field"),
        (r#"{"command":["true"],"mounts":[{"path":"/tenants/acme","at":"/d","readonly":true}]}"#, "unknown_field"),
        (r#"{"command":["true"],"mounts":[{"path":"/etc","at":"/d"}]}"#, "invalid_json"),
        (r#"{"command":["true"],"wall":"none"}"#, "invalid_json"),
        (r#"{"command":["true"],"template":"../x"}"#, "invalid_json"),
    ] {
        let error = ana.ask(Method::POST, "/v1/runs").body(body.to_owned()).answer().await.error(400);
        assert_eq!(error.error, code, "{body:.80}");
    }
    let error = ana.run(serde_json::json!({"command": ["true"], "Read_Only": true})).await.error(400);
    assert!(error.hint.contains("Read_Only"), "{error:?}");
    assert!(world.node.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_before_they_are_read() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let token = ana.token.clone().unwrap();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: 99999999999\r\n\r\n{{"
    );
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut seen = vec![0; 1024];
    let count = stream.read(&mut seen).await.unwrap();
    assert!(String::from_utf8_lossy(&seen[..count]).starts_with("HTTP/1.1 413"));
    let chunked = ana.ask(Method::POST, "/v1/runs").body(vec![b' '; 17 << 20]).answer().await;
    assert_eq!(chunked.error(413).error, "body_too_large");
    let body = vec![b'x'; 2 << 20];
    let answer = ana.put("/v1/tree/tenants/acme/big", body).await;
    assert_eq!(answer.error(413).error, "too_large");
    ana.get("/v1/tree/tenants/acme/big").await.error(404);
}

#[tokio::test]
async fn w01_a_head_that_never_ends_is_closed_by_its_deadline() {
    let world = World::with(impatient).await;
    let started = tokio::time::Instant::now();
    let seen = raw(&world, b"GET /healthz HTTP/1.1\r\nhost: x\r\n", Duration::from_secs(10)).await;
    assert!(seen.is_some(), "still open after {:?}", started.elapsed());
    // A kept-alive connection that asks nothing more goes the same way.
    let seen = raw(&world, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", Duration::from_secs(10)).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
}

#[tokio::test]
async fn w02_a_body_that_never_ends_is_answered_by_its_deadline() {
    let world = World::with(impatient).await;
    let token = world.client("acme", "ana").token.unwrap();
    for route in ["POST /v1/runs", "PUT /v1/tree/tenants/acme/x"] {
        let head =
            format!("{route} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: 100\r\n\r\n{{");
        let seen = raw(&world, head.as_bytes(), Duration::from_secs(10)).await.unwrap();
        assert!(seen.starts_with("HTTP/1.1 408"), "{route}: {seen}");
    }
}

#[tokio::test]
async fn w01_connections_without_a_token_make_room_for_others() {
    let world = World::with(|config| config.http.max_connections = 8).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(b"G").await.unwrap();
        idle.push(stream);
    }
    world.client("acme", "ana").get("/v1/runs").await.ok();
}

#[tokio::test]
async fn w01_connections_that_one_tenant_keeps_make_room_for_others() {
    let world = World::with(|config| config.http.max_connections = 8).await;
    let token = world.client("acme", "ana").token.unwrap();
    let head = format!("GET /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    let mut kept = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut seen = [0; 12];
        stream.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"HTTP/1.1 200");
        kept.push(stream);
    }
    for _ in 0..10 {
        world.client("globex", "eve").get("/v1/runs").await.ok();
    }
}

#[tokio::test]
async fn a11_every_route_wants_a_token_and_says_so() {
    let world = World::new().await;
    let mut nobody = world.client("acme", "ana");
    let run = "run_00000000000000000000000000";
    let paths = [
        "/v1/runs".to_owned(),
        format!("/v1/runs/{run}"),
        format!("/v1/runs/{run}/events"),
        format!("/v1/runs/{run}/cancel"),
        "/v1/tree/tenants/acme/x".to_owned(),
        "/v1/tree-history/tenants/acme/x".to_owned(),
        "/v1/tree-diff/tenants/acme/x".to_owned(),
        "/v1".to_owned(),
        "/v1/nothing".to_owned(),
        "/".to_owned(),
        "/admin".to_owned(),
        "//v1/runs".to_owned(),
    ];
    let methods = [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::PATCH, Method::OPTIONS];
    for token in [None, Some("garbage"), Some("a.b.c"), Some("")] {
        nobody.token = token.map(str::to_owned);
        for (path, method) in paths.iter().flat_map(|path| methods.iter().map(move |method| (path, method))) {
            let answer = nobody.ask(method.clone(), path).answer().await;
            answer.error(401);
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    nobody.token = None;
    for open in ["/healthz", "/readyz", "/.well-known/jwks.json"] {
        nobody.get(open).await.ok();
    }
    let ana = world.client("acme", "ana");
    assert_eq!(ana.get("/v1/nothing").await.error(404).error, "not_found");
    let wrong = ana.delete("/v1/runs").await;
    assert_eq!(wrong.error(405).error, "method_not_allowed");
    assert!(wrong.header("allow").contains("POST"));
}

#[tokio::test]
async fn unknown_query_parameters_are_refused() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    // But whoever only looks whether the server is there.
    for path in ["/healthz?", "/healthz?cache=1&cache=2", "/readyz?probe=%zz"] {
        ana.get(path).await.ok();
    }
    for path in [
        "/.well-known/jwks.json?x=1",
        "/v1/runs?tenant=globex",
        "/v1/runs?limit=-1",
        "/v1/tree/tenants/acme?Ref=main",
        "/v1/tree/tenants/acme?ref=a..b",
        "/v1/tree-history/tenants/acme?after=zz",
        "/v1/tree-diff/tenants/acme?from=main&from=main",
    ] {
        ana.get(path).await.error(400);
    }
}

#[tokio::test]
async fn n18_ambiguous_framing_never_reaches_a_handler() {
    let world = World::with(impatient).await;
    let token = world.client("acme", "ana").token.unwrap();
    for framing in [
        "content-length: 2\r\ncontent-length: 3\r\n",
        "content-length: +2\r\n",
        "content-length: 1_0\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "x : y\r\n",
        "x: a\0b\r\n",
    ] {
        let head = format!(
            "PUT /v1/tree/tenants/acme/smuggled HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{framing}\r\nhi"
        );
        let seen = raw(&world, head.as_bytes(), Duration::from_secs(10)).await.unwrap();
        assert!(seen.starts_with("HTTP/1.1 400") || seen.is_empty(), "{framing:?}: {seen}");
    }
    world.client("acme", "ana").get("/v1/tree/tenants/acme/smuggled").await.error(404);
}

/// Whoever stands before the server may have read another body, and so another next request.
#[tokio::test]
async fn n18_a_head_that_can_be_read_in_two_ways_is_refused_and_the_connection_closed() {
    let world = World::new().await;
    let token = world.client("acme", "ana").token.unwrap();
    let smuggled = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let put = |framing: &str, body: &str| {
        format!(
            "PUT /v1/tree/tenants/acme/x HTTP/1.1\r\nauthorization: Bearer {token}\r\n{framing}\r\n{body}{smuggled}"
        )
    };
    let padded = format!("host: x\r\ncontent-length: {}2\r\n", "0".repeat(60));
    let refused = [
        put(&padded, "ab"),
        put("host: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
        put("host: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n", "0\r\n\r\n"),
        put("host: x\r\ncontent-length: 2\r\ncontent-length: 2\r\n", "ab"),
        put("host: x\r\nContent-Length: 2\nx: y\r\n", "ab"),
        put("host: x\r\ntransfer-encoding: identity, chunked\r\n", "0\r\n\r\n"),
        put("host: x\r\ntransfer-encoding: identity\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
        put("host: x\r\nhost: y\r\ncontent-length: 2\r\n", "ab"),
        // What the parser refuses by itself.
        put("host: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n", "ab"),
        put("host: x\r\ncontent-length: +2\r\n", "ab"),
        put("host: x\r\ncontent-length : 2\r\n", "ab"),
        put("host: x\r\ntransfer-encoding: xchunked\r\n", "0\r\n\r\n"),
        put("host: x\r\ntransfer-encoding: chunked, identity\r\n", "0\r\n\r\n"),
        put("host: x\r\nx: y\r\n content-length: 2\r\n", "ab"),
    ];
    let before = "POST /v1/webhooks/identity HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";
    for (number, request) in refused.iter().enumerate() {
        for (sent, answers) in [(request.clone(), 1), (format!("{before}{request}"), 2)] {
            let seen = raw(&world, sent.as_bytes(), Duration::from_secs(10)).await;
            let seen = seen.unwrap_or_else(|| panic!("{number}: left open"));
            assert_eq!(seen.matches("HTTP/1.1 ").count(), answers, "{number}: {request:?} {seen}");
            let last = seen.rsplit("HTTP/1.1 ").next().unwrap();
            assert!(last.starts_with("400") && last.contains("connection: close"), "{number}: {request:?} {seen}");
            assert!(number > 7 || last.contains("ambiguous_request"), "{number}: {seen}");
        }
    }
    world.client("acme", "ana").get("/v1/tree/tenants/acme/x").await.error(404);
    // A body in chunks is one, and the last of its connection.
    let chunked = put("host: x\r\ntransfer-encoding: chunked\r\n", "2\r\nab\r\n0\r\n\r\n");
    let seen = raw(&world, chunked.as_bytes(), Duration::from_secs(10)).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 200") && seen.matches("HTTP/1.1 ").count() == 1, "{seen}");
    assert_eq!(world.client("acme", "ana").get("/v1/tree/tenants/acme/x").await.ok().body, "ab");
    // Any other leaves it open for the next.
    let seen = raw(&world, put("host: x\r\ncontent-length: 2\r\n", "cd").as_bytes(), Duration::from_secs(10)).await;
    assert_eq!(seen.unwrap().matches("HTTP/1.1 200").count(), 2);
}
