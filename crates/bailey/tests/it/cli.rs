//! The verbs of the tree, and what every verb has in common.

use serde_json::Value;

use crate::server::{Server, bailey, text};

#[test]
fn files_are_written_read_listed_compared_and_deleted() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let said = ana.put("/tenants/acme/notes/a b#1.txt", "one\n");
    assert!(said.starts_with("version ") && said.contains("on main"), "{said}");
    ana.put("/tenants/acme/notes/a b#1.txt", "one\ntwo\n");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/notes/a b#1.txt"]), "one\ntwo\n");
    assert!(ana.ok(&["ls", "/tenants/acme/notes"]).ends_with("8 B  a b#1.txt\n"));
    assert!(ana.ok(&["ls", "/tenants/acme"]).contains("notes/"));

    let log = ana.ok(&["log", "/tenants/acme/notes"]);
    assert_eq!(log.lines().count(), 2, "{log}");
    let versions: Vec<&str> = log.lines().map(|line| line.split(' ').next().unwrap()).collect();
    // Without versions: what the last one changed. With one: from there to now.
    for arguments in [vec!["diff", "/tenants/acme/notes"], vec!["diff", "/tenants/acme/notes", versions[1]]] {
        let diff = ana.ok(&arguments);
        assert!(diff.starts_with("M a b#1.txt") && diff.contains("\n+two\n"), "{arguments:?}: {diff}");
    }
    assert!(ana.ok(&["diff", "/tenants/acme/notes", versions[0], versions[0]]).is_empty());
    assert_eq!(ana.ok(&["cat", "--ref", versions[1], "/tenants/acme/notes/a b#1.txt"]), "one\n");

    ana.ok(&["rm", "/tenants/acme/notes"]);
    let refused = ana.fails(1, &["cat", "/tenants/acme/notes/a b#1.txt"]);
    assert!(refused.contains("not_found") && refused.contains("404"), "{refused}");
}

#[test]
fn bytes_pass_unchanged_and_the_executable_bit_is_kept() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let bytes: Vec<u8> = (0..=255_u8).cycle().take(100_000).collect();
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("tool");
    std::fs::write(&local, &bytes).unwrap();
    std::fs::set_permissions(&local, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    ana.ok(&["put", local.to_str().unwrap(), "/tenants/acme/tool"]);
    assert!(ana.output(&["cat", "/tenants/acme/tool"]).stdout == bytes);
    assert!(ana.ok(&["ls", "/tenants/acme"]).contains("tool*"));
    // From standard input, whose position counts, and which says nothing of the executable bit.
    let mut input = std::fs::File::open(&local).unwrap();
    std::io::Seek::seek(&mut input, std::io::SeekFrom::Start(50_000)).unwrap();
    assert!(ana.command(&["put", "-", "/tenants/acme/half"]).stdin(input).status().unwrap().success());
    assert!(ana.output(&["cat", "/tenants/acme/half"]).stdout == bytes[50_000..]);
    let value = ana.json(&["cat", "/tenants/acme/tool"]);
    assert_eq!(value["size"], 100_000);
    assert!(value["base64"].is_string() && value["text"].is_null());
}

#[test]
fn every_verb_speaks_json_and_errors_do_too() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x").unwrap();
    let put = ana.json(&["put", file.path().to_str().unwrap(), "/tenants/acme/x"]);
    assert_eq!(put["branch"], "main");
    assert_eq!(ana.json(&["ls", "/tenants/acme"])["entries"][0]["name"], "x");
    assert_eq!(ana.json(&["cat", "/tenants/acme/x"])["text"], "x");
    assert_eq!(ana.json(&["log", "/tenants/acme"])["versions"][0]["version"], put["version"]);
    assert_eq!(ana.json(&["diff", "/tenants/acme"])["changes"][0]["change"], "added");
    assert!(ana.json(&["runs"])["runs"].as_array().unwrap().is_empty());
    assert!(ana.json(&["rm", "/tenants/acme/x"])["version"].is_string());
    let prepared = ana.json(&["template", "prepare"]);
    assert!(prepared["image"].as_str().unwrap().contains(prepared["digest"].as_str().unwrap()));

    let error: Value = serde_json::from_str(&ana.fails(1, &["--json", "cat", "/tenants/acme/none"])).unwrap();
    assert_eq!(error["code"], 404);
    let error: Value = serde_json::from_str(&ana.fails(1, &["--json", "cat", "/tenants/globex/x"])).unwrap();
    assert_eq!((&error["code"], &error["policies"][0]), (&403.into(), &"own-tenant-only".into()));
}

#[test]
fn another_tenants_path_is_denied_alike_whether_it_exists_or_not() {
    let server = Server::start();
    let (ana, gil) = (server.user("acme", "ana"), server.user("globex", "gil"));
    ana.put("/tenants/acme/plan", "secret");
    let strip = |said: String| said.lines().filter(|line| !line.contains("req_")).collect::<String>();
    let there = strip(gil.fails(1, &["cat", "/tenants/acme/plan"]));
    let not_there = strip(gil.fails(1, &["cat", "/tenants/acme/none"]));
    assert!(there.contains("own-tenant-only"), "{there}");
    assert_eq!(there.replace("plan", "none"), not_there);
    let refused = gil.fails(125, &["run", "--mount", "/tenants/acme:/data:ro", "--", "cat", "/data/plan"]);
    assert!(refused.contains("own-tenant-only"), "{refused}");
}

#[test]
fn an_old_version_is_not_overwritten_by_mistake() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/x", "one");
    let id = ana.json(&["ls", "/tenants/acme"])["entries"][0]["id"].as_str().unwrap().to_owned();
    ana.put("/tenants/acme/x", "two");
    let said = ana.fails(1, &["rm", "--if-match", &id, "/tenants/acme/x"]);
    assert!(said.contains("412") || said.contains("409"), "{said}");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/x"]), "two");
}

#[test]
fn wrong_usage_is_code_2_of_every_verb_and_with_json_an_error_like_others() {
    let twice = ["run", "--file", "/dev/null:/tmp/x", "--file", "/dev/null:/tmp/x", "--token", "t", "--", "true"];
    for arguments in [
        &[][..],
        &["fly"],
        &["policy"],
        &["ls"],
        &["ls", "/etc"],
        &["ls", "/tenants/acme//"],
        &["ls", "/tenants/acme", "--server", "localhost", "--token", "t"],
        &["token", "--tenant", "A"],
        &["token", "--tenant", "acme", "--user", "ana", "--role", "NO ROLE"],
        &["token", "--tenant", "acme", "--user", "ana", "--role", "member", "--entitle", "nope"],
        &["token", "--service", "billing", "--tenants", "Acme"],
        &["run"],
        &["run", "true"],
        &["run", "--mount", "x", "--", "true"],
        &["run", "--timeout", "30x", "--", "true"],
        &twice,
        &["share"],
        &["share", "/tenants/acme", "--token", "t"],
        &["share", "/tenants/acme", "--read", "--write"],
        &["edit", "/tenants/acme/f", "--token", "t"],
        &["edit", "/tenants/acme/f", "--new", "x", "--token", "t"],
        &["cp", "--from-ref", "a..b", "/tenants/acme/f", "/tenants/acme/g"],
        &["cp", "/tenants/acme", "/tenants/acme/d/", "--token", "t"],
        &["put", "-", "/tenants/acme/d/", "--token", "t"],
        &["branches", "--token", "e2b_0"],
        &["audit", "--action", "tree_wrote"],
        &["purge"],
    ] {
        let output = bailey().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let output = bailey().arg("--json").args(arguments).output().unwrap();
        let error: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!((output.status.code(), error["error"].as_str()), (Some(2), Some("usage")), "{arguments:?}");
        assert!(output.stdout.is_empty() && error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        assert!(error["hint"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    }
    let typo = bailey().args(["audit", "--action", "tree_wrote"]).output().unwrap();
    assert!(text(&typo.stderr).contains("the nearest is `tree_write`"), "{typo:?}");
    // What is no matter of the command line is none of usage.
    let output =
        bailey().args(["--json", "run", "--server", "http://127.0.0.1:1", "--token", "t", "--", "true"]).output();
    let output = output.unwrap();
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((output.status.code(), error["error"].as_str()), (Some(125), Some("failed")));
    assert!(error["hint"].as_str().unwrap().contains("bailey serve"), "{error}");
    for arguments in [vec!["--help"], vec!["run", "--help"], vec!["--version"]] {
        assert_eq!(bailey().args(&arguments).output().unwrap().status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn server_and_token_come_from_flags_then_environment_then_a_private_file() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/bailey");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("config.toml");
    let list = || {
        let mut command = bailey();
        command.args(["runs"]).env("HOME", home.path());
        command
    };
    assert!(text(&list().output().unwrap().stderr).contains("BAILEY_TOKEN"));
    std::fs::write(&file, format!("server = \"{}\"\ntoken = \"{}\"\n", server.url, ana.token)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(text(&list().output().unwrap().stderr).contains("chmod 600"));
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(list().output().unwrap().status.success());
    // The environment wins over the file, and a flag over both.
    assert!(!list().env("BAILEY_TOKEN", "wrong").output().unwrap().status.success());
    let flags = ["--token", &ana.token, "--server", &server.url];
    assert!(
        list()
            .env("BAILEY_TOKEN", "wrong")
            .env("BAILEY_URL", "http://127.0.0.1:1")
            .args(flags)
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(&file, "tokn = \"x\"\n").unwrap();
    assert!(text(&list().output().unwrap().stderr).contains("tokn"));
}

#[test]
fn nothing_is_coloured_where_no_terminal_is() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/x", "one\n");
    for arguments in [vec!["ls", "/tenants/acme"], vec!["diff", "/tenants/acme"], vec!["cat", "/tenants/acme/none"]] {
        let output = ana.output(&arguments);
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
}
