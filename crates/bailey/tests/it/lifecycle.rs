//! Starting, stopping, dying and coming back.

use rustix::process::Signal;

use crate::server::{Server, bailey, eventually, runs, text};

#[test]
fn a_second_server_on_the_same_folder_refuses_to_start() {
    let server = Server::start();
    let output = Server::command(server.folder()).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stdout).is_empty());
    let log = server.log();
    assert!(log.contains("lock"), "{log}");
    // The first one is none the worse for it.
    assert_eq!(server.user("acme", "ana").ok(&["run", "--", "echo", "fine"]), "fine\n");
}

#[test]
fn a_shutdown_lets_runs_end_and_leaves_nothing() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let child =
        ana.start(&["run", "--mount", "/tenants/acme/o:/o", "--", "sh", "-c", "echo there; sleep 1; echo done > /o/x"]);
    let (status, folder) = server.end(Signal::TERM);
    assert!(status.success(), "{status}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let server = Server::start_in(folder, "");
    assert_eq!(ana.at(&server).ok(&["cat", "/tenants/acme/o/x"]), "done\n");
}

#[test]
fn a_shutdown_cancels_what_does_not_end() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), "drain_seconds = 1\nparked = 0\n");
    let ana = server.user("acme", "ana");
    let mark = "600.015625";
    let child = ana.start(&["run", "--timeout", "10m", "--", "sh", "-c", &format!("echo there; sleep {mark}")]);
    let (status, _folder) = server.end(Signal::INT);
    assert!(status.success(), "{status}");
    assert!(!runs(mark), "the shutdown left a process");
    assert_ne!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn after_kill_9_of_the_supervisor_writes_are_there_and_runs_end_as_node_restarted() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/kept", "acknowledged");
    let mark = "600.0078125";
    let child = ana.start(&["run", "--timeout", "10m", "--", "sh", "-c", &format!("echo there; setsid sleep {mark}")]);
    let (_killed, folder) = server.end(Signal::KILL);
    // What the client saw of it is no success.
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(125));
    let server = Server::start_in(folder, "");
    assert!(!runs(mark), "the sweep left a process");
    let ana = ana.at(&server);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/kept"]), "acknowledged");
    assert!(ana.ok(&["runs"]).contains("node restarted"), "{}", ana.ok(&["runs"]));
    assert_eq!(ana.ok(&["run", "--", "echo", "again"]), "again\n");
}

#[test]
fn after_kill_9_of_the_server_alone_the_jail_starts_it_again() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/kept", "acknowledged");
    let mark = "600.00390625";
    let child = ana.start(&["run", "--timeout", "10m", "--", "sh", "-c", &format!("echo there; sleep {mark}")]);
    rustix::process::kill_process(server.pid(), Signal::KILL).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(125));
    eventually("the server is back", || ana.output(&["runs"]).status.success());
    assert!(!runs(mark), "a cage outlived its server");
    assert!(ana.ok(&["runs"]).contains("node restarted"));
    assert_eq!(ana.ok(&["cat", "/tenants/acme/kept"]), "acknowledged");
    assert_eq!(ana.ok(&["run", "--", "echo", "again"]), "again\n");
}

#[test]
fn l10_the_memory_of_the_server_is_nobodys_to_read() {
    let server = Server::start();
    let process = format!("/proc/{}", server.pid().as_raw_nonzero());
    let uids = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let uid = uids.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().split_whitespace().next().unwrap();
    assert_ne!(uid, "0");
    // The kernel gives what belongs to a process that cannot be dumped to root, whoever it runs as.
    let memory = std::fs::metadata(format!("{process}/mem")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&memory), 0);
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (config, word) in
        [("parkd = 1", "parkd"), ("parked = 5000", "parked"), ("listen = 7", "listen"), ("[", "config.toml")]
    {
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        let mut command = bailey();
        command.args(["serve", "--config"]).arg(folder.path().join("config.toml"));
        let output = command.arg("--data").arg(folder.path().join("data")).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{config}");
        assert!(text(&output.stderr).contains(word), "{config}: {}", text(&output.stderr));
        assert!(!folder.path().join("data").exists(), "{config} left a data folder");
    }
    std::fs::write(folder.path().join("bad.cedar"), "permit (principal, action, resource) when { nonsense };").unwrap();
    std::fs::write(folder.path().join("config.toml"), format!("policies = {:?}", folder.path())).unwrap();
    let output = Server::command(folder.path()).output().unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!output.status.success() && log.contains("bad.cedar"), "{log}");
}

#[test]
fn an_operators_policy_forbids_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "@id(\"no-secrets\")\nforbid (principal, action, resource is Path) when { resource.path like \"/tenants/*/secret/*\" };";
    std::fs::write(folder.path().join("house.cedar"), policy).unwrap();
    let config = format!("policies = {:?}\n", folder.path());
    let server = Server::start_in(folder, &config);
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/open/x", "fine");
    assert!(ana.fails(1, &["cat", "/tenants/acme/secret/x"]).contains("no-secrets"));
}
