//! Groups T and K between tenants: neighbours, reuse, other tenants' names and ids.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bare::Bare;
use crate::host::{self, within};
use crate::oracle::Canary;
use crate::run::Order;
use crate::server::{User, beside_others, shared};

#[test]
fn k25_a_neighbour_can_be_neither_read_nor_harmed() {
    let _guard = beside_others();
    // The arm: both in the same bad jail, where the attacker is told the victim's number.
    let canary = Canary::fresh();
    let mut victim = Bare::start_with(&["--ipc"], "neighbour", &["keep", canary.text()], &[]);
    victim.ready();
    let target = *victim.processes().iter().max().unwrap();
    let mut attacker = Bare::start("neighbour", &["seek", &target.0.to_string()], &[]);
    attacker.ready();
    assert!(within(Duration::from_secs(3), || !target.alive()), "the arm killed nothing");
    assert!(
        canary.find(attacker.seen()).is_some(),
        "the arm read nothing: {}",
        String::from_utf8_lossy(attacker.seen())
    );

    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let canary = Canary::fresh();
    let victim = server.hold(&gus, &Order::attack("neighbour", &["keep", canary.text()]));
    let before: BTreeSet<_> = victim.processes().into_iter().collect();
    // It tries the numbers that processes have inside, and those that the host gave its victim.
    let numbers: Vec<String> =
        (1..400).chain(before.iter().map(|process| process.0)).map(|pid| pid.to_string()).collect();
    let args: Vec<&str> = std::iter::once("seek").chain(numbers.iter().map(String::as_str)).collect();
    for order in [
        Order::attack("neighbour", &args),
        Order::command(&[&["sudo", "python3", "-c", &crate::attack::text("neighbour")], args.as_slice()].concat())
            .root(),
    ] {
        let attacker = server.hold(&ana, &order);
        let seen = attacker.end();
        assert_eq!(canary.find(&seen.everything()), None, "the neighbour's nonce came out");
        let after: BTreeSet<_> = victim.processes().into_iter().collect();
        assert_eq!(before, after, "the neighbour's processes have changed");
        assert!(after.iter().all(|process| process.alive()));
        assert!(
            !after.iter().any(|process| process.status("State").unwrap().starts_with('T')),
            "the neighbour is stopped"
        );
    }
    victim.end();
}

#[test]
fn k26_ipc_objects_are_private_and_end_with_the_sandbox() {
    let _guard = beside_others();
    let table = || {
        ["shm", "sem", "msg"].map(|kind| std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default())
    };
    let has = |kind: &str| kind.lines().any(|line| line.trim().starts_with("4660 "));
    let has_all = |table: &[String; 3]| table.iter().all(|kind| has(kind));
    let before = table();
    assert!(!has_all(&before), "the host has what the attack makes: {before:?}");
    let canary = Canary::fresh();
    // The arm: where the host's objects are everybody's, they show there.
    let mut arm = Bare::start("neighbour", &["keep", canary.text()], &[]);
    arm.ready();
    assert!(has_all(&table()), "the arm made {:?}", table());
    drop(arm);
    let removed = Command::new("ipcrm").args(["-M", "0x1234", "-S", "0x1234", "-Q", "0x1234"]).status().unwrap();
    assert!(removed.success() && table() == before, "{:?}", table());

    let server = shared();
    let live = server.hold(&server.user("acme", "ana"), &Order::attack("neighbour", &["keep", canary.text()]));
    assert_eq!(table(), before, "an object of a sandbox is one of the host's");
    assert!(!std::path::Path::new("/dev/shm/hostile").exists());
    let init = live.init().0.to_string();
    let inside = ["shm", "sem", "msg"].map(|kind| {
        let path = format!("/proc/sysvipc/{kind}");
        let told = Command::new("nsenter").args(["-t", &init, "--ipc", "cat", &path]).output().unwrap();
        String::from_utf8_lossy(&told.stdout).into_owned()
    });
    // Queues and semaphores are no calls that the filter knows.
    assert_eq!(inside.each_ref().map(|kind| has(kind)), [true, false, false], "{inside:?}");
    live.end();
    assert_eq!(table(), before);
}

#[test]
fn t06_nothing_of_a_run_waits_for_the_next_tenant() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    for round in 0..4 {
        let canary = Canary::fresh();
        let order = Order::attack("leavings", &[canary.text()]);
        let order = if round % 2 == 1 { order.root() } else { order };
        let left = server.run(&ana, &order).succeeded();
        let gone = within(Duration::from_secs(3), || host::cage(&left.sandbox).is_empty());
        assert!(gone, "processes of a run that is over: {:?}", host::cage(&left.sandbox));
        let next = server.run(&gus, &Order::attack("empty_room", &[])).succeeded();
        assert_ne!(next.sandbox, left.sandbox, "a sandbox served twice");
        assert_eq!(canary.find(&next.everything()), None, "the next tenant found what the run left");
        let look = server
            .run(
                &gus,
                &Order::shell("ps -eo pid,args; cat /etc/ld.so.preload ~/.bashrc; ls -A /tmp /dev/shm; hostname"),
            )
            .text();
        assert!(!look.contains("left"), "{look}");
    }
}

/// Every route with an opaque id, as GET or POST.
fn id_routes(run: &str) -> Vec<(&'static str, String)> {
    vec![
        ("GET", format!("/v1/runs/{run}")),
        ("GET", format!("/v1/runs/{run}/events")),
        ("GET", format!("/v1/runs/{run}/events?after=0")),
        ("POST", format!("/v1/runs/{run}/cancel")),
    ]
}

/// Status and body without what differs by request.
fn shape(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("request_id");
    }
    body
}

#[test]
fn t01_another_tenants_run_is_one_that_never_was() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let canary = Canary::fresh();
    let live = server.hold(&gus, &Order::attack("holder", &[canary.text()]).env("NONCE", canary.text()));
    let (id, sandbox) = (live.so_far().run.clone(), live.so_far().sandbox.clone());
    let never = "run_00000000000000000000000000";
    let mut received = Vec::new();
    for ((method, theirs), (_, none)) in id_routes(&id).into_iter().zip(id_routes(never)) {
        let theirs = server.request(&ana, method, &theirs, b"");
        let none = server.request(&ana, method, &none, b"");
        assert_eq!((theirs.status, none.status), (404, 404), "{method}");
        let told = |reply: &crate::http::Reply, id: &str| {
            serde_json::from_str::<Value>(&String::from_utf8_lossy(&reply.body).replace(id, "ID"))
                .map(|body| shape(&body))
                .unwrap()
        };
        assert_eq!(told(&theirs, &id), told(&none, never), "the answers differ");
        received.extend(theirs.raw);
    }
    received.extend(server.request(&ana, "GET", "/v1/runs", b"").raw);
    received.extend(server.request(&ana, "GET", &format!("/v1/runs?after={id}"), b"").raw);
    assert_eq!(canary.find(&received), None);
    assert!(!String::from_utf8_lossy(&received).contains(&sandbox), "the other tenant's sandbox is named");
    assert!(host::cage(&sandbox).iter().all(|process| process.alive()), "the other tenant's run was cancelled");
    assert!(
        server.request(&gus, "GET", &format!("/v1/runs/{id}"), b"").status == 200,
        "its owner does not see it either"
    );
    live.end();
}

#[test]
fn t01_another_tenants_path_is_denied_alike_whether_it_exists_or_not() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let canary = Canary::fresh();
    server.put(&gus, "t01/plan", canary.text().as_bytes());
    let paths = ["/tenants/globex/t01/plan", "/tenants/globex/t01/none", "/tenants/nobody/x", "/tenants/globex"];
    let ways = [
        ("GET", "tree", ""),
        ("PUT", "tree", ""),
        ("DELETE", "tree", ""),
        ("GET", "tree-history", ""),
        ("GET", "tree-diff", "?to=main"),
        ("GET", "tree", "?ref=none"),
    ];
    let mut received = Vec::new();
    for (method, route, query) in ways {
        let mut shapes = BTreeSet::new();
        for path in paths {
            let reply = server.request(
                &ana,
                method,
                &format!("/v1/{route}{path}{query}"),
                if method == "PUT" { b"x" } else { b"" },
            );
            assert_eq!(reply.status, 403, "{method} {route}{path}: {}", String::from_utf8_lossy(&reply.raw));
            shapes.insert(
                shape(&reply.json())
                    .to_string()
                    .replace(path, "PATH")
                    .replace("nobody", "TENANT")
                    .replace("globex", "TENANT"),
            );
            received.extend(reply.raw);
        }
        assert_eq!(shapes.len(), 1, "the answers differ: {shapes:?}");
    }
    for path in paths {
        for read_only in [true, false] {
            let body = json!({ "command": ["cat", "/data/plan"], "mounts": [{ "path": path, "at": "/data", "read_only": read_only }] });
            let reply = server.post(&ana, "/v1/runs", &body);
            assert_eq!(reply.status, 403, "{path}: {}", String::from_utf8_lossy(&reply.raw));
            assert!(!reply.json()["policies"].as_array().unwrap().is_empty(), "the denial names no policy");
            received.extend(reply.raw);
        }
    }
    assert_eq!(canary.find(&received), None);
}

#[test]
fn t03_no_field_that_is_not_the_callers_to_set_is_taken() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let fields = [
        ("tenant", json!("globex")),
        ("tenant_id", json!("globex")),
        ("user", json!("gus")),
        ("principal", json!({ "tenant": "globex" })),
        ("privileged", json!(true)),
        ("host_path", json!("/etc")),
        ("network", json!("host")),
        ("uid", json!(0)),
        ("runtime", json!("runc")),
        ("capabilities", json!(["SYS_ADMIN"])),
        ("seccomp", json!("unconfined")),
        ("pid", json!("host")),
        ("devices", json!(["/dev/kvm"])),
        ("sandbox", json!("sbx00000000000000000000000000")),
        ("run", json!("run_00000000000000000000000000")),
        ("volumes", json!([])),
        ("image", json!("x")),
        ("parked", json!(false)),
        ("fences", json!([])),
        ("Root", json!(true)),
    ];
    let order = |extra: &[(&str, &Value)], at: Option<&str>| {
        let mut body =
            json!({ "command": ["true"], "mounts": [{ "path": ana.path("t03"), "at": "/data" }], "limits": {} });
        for (name, value) in extra {
            match at {
                None => body[*name] = (*value).clone(),
                Some("mounts") => body["mounts"][0][*name] = (*value).clone(),
                Some(part) => body[part][*name] = (*value).clone(),
            }
        }
        body
    };
    assert_eq!(server.post(&ana, "/v1/runs", &order(&[], None)).status, 200, "the order is refused anyway");
    let count = || server.request(&ana, "GET", "/v1/runs", b"").json()["runs"].as_array().unwrap().len();
    let before = count();
    for (name, value) in &fields {
        for at in [None, Some("mounts"), Some("limits")] {
            let reply = server.post(&ana, "/v1/runs", &order(&[(name, value)], at));
            let text = String::from_utf8_lossy(&reply.raw).into_owned();
            assert_eq!(reply.status, 400, "`{name}` in {at:?}: {text}");
            let told = reply.json();
            assert!(told["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "no hint: {text}");
        }
    }
    // Who asks comes from the token alone.
    for (name, value) in [
        ("X-Tenant", "globex"),
        ("X-Bailey-Tenant", "globex"),
        ("X-Forwarded-User", "gus"),
        ("X-Context", "{\"tenant\":\"globex\"}"),
        ("X-Roles", "admin"),
    ] {
        let bearer = format!("Bearer {}", ana.token);
        let headers = [("Authorization", bearer.as_str()), (name, value), ("Connection", "close")];
        let request = crate::http::Request {
            method: "GET",
            target: "/v1/tree/tenants/globex/plan",
            headers: &headers,
            body: b"",
        };
        assert_eq!(crate::http::send(server.address, request).unwrap().status, 403, "{name}");
    }
    assert!(count() <= before + 12, "refused orders made runs");
}

#[test]
fn a11_every_route_wants_a_token() {
    let _guard = beside_others();
    let server = shared();
    let real = server.user("acme", "ana");
    let parts: Vec<&str> = real.token.split('.').collect();
    let none = "eyJhbGciOiJub25lIn0";
    let forged = [
        String::new(),
        "x".to_owned(),
        format!("{none}.{}.", parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}.{}", parts[0], parts[1], "A".repeat(86)),
    ];
    let routes = [
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs"),
        ("GET", "/v1/runs/run_00000000000000000000000000"),
        ("GET", "/v1/runs/run_00000000000000000000000000/events"),
        ("POST", "/v1/runs/run_00000000000000000000000000/cancel"),
        ("GET", "/v1/tree/tenants/acme/x"),
        ("PUT", "/v1/tree/tenants/acme/x"),
        ("DELETE", "/v1/tree/tenants/acme/x"),
        ("GET", "/v1/tree-history/tenants/acme/x"),
        ("GET", "/v1/tree-diff/tenants/acme/x?to=main"),
    ];
    for (method, target) in routes {
        for token in &forged {
            let user = User { tenant: "acme".to_owned(), token: token.clone() };
            let reply =
                server.request(&user, method, target, if method == "POST" { b"{\"command\":[\"true\"]}" } else { b"" });
            assert_eq!(reply.status, 401, "{method} {target} with `{token}`: {}", String::from_utf8_lossy(&reply.raw));
        }
    }
}
