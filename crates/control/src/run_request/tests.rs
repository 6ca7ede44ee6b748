use bailey_protocol::limits::Limits;

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
        (with(serde_json::json!([mount("/tenants/a", "/proc/x")])), "invalid_mount"),
        (with(serde_json::json!([mount("/tenants/a", "/d"), mount("/tenants/b", "/d/e")])), "invalid_mount"),
        (with(serde_json::json!([mount("/tenants/a", "/d"), mount("/tenants/b", "/d")])), "invalid_mount"),
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
