//! Branches, labels, tree tokens, baselines and a run's own files, from the command line to the sandbox.

use crate::server::{Server, bailey, text};

#[test]
fn a_change_goes_from_a_fork_through_a_run_to_a_protected_main() {
    let server = Server::start();
    let (ana, rita) = (server.user("acme", "ana"), server.admin("acme", "rita"));
    ana.put("/tenants/acme/app/in", "1\n");
    rita.ok(&["protect", "main", "--review"]);
    // Straight to `main` goes nothing, and a run's work is kept beside it.
    let refused = ana.output(&["rm", "/tenants/acme/app/in"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("branch_protected"), "{refused:?}");
    let mount = ["run", "--mount", "/tenants/acme/app:/data"];
    let output = ana.output(&[&mount[..], &["--", "sh", "-c", "echo aside > /data/aside"]].concat());
    assert!(output.status.success() && text(&output.stderr).contains("protected"), "{output:?}");
    let branches = ana.ok(&["branches"]);
    assert!(branches.contains("main  protected") && branches.contains(" runs/run_"), "{branches}");
    // On a fork it works; its author does not promote it, somebody else does.
    ana.ok(&["fork", "draft"]);
    let on_draft = [&mount[..], &["--branch", "draft", "--", "sh", "-c", "echo out > /data/out"]].concat();
    ana.ok(&on_draft);
    let own = ana.output(&["promote", "draft", "--into", "main"]);
    assert!(!own.status.success() && text(&own.stderr).contains("review_required"), "{own:?}");
    assert!(rita.ok(&["promote", "draft", "--into", "main"]).starts_with("main forwarded to "));
    assert_eq!(ana.ok(&["cat", "/tenants/acme/app/out"]), "out\n");
    assert!(rita.ok(&["promote", "draft", "--into", "main"]).contains("had it all already"));
    rita.ok(&["unprotect", "main"]);
    // A conflict names the paths and leaves both sides.
    ana.put("/tenants/acme/app/out", "main's\n");
    ana.ok(&[&mount[..], &["--branch", "draft", "--", "sh", "-c", "echo draft > /data/out"]].concat());
    let conflict = ana.output(&["promote", "draft", "--into", "main"]);
    assert!(!conflict.status.success() && text(&conflict.stderr).contains("  /tenants/acme/app/out\n"), "{conflict:?}");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/app/out"]), "main's\n");
    ana.ok(&["branches", "--delete", "draft"]);
    assert!(!ana.ok(&["branches"]).contains("draft"));
    // From what was, and from another branch.
    let first = ana.json(&["log", "/tenants/acme"])["versions"].as_array().unwrap().last().unwrap()["version"].clone();
    ana.ok(&["fork", "old", "--from", first.as_str().unwrap()]);
    assert_eq!(ana.ok(&["ls", "-r", "/tenants/acme", "--ref", "old"]).lines().count(), 2);
    assert!(ana.ok(&["fork", "older", "--from", "old"]).contains(first.as_str().unwrap()));
    assert!(ana.fails(1, &["fork", "old"]).contains("branch_exists"));
}

#[test]
fn labels_follow_a_run_and_tokens_open_a_part() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    ana.put("/tenants/acme/secret/in", "1\n");
    assert_eq!(ana.ok(&["label", "/tenants/acme/secret", "confidential", "untrusted"]), "confidential\nuntrusted\n");
    let mounts = ["--mount", "/tenants/acme/secret:/in:ro", "--mount", "/tenants/acme/out:/out"];
    ana.ok(&[&["run"], &mounts[..], &["--", "cp", "/in/in", "/out/copy"]].concat());
    assert_eq!(ana.ok(&["label", "/tenants/acme/out/copy"]), "confidential\nuntrusted\n");
    ana.ok(&["label", "/tenants/acme/out/copy", "--clear"]);
    assert_eq!(ana.ok(&["label", "/tenants/acme/out/copy"]), "");
    let token = ana.ok(&["share", "/tenants/acme/out", "--read", "--minutes", "5"]);
    let with = |arguments: &[&str]| {
        bailey().args(["--server", &ana.url, "--token", token.trim()]).args(arguments).output().unwrap()
    };
    assert_eq!(text(&with(&["cat", "/tenants/acme/out/copy"]).stdout), "1\n");
    assert!(!with(&["cat", "/tenants/acme/secret/in"]).status.success());
    assert!(!with(&["rm", "/tenants/acme/out/copy"]).status.success());
    let list = ana.ok(&["share", "list"]);
    ana.ok(&["share", "revoke", list.split(' ').next().unwrap()]);
    assert!(!with(&["cat", "/tenants/acme/out/copy"]).status.success());
}

#[test]
fn files_of_a_run_are_seen_by_it_and_never_enter_the_tree() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let local = server.folder().join("input.bin");
    std::fs::write(&local, b"\xff\0binary").unwrap();
    let file = format!("{}:/tmp/in/input.bin", local.display());
    let run = |extra: &[&str], script: &str| {
        ana.output(&[&["run", "--file", &file], extra, &["--", "sh", "-c", script]].concat())
    };
    // Parked at first, and cold when the next comes sooner than the pool refills.
    for _ in 0..3 {
        let output =
            run(&["--mount", "/tenants/acme/out:/out"], "cat /tmp/in/input.bin; stat -c %u /tmp/in/input.bin >&2");
        assert_eq!(output.stdout, b"\xff\0binary");
        assert!(text(&output.stderr).ends_with("\n1000\n"), "{output:?}");
    }
    assert_eq!(ana.ok(&["ls", "/tenants/acme"]), "", "no run made a version");
    let below = run(&["--mount", "/tenants/acme/out:/tmp/in"], "true");
    assert!(!below.status.success() && text(&below.stderr).contains("invalid_file"), "{below:?}");
    let gone = ana.output(&["run", "--", "cat", "/tmp/in/input.bin"]);
    assert!(!gone.status.success(), "the next run sees nothing of it");
}

#[test]
fn a_baseline_is_published_and_forked() {
    let server = Server::start();
    let folder = server.folder().join("starter");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("src/main.py"), "print(1)\n").unwrap();
    let arguments = ["token", "--operator", "root", "--data"];
    let output = bailey().args(arguments).arg(server.data()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let publish = |token: &str| {
        let mut command = bailey();
        command.args(["--server", &server.url, "--token", token, "baseline", "publish", "starter"]).arg(&folder);
        command.output().unwrap()
    };
    assert_eq!(text(&publish(text(&output.stdout).trim()).stdout), "baseline:starter@1\n");
    assert!(server.operator().ok(&["baseline", "list", "--operator"]).starts_with("baseline:starter@1 "));
    for (tenant, user) in [("acme", "ana"), ("globex", "eve")] {
        let user = server.user(tenant, user);
        assert!(!publish(&user.token).status.success());
        assert!(user.ok(&["baseline", "list"]).starts_with("baseline:starter@1 "));
        user.ok(&["fork", "main", "--from", "baseline:starter"]);
        assert_eq!(user.ok(&["cat", &format!("/tenants/{tenant}/src/main.py")]), "print(1)\n");
    }
}
