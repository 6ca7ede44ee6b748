//! Runs on a kernel of their own, from the command line to the tree.

use crate::server::{Server, text};

const CONFIG: &str = "parked = 1\n[walls.microvm]\nparked = 1\n";

#[test]
fn what_a_run_in_a_machine_changes_is_a_new_version() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), CONFIG);
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/in/x", "content\n");
    let run = ["run", "--wall", "microvm", "--mount", "/tenants/acme/in:/data", "--", "sh", "-c"];
    let script =
        "cat /data/x; cat /proc/sys/kernel/osrelease; echo new > /data/y; mkdir /data/d; mkfifo /data/p; exit 3";
    let output = ana.output(&[&run[..], &[script]].concat());
    let (said, told) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(3), "{said}");
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(told.starts_with("content\n") && told.contains("cloud") && !told.contains(host.trim()), "{told}");
    let version = ana.ok(&["log", "-n", "1", "/tenants/acme/in"]);
    assert!(said.contains(version.split(' ').next().unwrap()) && said.contains('p'), "{said} {version}");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/in/y"]), "new\n");
    let told = ana.ok(&["--json", "run", "--wall", "microvm", "--", "true"]);
    for fact in ["\"accelerated\":false", "\"wall\":\"microvm\"", "\"entropy\"", "\"seccomp_program\""] {
        assert!(told.contains(fact), "{fact}: {told}");
    }
    // More memory than a machine has is said so before anything runs.
    let output = ana.output(&["run", "--wall", "microvm", "--memory", "1200M", "--", "true"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("less memory"), "{said}");
}
