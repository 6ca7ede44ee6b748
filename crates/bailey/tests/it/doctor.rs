//! `bailey doctor` and `bailey token`: without a server.

use crate::server::{Server, bailey, text};

#[test]
fn doctor_proves_the_container_wall_by_booting_it() {
    let output = bailey().args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let wall = &report["walls"][0];
    assert_eq!((&wall["name"], &wall["usable"]), (&"container".into(), &true.into()), "{report}");
    assert!(wall["accelerated"].is_null() && wall["version"].is_string() && wall["reason"].is_string());
    assert!(wall["proof_ms"].as_u64().unwrap() > 0);
    let gvisor = &report["walls"][1];
    assert_eq!((&gvisor["name"], &gvisor["usable"]), (&"gvisor".into(), &true.into()), "{report}");
    assert!(gvisor["proof_ms"].as_u64().unwrap() > 0 && gvisor["version"].as_str().unwrap().contains("20221219"));
    // Debian's, of 2022.
    assert!(gvisor["warnings"][0].as_str().unwrap().contains("more than a year old"), "{report}");
    assert!(report["host"]["landlock_abi"].as_u64().unwrap() >= 2);
    assert!(report["missing"].as_array().unwrap().is_empty());
}

#[test]
fn doctor_says_what_is_missing_without_root() {
    // As a user who can reach no build folder below a private home, from a copy that everyone may read.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.path().join("bailey");
    std::fs::copy(env!("CARGO_BIN_EXE_bailey"), &copy).unwrap();
    let user = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&copy).args(arguments);
        command.current_dir("/").output().unwrap()
    };
    let output = user(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["walls"][0]["usable"], false);
    assert!(report["walls"][0]["reason"].as_str().unwrap().contains("root"), "{report}");
    for arguments in [&["serve"][..], &["token", "--tenant", "a", "--user", "b", "--role", "member"]] {
        let output = user(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("root"), "{}", text(&output.stderr));
    }
}

#[test]
fn tokens_expire_and_grant_only_what_they_name() {
    let server = Server::start();
    let token = |more: &[&str]| {
        let mut command = bailey();
        command.args(["token", "--tenant", "acme", "--user", "ana", "--role", "member", "--data"]).arg(server.data());
        command.args(more).output().unwrap()
    };
    let runs = |token: &str| {
        let mut command = bailey();
        command.args(["--server", &server.url, "--token", token, "run", "--", "true"]).output().unwrap()
    };
    let output = token(&["--entitle", "tree"]);
    let refused = runs(text(&output.stdout).trim());
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("entitled-to-execute"), "{}", text(&refused.stderr));

    let output = token(&["--ttl", "2s", "--json"]);
    let minted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(minted["expires_ms"].as_u64().is_some());
    let brief = minted["token"].as_str().unwrap();
    crate::server::eventually("the token has expired", || {
        let refused = runs(brief);
        refused.status.code() == Some(125) && text(&refused.stderr).contains("401")
    });
    for bad in [&["--ttl", "0s"][..], &["--ttl", "9999d"], &["--entitle", "everything"], &["--role", "A B"]] {
        let output = token(bad);
        assert!(!output.status.success() && output.stdout.is_empty(), "{bad:?}");
    }
    let output = bailey()
        .args(["token", "--tenant", "a", "--user", "b", "--role", "member", "--data", "/nonexistent"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("start `bailey serve`"), "{}", text(&output.stderr));
}
