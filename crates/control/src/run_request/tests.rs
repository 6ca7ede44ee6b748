use bailey_protocol::limits::{LargeDisks, Limits};

use super::*;
use crate::config::ControlConfig;

fn check(body: serde_json::Value) -> Result<PlannedRun, &'static str> {
    let request: RunRequest = serde_json::from_value(body).unwrap();
    plan(request, &ControlConfig::new("base".parse().unwrap()).runs).map_err(|error| error.code)
}

#[test]
fn a_command_alone_gets_every_default() {
    let planned = check(serde_json::json!({"command": ["true"]})).unwrap();
    assert_eq!(planned.command, ["true"]);
    assert_eq!(planned.template.as_str(), "base");
    assert_eq!(planned.limits, Limits::default());
    assert!(!planned.root && planned.mounts.is_empty());
}

#[test]
fn code_becomes_a_command() {
    let planned = check(serde_json::json!({"code": "print(1)", "language": "python"})).unwrap();
    assert_eq!(planned.command, ["python3", "-c", "print(1)"]);
}

#[test]
fn a_small_memory_brings_a_disk_that_fits() {
    let planned = check(serde_json::json!({"command": ["true"], "limits": {"memory_bytes": 64 << 20}})).unwrap();
    assert_eq!(planned.limits.disk_bytes, 32 << 20);
}

#[test]
fn a_disk_larger_than_memory_takes_what_the_operator_set_aside() {
    let mut config = ControlConfig::new("base".parse().unwrap()).runs;
    let plan = |config: &RunConfig, limits: serde_json::Value| {
        let body = serde_json::json!({"command": ["true"], "limits": limits});
        plan(serde_json::from_value(body).unwrap(), config)
    };
    let asked = serde_json::json!({"memory_bytes": 64 << 20, "disk_bytes": 128 << 20});
    let refused = plan(&config, asked.clone()).unwrap_err();
    assert!(refused.code == "invalid_limit" && refused.hint.contains("[large_disks]"), "{refused:?}");
    config.large_disks = Some(LargeDisks { count: 1, bytes: 1 << 30, inodes: 40_000 });
    // Who says nothing of files gets as many as such a disk has.
    assert_eq!(plan(&config, asked).unwrap().limits.disk_inodes, 128 << 8);
    let whole = serde_json::json!({"memory_bytes": 64 << 20, "disk_bytes": 1 << 30});
    assert_eq!(plan(&config, whole).unwrap().limits.disk_inodes, 40_000);
    let greedy = serde_json::json!({"memory_bytes": 64 << 20, "disk_bytes": (1 << 30) + 1});
    assert_eq!(plan(&config, greedy).unwrap_err().code, "invalid_limit");
    let many = serde_json::json!({"memory_bytes": 64 << 20, "disk_bytes": 1 << 30, "disk_inodes": 40_001});
    assert_eq!(plan(&config, many).unwrap_err().code, "invalid_limit");
}

#[test]
fn files_have_places_and_sizes() {
    let with = |files: serde_json::Value| {
        let mounts = serde_json::json!([{"path": "/tenants/a/x", "at": "/tmp/mount/d"}]);
        serde_json::json!({"command": ["true"], "mounts": mounts, "files": files})
    };
    let text = |text: &str| serde_json::json!({"text": text});
    let planned = check(with(serde_json::json!({
        "/tmp/a b": text("x"), "/home/user/.config/c": {"base64": "/wA="}, "/tmp/mount2": text("")
    })));
    let files = planned.unwrap().files;
    let shown: Vec<_> = files.iter().map(|file| (file.at.as_str(), &*file.content)).collect();
    assert_eq!(shown, [("/home/user/.config/c", &b"\xff\0"[..]), ("/tmp/a b", b"x"), ("/tmp/mount2", b"")]);
    for place in ["/tmp", "/etc/passwd", "/tmpx/a", "/proc/self/mem", "/run/x", "/x", "/home/other/x", "/usr/bin/sudo"]
    {
        assert_eq!(check(with(serde_json::json!({place: text("x")}))).unwrap_err(), "invalid_file", "{place}");
    }
    for place in ["/tmp/mount/d", "/tmp/mount/d/x", "/tmp/mount"] {
        assert_eq!(check(with(serde_json::json!({place: text("x")}))).unwrap_err(), "invalid_file", "{place}");
    }
    let nested = serde_json::json!({"/tmp/a": text("x"), "/tmp/a.b": text("x"), "/tmp/a/b": text("x")});
    assert_eq!(check(with(nested)).unwrap_err(), "invalid_file");
    assert_eq!(check(with(serde_json::json!({"/tmp/a": {"base64": "*"}}))).unwrap_err(), "invalid_file");
    let large = "x".repeat(600 * 1024);
    let two = serde_json::json!({"/tmp/a": text(&large), "/tmp/b": text(&large)});
    assert_eq!(check(with(two)).unwrap_err(), "files_too_large");
    let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("/tmp/{n}"), text("x"))).collect();
    assert_eq!(check(with(many.into())).unwrap_err(), "too_many_files");
    let both = with(serde_json::json!({"/tmp/a": {"text": "x", "base64": ""}}));
    assert!(serde_json::from_value::<RunRequest>(both).is_err());
}

#[test]
fn what_cannot_be_carried_out_is_named() {
    let long = "x".repeat(130 * 1024);
    let mount = |path: &str, at: &str| serde_json::json!({"path": path, "at": at});
    let with = |mounts: serde_json::Value| serde_json::json!({"command": ["true"], "mounts": mounts});
    let on = |branch: &str| serde_json::json!({"path": "/tenants/a/y", "at": "/e", "branch": branch});
    let many: Vec<_> = (0..17).map(|n| mount(&format!("/tenants/a/{n}"), &format!("/m{n}"))).collect();
    for (body, code) in [
        (serde_json::json!({}), "invalid_command"),
        (serde_json::json!({"command": []}), "invalid_command"),
        (serde_json::json!({"command": [""]}), "invalid_command"),
        (serde_json::json!({"command": ["a\0"]}), "invalid_command"),
        (serde_json::json!({"command": ["a"], "code": "b"}), "invalid_command"),
        (serde_json::json!({"command": ["a"], "language": "bash"}), "invalid_command"),
        (serde_json::json!({"code": "b"}), "invalid_command"),
        (serde_json::json!({"language": "bash"}), "invalid_command"),
        (serde_json::json!({"code": long, "language": "bash"}), "code_too_large"),
        (serde_json::json!({"command": [long.clone()]}), "command_too_long"),
        (serde_json::json!({"command": vec!["a"; 5000]}), "command_too_long"),
        (serde_json::json!({"command": ["a"], "env": {"A=B": "c"}}), "invalid_env"),
        (serde_json::json!({"command": ["a"], "env": {"": "c"}}), "invalid_env"),
        (serde_json::json!({"command": ["a"], "env": {"A": "\0"}}), "invalid_env"),
        (serde_json::json!({"command": ["a"], "stdin": "x".repeat(1024 * 1024 + 1)}), "stdin_too_large"),
        (serde_json::json!({"command": ["a"], "limits": {"pids": 0}}), "invalid_limit"),
        (serde_json::json!({"command": ["a"], "limits": {"memory_bytes": u64::MAX}}), "invalid_limit"),
        (with(serde_json::json!([mount("/tenants/a", "/d"), mount("/tenants/b", "/d/e")])), "invalid_mount"),
        (with(serde_json::json!([mount("/tenants/a", "/d"), mount("/tenants/b", "/d")])), "invalid_mount"),
        (with(serde_json::json!([mount("/tenants/a", &"/d".repeat(17))])), "invalid_mount"),
        (with(serde_json::json!([mount("/tenants/a", "/d"), mount("/tenants/a/x", "/e")])), "invalid_mount"),
        (with(serde_json::json!([mount("/tenants/a/x", "/d"), on("other")])), "invalid_mount"),
        (with(serde_json::json!(many)), "too_many_mounts"),
    ] {
        assert_eq!(check(body.clone()).unwrap_err(), code, "{body}");
    }
}

#[test]
fn what_only_looks_like_an_overlap_is_fine() {
    let body = serde_json::json!({"command": ["true"], "mounts": [
        {"path": "/tenants/a/x", "at": "/data"},
        {"path": "/tenants/a/xy", "at": "/database"},
        {"path": "/tenants/a", "at": "/all", "read_only": true},
        {"path": "/tenants/a/users/ana/x", "at": "/own", "branch": "draft"},
    ]});
    assert_eq!(check(body).unwrap().mounts.len(), 4);
}

#[test]
fn nothing_is_mounted_over_the_system_and_the_answer_names_places_for_it() {
    let config = ControlConfig::new("base".parse().unwrap()).runs;
    let at = |at: &str| {
        let mounts = serde_json::json!([{"path": "/tenants/a", "at": at, "read_only": true}]);
        let request = serde_json::json!({"command": ["true"], "mounts": mounts});
        plan(serde_json::from_value(request).unwrap(), &config)
    };
    for place in [
        "/bin",
        "/boot",
        "/dev/shm",
        "/etc",
        "/etc/ssl",
        "/home",
        "/lib",
        "/lib64",
        "/proc/x",
        "/root",
        "/run/x",
        "/sbin",
        "/sys",
        "/usr",
        "/usr/local/bin",
        "/var",
        "/var/lib",
        "/var/log/x",
    ] {
        let error = at(place).unwrap_err();
        assert_eq!((error.code, error.message.contains(&format!("`{place}`"))), ("invalid_mount", true), "{place}");
        assert!(["/data", "/work", "/mnt/NAME", "/home/user/"].iter().all(|good| error.hint.contains(good)), "{place}");
    }
    for place in [
        "/data",
        "/work",
        "/mnt",
        "/mnt/x",
        "/home/user",
        "/home/user/x",
        "/tmp/x",
        "/var/tmp/x",
        "/var/www/html",
        "/opt/x",
        "/srv",
        "/etcetera",
        "/library",
        "/users",
        "/varia",
    ] {
        assert!(at(place).is_ok(), "{place}");
    }
}
