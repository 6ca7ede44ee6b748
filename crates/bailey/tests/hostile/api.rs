//! Hostile requests that need no hostile code: size, shape, framing, races.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{self, Request};
use crate::run::Order;
use crate::server::{beside_others, shared};

/// Sends bytes as they are and reads what comes back within five seconds.
fn raw(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(shared().address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // The server may close before it has read all of it.
    stream.write_all(bytes).ok();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).ok();
    got
}

#[test]
fn w05_hostile_json_is_a_400_and_the_server_lives() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let deep = format!("{}{}", "{\"env\":".repeat(100_000), "}".repeat(100_000));
    let wide = format!(
        "{{\"command\":[\"true\"],\"env\":{{{}}}}}",
        (0..100_000).map(|n| format!("\"K{n}\":\"v\"")).collect::<Vec<_>>().join(",")
    );
    let bodies: Vec<Vec<u8>> = vec![
        deep.into_bytes(),
        "[".repeat(1_000_000).into_bytes(),
        wide.into_bytes(),
        b"{\"command\":[\"true\"],\"command\":[\"id\"]}".to_vec(),
        b"{\"command\":[\"true\"],\"limits\":{\"pids\":1e400}}".to_vec(),
        b"{\"command\":[\"\\ud800\"]}".to_vec(),
        b"\xef\xbb\xbf{\"command\":[\"true\"]}".to_vec(),
        b"{\"command\":[\"true\"],\"limits\":{\"pids\":NaN}}".to_vec(),
        b"{\"command\":[\"true\"]}{\"x\":1}".to_vec(),
        b"{\"command\":[\"tr\xffue\"]}".to_vec(),
        b"{\"command\":[\"true\"],\"limits\":{\"timeout_ms\":18446744073709551616}}".to_vec(),
        vec![b' '; 3 * 1024 * 1024],
    ];
    for body in bodies {
        let start = Instant::now();
        let bearer = format!("Bearer {}", ana.token);
        let headers =
            [("Authorization", bearer.as_str()), ("Content-Type", "application/json"), ("Connection", "close")];
        let reply =
            http::send(server.address, Request { method: "POST", target: "/v1/runs", headers: &headers, body: &body })
                .unwrap();
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert!((400..500).contains(&reply.status), "{shown}: {}", reply.status);
        assert!(start.elapsed() < Duration::from_secs(2), "{shown} took {:?}", start.elapsed());
    }
    assert!(server.healthy());
}

#[test]
fn n18_ambiguous_framing_is_refused() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
        ana.token
    );
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let tries = [
        format!("{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{head}Content-Length: 0\r\nContent-Length: 50\r\n\r\n{smuggled}"),
        format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("{head}Content-Length: +5\r\n\r\nhello{smuggled}"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n{smuggled}"),
        format!("{head}X: a\r\n\tb\r\nContent-Length: -1\r\n\r\n{smuggled}"),
        format!("{head}X\0: a\r\nContent-Length: 0\r\n\r\n{smuggled}"),
    ];
    for text in tries {
        let got = String::from_utf8_lossy(&raw(text.as_bytes())).into_owned();
        let answers = got.matches("HTTP/1.1 ").count();
        let refused = got.starts_with("HTTP/1.1 4") || got.is_empty();
        assert!(refused, "{text}: {got}");
        assert!(answers <= 1, "two answers to one ambiguous request: {text}\n{got}");
    }
    let endless = format!(
        "GET / HTTP/1.1\r\n{}\r\n",
        "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(20_000)
    );
    assert!(raw(endless.as_bytes()).len() < 10_000);
    assert!(server.healthy());
}

#[test]
fn w01_idle_and_dripping_connections_keep_nobody_waiting() {
    let _guard = beside_others();
    let server = shared();
    let mut crowd: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for stream in &mut crowd {
        stream.write_all(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nX: ").ok();
    }
    let start = Instant::now();
    for _ in 0..20 {
        assert!(server.healthy());
    }
    assert!(start.elapsed() < Duration::from_secs(4), "{:?} for 20 health checks", start.elapsed());
    drop(crowd);
    assert!(
        crate::host::within(Duration::from_secs(5), || server.serve().descriptors().len() < 200),
        "descriptors stay open"
    );
}

#[test]
fn f18_one_writer_wins_each_version() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    server.put(&ana, "f18/counter", b"0");
    let target = format!("/v1/tree{}", ana.path("f18/counter"));
    for round in 0..5 {
        let version = server.get(&ana, "f18").json()["version"].as_str().unwrap().to_owned();
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (target, version, token) = (target.clone(), version.clone(), ana.token.clone());
                std::thread::spawn(move || {
                    let bearer = format!("Bearer {token}");
                    let tag = format!("\"{version}\"");
                    let headers =
                        [("Authorization", bearer.as_str()), ("If-Match", tag.as_str()), ("Connection", "close")];
                    let body = format!("{round}-{writer}");
                    let reply = http::send(
                        shared().address,
                        Request { method: "PUT", target: &target, headers: &headers, body: body.as_bytes() },
                    );
                    (reply.unwrap().status, body)
                })
            })
            .collect();
        let results: Vec<(u16, String)> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let won: Vec<&String> = results.iter().filter(|(status, _)| *status < 300).map(|(_, body)| body).collect();
        assert_eq!(won.len(), 1, "{results:?}");
        assert!(results.iter().all(|(status, _)| *status < 300 || [409, 412].contains(status)), "{results:?}");
        assert_eq!(server.get(&ana, "f18/counter").body, won[0].as_bytes());
    }
}

#[test]
fn d11_one_idempotency_key_makes_one_run() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let body = json!({ "command": ["sh", "-c", "echo once >> /data/log"], "detach": true, "mounts": [{ "path": ana.path("d11"), "at": "/data" }] }).to_string();
    let bearer = format!("Bearer {}", ana.token);
    let ask = |key: &str, body: &str| {
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Idempotency-Key", key),
            ("Content-Type", "application/json"),
            ("Connection", "close"),
        ];
        http::send(
            server.address,
            Request { method: "POST", target: "/v1/runs", headers: &headers, body: body.as_bytes() },
        )
        .unwrap()
    };
    let ids: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| ask("d11-key", &body))).collect();
        let replies = asked.into_iter().map(|reply| reply.join().unwrap());
        replies
            .filter(|reply| reply.status < 300)
            .map(|reply| reply.json()["run"].as_str().unwrap().to_owned())
            .collect()
    });
    assert!(!ids.is_empty());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let settled = crate::host::within(Duration::from_secs(10), || server.get(&ana, "d11/log").status == 200);
    assert!(settled, "the run left nothing");
    assert_eq!(server.get(&ana, "d11/log").body, b"once\n");
    assert!(ask("d11-key", &body.replace("once", "twice")).status >= 400, "the key was taken for another order");
}

#[test]
fn a_read_only_mount_stays_as_it_was() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    server.put(&ana, "ro/file", b"kept");
    let code = "for p in /data/file /data/new; do echo x > $p; done; rm -f /data/file; chmod 777 /data; mv /data/file /data/g; ln /data/file /tmp/h; echo x > /tmp/h; true";
    let mounts = json!([{ "path": ana.path("ro"), "at": "/data", "read_only": true }]);
    for order in
        [Order::shell(code), Order::shell(&format!("sudo mount -o remount,rw /data; sudo sh -c '{code}'")).root()]
    {
        let outcome = server.run(&ana, &order.with("mounts", mounts.clone()));
        assert!(outcome.result().versions.is_empty(), "{}", outcome.summary());
        assert_eq!(server.get(&ana, "ro/file").body, b"kept");
        assert_eq!(server.get(&ana, "ro/new").status, 404);
    }
    // The checkout that other runs share is as it was.
    let seen = server.run(&ana, &Order::shell("cat /data/file; ls /data").with("mounts", mounts)).succeeded();
    assert_eq!(seen.text(), "keptfile\n");
}
