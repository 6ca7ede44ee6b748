//! What is misspelt, missing or unreachable: a message says so, what there is to do next, and no code is a success.

use std::io::Read as _;
use std::process::Stdio;

use crate::server::{Server, bailey, text};

const NONE: &str = "/tenants/acme/nope";

#[test]
fn a_path_that_is_not_there_is_an_error_of_every_verb() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    ana.put("/tenants/acme/reports/q1", "1\n");
    for arguments in [
        &["ls", NONE][..],
        &["cat", NONE],
        &["get", NONE],
        &["log", NONE],
        &["diff", NONE],
        &["blame", NONE],
        &["rm", NONE],
        &["mv", NONE, "/tenants/acme/x"],
        &["cp", NONE, "/tenants/acme/x"],
        &["edit", NONE, "--old", "a", "--new", "b"],
        &["archive", NONE, "/nonexistent/x.tar"],
        &["purge", NONE],
    ] {
        let said = ana.fails(1, arguments);
        assert!(said.contains("nope") && said.contains("not_found"), "{arguments:?}: {said}");
        assert!(!said.contains("/v1/"), "{arguments:?}: {said}");
    }
    // What is to come can be labelled and shared beforehand: who misspelt a path is told that nothing is there.
    for arguments in [&["label", NONE][..], &["label", NONE, "confidential"], &["share", NONE, "--read"]] {
        let output = ana.output(arguments);
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains("nothing is at that path"), "{arguments:?}: {output:?}");
    }
    ana.ok(&["label", NONE, "--clear"]);
    let said = ana.fails(125, &["run", "--mount", &format!("{NONE}:/data:ro"), "--", "true"]);
    assert!(said.contains(&format!("`{NONE}` does not exist")), "{said}");
    // Where it may write, a run makes it: its reader is told that it found nothing.
    let output = ana.output(&["run", "--mount", &format!("{NONE}:/data"), "--", "true"]);
    assert!(output.status.success() && text(&output.stderr).contains("does not exist yet"), "{output:?}");
    // A folder is made for what is to come, and a path is looked for on every branch.
    ana.ok(&["mkdir", NONE]);
    assert_eq!(ana.ok(&["label", NONE, "confidential"]), "confidential\n");
    ana.ok(&["rm", NONE]);
    assert_eq!(ana.ok(&["label", NONE]), "confidential\n");
    assert!(ana.ok(&["label", NONE, "--clear"]).contains("no labels"));
    ana.ok(&["fork", "draft"]);
    ana.ok(&["mkdir", "--ref", "draft", NONE]);
    ana.ok(&["share", NONE, "--read"]);
    // What was there has a history, and a store without a version is no error.
    assert_eq!(ana.ok(&["log", NONE]).lines().count(), 2);
    assert_eq!(server.user("globex", "gil").ok(&["log", "/tenants/globex"]), "");
}

#[test]
fn a_branch_that_is_not_there_is_an_error_of_every_verb() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    ana.put("/tenants/acme/q1", "1\n");
    let file = "/tenants/acme/q1";
    for arguments in [
        &["cat", file, "--ref", "nope"][..],
        &["log", file, "--ref", "nope"],
        &["put", "/dev/null", file, "--ref", "nope"],
        &["rm", file, "--ref", "nope"],
        &["fork", "x", "--from", "nope"],
        &["promote", "nope", "--into", "main"],
        &["branches", "--delete", "nope"],
        &["protect", "nope"],
    ] {
        let said = ana.fails(1, arguments);
        assert!(said.contains("no branch `nope`") && said.contains("`bailey branches`"), "{arguments:?}: {said}");
    }
    let mount = ["run", "--mount", "/tenants/acme:/data", "--ref", "nope", "--", "true"];
    assert!(ana.fails(125, &mount).contains("no branch `nope`"));
}

#[test]
fn a_folder_is_no_file_and_hints_name_verbs() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/d/f", "one\n");
    let said = ana.fails(1, &["cat", "/tenants/acme/d"]);
    assert!(said.contains("is a folder") && said.contains("`bailey ls`"), "{said}");
    ana.fails(1, &["--json", "cat", "/tenants/acme/d"]);
    // What blame shows can be asked for.
    let blame = ana.ok(&["blame", "/tenants/acme/d/f"]);
    assert_eq!(ana.ok(&["cat", "--ref", blame.split(' ').next().unwrap(), "/tenants/acme/d/f"]), "one\n");
    let id = ana.json(&["ls", "/tenants/acme/d"])["entries"][0]["id"].as_str().unwrap().to_owned();
    ana.put("/tenants/acme/d/f", "two\n");
    let said = ana.fails(1, &["rm", "--if-match", &id, "/tenants/acme/d/f"]);
    assert!(said.contains("`--if-match`") && !said.contains("ETag"), "{said}");
}

#[test]
fn what_is_in_the_way_is_named_with_its_whole_path() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    for path in ["/tenants/acme/d/f", "/tenants/acme/e/g", "/tenants/acme/users/ana/own/h"] {
        ana.put(path, "one\n");
    }
    for (arguments, path) in [
        (&["blame", "/tenants/acme/d"][..], "/tenants/acme/d"),
        (&["blame", "/tenants/acme/d/none"], "/tenants/acme/d/none"),
        (&["cp", "/tenants/acme/d", "/tenants/acme/e"], "/tenants/acme/e"),
        (&["cp", "/tenants/acme/d/none", "/tenants/acme/e/x"], "/tenants/acme/d/none"),
        (&["cp", "/tenants/acme/none", "/tenants/acme/users/ana/x"], "/tenants/acme/none"),
        (&["cp", "/tenants/acme/d", "/tenants/acme/users/ana/own"], "/tenants/acme/users/ana/own"),
        (&["mv", "/tenants/acme/d", "/tenants/acme/d/below"], "/tenants/acme/d/below"),
        (&["mkdir", "/tenants/acme/d/f"], "/tenants/acme/d/f"),
        (&["put", "/dev/null", "/tenants/acme/d"], "/tenants/acme/d"),
        (&["put", "/dev/null", "/tenants/acme/d/f/x"], "/tenants/acme/d/f"),
        (&["edit", "/tenants/acme/d", "--old", "a", "--new", "b"], "/tenants/acme/d"),
        (&["diff", "/tenants/acme/d/none", "main", "main"], "/tenants/acme/d/none"),
        (&["rm", "/tenants/acme"], "/tenants/acme"),
    ] {
        let said = ana.fails(1, arguments);
        assert!(said.lines().next().unwrap().contains(&format!("`{path}`")), "{arguments:?}: {said}");
    }
}

#[test]
fn a_slash_at_the_end_names_a_folder_and_what_goes_into_it_keeps_its_name() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let local = server.folder().join("q1.csv");
    std::fs::write(&local, "1\n").unwrap();
    ana.ok(&["mkdir", "/tenants/acme/in/"]);
    ana.ok(&["put", local.to_str().unwrap(), "/tenants/acme/in/"]);
    ana.ok(&["cp", "/tenants/acme/in/q1.csv", "/tenants/acme/kept/"]);
    ana.ok(&["mv", "/tenants/acme/kept/", "/tenants/acme/old/"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/old/kept/q1.csv"]), "1\n");
    for arguments in [&["ls", "/tenants/acme/in/"][..], &["ls", "/tenants/acme/"], &["log", "/tenants/acme/in/"]] {
        assert_ne!(ana.ok(arguments), "", "{arguments:?}");
    }
    let mount = ["run", "--mount", "/tenants/acme/in/:/data:ro", "--", "cat", "/data/q1.csv"];
    assert_eq!(ana.ok(&mount), "1\n");
    ana.ok(&["rm", "/tenants/acme/in/"]);
    assert!(ana.fails(1, &["ls", "/tenants/acme/in/"]).contains("`/tenants/acme/in` does not exist"));
}

#[test]
fn a_mount_over_the_system_is_refused_and_told_better_places() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    for at in ["/etc", "/usr/bin", "/lib", "/var/lib", "/home"] {
        let said = ana.fails(125, &["run", "--mount", &format!("/tenants/acme/x:{at}"), "--", "true"]);
        assert!(said.contains(&format!("`{at}`")) && said.contains("`/data`, `/work`, `/mnt/NAME`"), "{said}");
    }
    for at in ["/work", "/mnt/x", "/home/user/x", "/opt/x"] {
        ana.ok(&["run", "--mount", &format!("/tenants/acme/x:{at}"), "--", "touch", &format!("{at}/made")]);
    }
}

#[test]
fn an_empty_list_says_so_to_people_and_stays_empty_to_programs() {
    let server = Server::start();
    let (ana, root) = (server.admin("acme", "ana"), server.operator());
    for (user, arguments, says, list) in [
        (&ana, &["label", "/tenants/acme"][..], "no labels", "labels"),
        (&ana, &["branches"], "no branch has a version yet", "branches"),
        (&ana, &["log", "/tenants/acme"], "no version yet", "versions"),
        (&ana, &["baseline", "list"], "no baselines", "baselines"),
        (&ana, &["share", "list"], "no tree tokens", "tokens"),
        (&ana, &["share", "list", "--user", "bob"], "no tree tokens", "tokens"),
        (&ana, &["key", "list"], "no keys", "keys"),
        (&ana, &["policy", "ls"], "no policies", "policies"),
        (&ana, &["runs"], "no runs", "runs"),
        (&root, &["account", "list"], "none is disabled", "disabled"),
    ] {
        let output = user.output(arguments);
        assert!(output.status.success() && output.stdout.is_empty(), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(&format!("bailey: {says}")), "{arguments:?}: {output:?}");
        let output = user.output(&[&["--json"], arguments].concat());
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(value[list].as_array().is_some_and(Vec::is_empty), "{arguments:?}: {value}");
    }
    assert!(text(&ana.output(&["audit", "--user", "nobody"]).stderr).contains("no rows"));
    // An admin sees what somebody else handed out.
    let bob = server.user("acme", "bob");
    bob.ok(&["share", "/tenants/acme", "--read"]);
    assert_eq!(ana.ok(&["share", "list", "--user", "bob"]).lines().count(), 1);
    assert!(bob.fails(1, &["share", "list", "--user", "ana"]).contains("admins-only"));
}

#[test]
fn a_reader_who_leaves_ends_a_verb_quietly() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    for name in ["a", "b"] {
        ana.put(&format!("/tenants/acme/{name}"), "one\n");
    }
    for arguments in [
        &["ls", "/tenants/acme"][..],
        &["log", "/tenants/acme"],
        &["cat", "/tenants/acme/a"],
        &["get", "/tenants/acme/a", "-"],
        &["archive", "/tenants/acme", "-"],
        &["diff", "/tenants/acme"],
        &["audit"],
        &["audit", "export"],
        &["--json", "ls", "/tenants/acme"],
        &["openapi"],
        &["--help"],
        &["run", "--", "echo", "there"],
    ] {
        let mut child = ana.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(141), ""), "{arguments:?}");
    }
    // What is wrong is in the code also where nobody reads why.
    let mut child = ana.command(&["ls", NONE]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn what_cannot_be_reached_says_where_it_was_looked_for() {
    let said = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = bailey().args(arguments).envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    let token = ("BAILEY_TOKEN", "t");
    let gone = said(&["runs"], &[token, ("BAILEY_URL", "http://127.0.0.1:1")]);
    assert!(gone.contains("cannot reach `http://127.0.0.1:1`: Connection refused"), "{gone}");
    assert!(gone.contains("`bailey serve`") && gone.contains("BAILEY_URL"), "{gone}");
    let bad = said(&["runs"], &[token, ("BAILEY_URL", "localhost:8470")]);
    assert!(bad.contains("`localhost:8470`, from BAILEY_URL, is no server"), "{bad}");
    let none = said(&["runs"], &[]);
    assert!(none.contains("`bailey token`") && none.contains("/nonexistent/.config/bailey/config.toml"), "{none}");
    let server = Server::start();
    let wrong = said(&["runs", "--server", &server.url], &[token]);
    assert!(wrong.contains("The one sent is from BAILEY_TOKEN"), "{wrong}");
    let old = server.holder(&["--tenant", "acme", "--user", "ana", "--role", "member", "--ttl", "1s"]);
    crate::server::eventually("the token expires", || !old.output(&["runs"]).status.success());
    let expired = old.fails(1, &["runs"]);
    assert!(expired.contains("expired") && expired.contains("`bailey token`"), "{expired}");
    let said = bailey().args(["token", "--operator", "root", "--data", "/nonexistent"]).output().unwrap();
    assert!(text(&said.stderr).contains("/nonexistent") && text(&said.stderr).contains("--data"), "{said:?}");
}

#[test]
fn each_change_is_said_in_a_line_and_as_json() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    ana.put("/tenants/acme/d/f", "one\n");
    let local = server.folder().join("f");
    let local = local.to_str().unwrap();
    assert_eq!(ana.ok(&["get", "/tenants/acme/d/f", local]), format!("/tenants/acme/d/f to {local}: 4 B\n"));
    let tar = server.folder().join("d.tar");
    assert_eq!(ana.json(&["archive", "/tenants/acme/d", tar.to_str().unwrap()])["path"], "/tenants/acme/d");
    ana.ok(&["fork", "draft"]);
    ana.ok(&["protect", "draft"]);
    assert_eq!(ana.ok(&["unprotect", "draft"]), "draft is changed by anybody who may write again\n");
    ana.ok(&["protect", "draft"]);
    assert_eq!(ana.json(&["unprotect", "draft"])["protected"], false);
    assert_eq!(ana.json(&["branches", "--delete", "draft"])["deleted"], true);
    ana.ok(&["fork", "draft"]);
    assert_eq!(ana.ok(&["branches", "--delete", "draft"]), "draft is taken away\n");
    assert_eq!(ana.json(&["label", "/tenants/acme/d", "--clear"])["labels"], serde_json::json!([]));
    let token = ana.json(&["share", "/tenants/acme/d", "--read"])["id"].as_str().unwrap().to_owned();
    assert_eq!(ana.ok(&["share", "revoke", &token]), format!("{token} is revoked\n"));
    let key = ana.json(&["key", "create", "--name", "ci", "--ttl", "1d"])["key"]["id"].as_str().unwrap().to_owned();
    assert_eq!(ana.json(&["key", "revoke", &key])["revoked"], true);
    let policy = server.folder().join("quiet.cedar");
    std::fs::write(&policy, r#"forbid (principal, action == Action::"run_list", resource);"#).unwrap();
    for json in [false, true] {
        ana.ok(&["policy", "put", "quiet", policy.to_str().unwrap()]);
        let rm = ["policy", "rm", "quiet"];
        if json {
            assert_eq!(ana.json(&rm)["deleted"], true)
        } else {
            assert_eq!(ana.ok(&rm), "tenant/quiet is taken away\n")
        }
    }
    let audit = server.folder().join("acme.ndjson");
    assert!(ana.ok(&["audit", "export", audit.to_str().unwrap()]).contains(" lines to "));
}
