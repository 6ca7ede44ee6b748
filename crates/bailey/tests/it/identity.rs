//! Tokens, keys, users, tenants and accounts from the command line: what each verb does is seen by who may still ask.

use crate::server::{Server, User, bailey, text};

impl Server {
    fn bearer(&self, token: &str) -> User {
        User { url: self.url.clone(), token: token.to_owned() }
    }
}

const ACME: &str = "/tenants/acme";

#[test]
fn keys_are_made_listed_and_revoked() {
    let server = Server::start();
    let boss = server.holder(&["--tenant", "acme", "--user", "boss", "--role", "admin"]);
    let made = boss.json(&["key", "create", "--name", "ci", "--as", "+ci", "--read-only", "--ttl", "1d"]);
    let (id, ci) = (made["key"]["id"].as_str().unwrap(), server.bearer(made["value"].as_str().unwrap()));
    ci.ok(&["ls", ACME]);
    assert!(ci.fails(1, &["mkdir", "/tenants/acme/x"]).contains("credential-scope"));
    // Narrowed to a path and an action, a key does nothing else.
    boss.put("/tenants/acme/reports/q1", "1\n");
    boss.put("/tenants/acme/other", "2\n");
    let narrow = ["--name", "narrow", "--path", "/tenants/acme/reports", "--action", "tree_read", "--ttl", "1h"];
    let narrow = server.bearer(boss.ok(&[&["key", "create"], &narrow[..]].concat()).trim());
    assert_eq!(narrow.ok(&["cat", "/tenants/acme/reports/q1"]), "1\n");
    for denied in
        [&["cat", "/tenants/acme/other"][..], &["ls", "/tenants/acme/reports"], &["rm", "/tenants/acme/reports/q1"]]
    {
        assert!(narrow.fails(1, denied).contains("credential-scope"), "{denied:?}");
    }
    assert!(
        boss.fails(1, &["key", "create", "--name", "x", "--ttl", "1d", "--action", "nope"])
            .contains("`nope` is not an action")
    );
    assert!(
        boss.fails(1, &["key", "create", "--name", "x", "--ttl", "1d", "--role", "nope"]).contains("not yours to give")
    );
    let listed = boss.ok(&["key", "list"]);
    assert!(listed.contains(id) && listed.contains("+ci") && listed.contains("holds"), "{listed}");
    boss.ok(&["key", "revoke", id]);
    assert!(ci.fails(1, &["ls", ACME]).contains("does not hold"));
    assert!(boss.ok(&["key", "list"]).contains("ended"));
    // Nobody but an admin makes one.
    assert!(
        server.user("acme", "ana").fails(1, &["key", "create", "--name", "x", "--ttl", "1d"]).contains("admins-only")
    );
}

#[test]
fn users_tenants_and_accounts_are_disabled_and_enabled() {
    let server = Server::start();
    let boss = server.holder(&["--tenant", "acme", "--user", "boss", "--role", "admin"]);
    let root = server.holder(&["--operator", "root"]);
    let (ana, eve) = (server.user("acme", "ana"), server.user("globex", "eve"));
    ana.ok(&["ls", ACME]);
    assert_eq!(boss.ok(&["user", "disable", "ana"]), "ana is disabled\n");
    assert!(ana.fails(1, &["ls", ACME]).contains("disabled"));
    assert!(boss.ok(&["user", "list"]).lines().any(|line| line.starts_with("ana ") && line.contains("ended")));
    assert_eq!(boss.ok(&["user", "enable", "ana"]), "ana is enabled\n");
    ana.ok(&["ls", ACME]);
    // Forgotten it stays out, and is not listed any more.
    server.user("acme", "carl").ok(&["ls", ACME]);
    assert!(boss.ok(&["user", "forget", "carl"]).starts_with("forgotten: 0 runs, 0 keys, details of "));
    assert!(server.user("acme", "carl").fails(1, &["ls", ACME]).contains("disabled"));
    assert!(!boss.ok(&["user", "list"]).contains("carl"));
    server.user("acme", "dora").ok(&["ls", ACME]);
    assert!(root.json(&["user", "forget", "dora", "--tenant", "acme"])["audit_rows"].as_u64().unwrap() > 0);
    assert!(ana.fails(1, &["user", "forget", "boss"]).contains("admins-only"));
    // What an operator disabled stays so.
    root.ok(&["user", "disable", "ana", "--tenant", "acme"]);
    assert!(boss.fails(1, &["user", "enable", "ana"]).contains("an operator disabled `ana`"));
    // Operators see a tenant's users, and are told where a name may be misspelt.
    let listed = root.ok(&["user", "list", "--tenant", "acme"]);
    assert!(listed.lines().any(|line| line.starts_with("ana ") && line.contains("ended")), "{listed}");
    assert!(root.fails(1, &["user", "list", "--tenant", "acmee"]).contains("nobody of a tenant `acmee`"));
    for misspelt in [&["user", "disable", "anna"][..], &["user", "enable", "anna"]] {
        assert!(boss.ok(misspelt).ends_with("abled (nobody of that name was ever seen)\n"));
    }
    assert!(
        root.ok(&["quota", "show", "--tenant", "acmee"]).starts_with("acmee (nobody of that name was ever seen)\n")
    );
    root.ok(&["tenant", "disable", "globex"]);
    assert!(eve.fails(1, &["ls", "/tenants/globex"]).contains("disabled"));
    assert!(root.ok(&["tenant", "list"]).lines().any(|line| line.starts_with("globex ") && line.contains("ended")));
    root.ok(&["tenant", "enable", "globex"]);
    eve.ok(&["ls", "/tenants/globex"]);
    // Operators end by name, and not themselves.
    let rita = server.holder(&["--operator", "rita"]);
    rita.ok(&["tenant", "list"]);
    root.ok(&["account", "disable", "operator", "rita"]);
    assert!(rita.fails(1, &["tenant", "list"]).contains("disabled"));
    assert_eq!(root.json(&["account", "list"])["disabled"][0]["name"], "rita");
    root.ok(&["account", "enable", "operator", "rita"]);
    rita.ok(&["tenant", "list"]);
    root.fails(1, &["account", "disable", "operator", "root"]);
}

#[test]
fn tokens_are_made_for_no_longer_than_they_may_live() {
    let server = Server::start();
    let token =
        |arguments: &[&str]| bailey().arg("token").args(arguments).arg("--data").arg(server.data()).output().unwrap();
    assert!(token(&["--operator", "root", "--ttl", "30d"]).status.success());
    for refused in [
        &["--operator", "root", "--ttl", "31d"][..],
        &["--service", "billing", "--tenants", "acme", "--ttl", "31d"],
        &["--tenant", "acme", "--user", "ana", "--role", "member", "--ttl", "400d"],
    ] {
        let output = token(refused);
        assert_eq!(output.status.code(), Some(2), "{refused:?}");
        assert!(text(&output.stderr).contains("may live"), "{}", text(&output.stderr));
    }
    // A service account lists what those may whom it names; it is no user itself.
    let service = ["--service", "billing", "--tenants", "acme", "--entitle", "tree", "--role", "member"];
    assert!(server.holder(&service).fails(1, &["ls", ACME]).contains("this is for users"));
    assert_ne!(token(&["--operator", "root", "--entitle", "tree"]).status.code(), Some(0));
}
