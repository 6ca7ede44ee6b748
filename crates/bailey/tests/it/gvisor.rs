//! Runs on a kernel in user space, from the command line to the tree.

use std::process::Stdio;

use crate::server::{Server, text};

const CONFIG: &str = "parked = 1\n[walls.gvisor]\nparked = 1\n";

#[test]
fn what_a_run_behind_gvisor_changes_is_a_new_version() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), CONFIG);
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/in/x", "content\n");
    let run = ["run", "--wall", "gvisor", "--mount", "/tenants/acme/in:/data", "--", "sh", "-c"];
    let script = "cat /data/x; uname -r; echo new > /data/y; mkdir /data/d; mkfifo /data/p; exit 3";
    let output = ana.output(&[&run[..], &[script]].concat());
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "content\n4.4.0\n".to_owned()), "{said}");
    let version = ana.ok(&["log", "-n", "1", "/tenants/acme/in"]);
    assert!(said.contains(version.split(' ').next().unwrap()) && said.contains('p'), "{said} {version}");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/in/y"]), "new\n");
    let told = ana.ok(&["--json", "run", "--wall", "gvisor", "--", "true"]);
    for fence in ["runsc:0.0~20221219.0", "platform:ptrace", "scratch:tmpfs"] {
        assert!(told.contains(fence), "{fence}: {told}");
    }
    let output = ana.output(
        &[&run[..], &["echo partial > /data/z; python3 -c 'b=[]\nwhile 1: b.append(bytearray(1<<24))'"]].concat(),
    );
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("ran out of memory") && said.contains("could not be kept"),
        "{said}"
    );
    assert!(!ana.output(&["cat", "/tenants/acme/in/z"]).status.success());
}

#[test]
fn a_wall_that_is_named_and_cannot_be_had_is_no_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.toml"), "[walls.gvisor]\nrunsc = '/nowhere/runsc'\n").unwrap();
    let started = Server::command(folder.path()).stdout(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert!(!started.status.success() && started.stdout.is_empty());
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("/nowhere/runsc"), "{log}");
}

#[test]
fn a_wall_that_nobody_named_is_said_not_to_be_there() {
    let server = Server::start();
    let output = server.user("acme", "ana").output(&["run", "--wall", "gvisor", "--", "true"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("gvisor"), "{said}");
}
