//! Quotas, garbage and purges from the command line.

use crate::server::{Server, User};

/// The usual quota with one limit of another size.
fn limited(server: &Server, flags: &[&str]) -> (User, User) {
    let root = server.operator();
    let ana = server.admin("acme", "ana");
    ana.put("/tenants/acme/first", "1\n");
    root.ok(&[&["quota", "set", "acme"], flags].concat());
    (root, ana)
}

#[test]
fn a_quota_is_shown_set_and_names_what_is_missing() {
    let server = Server::start();
    let (root, ana) = limited(&server, &["--bytes", "64K", "--largest-file", "32K"]);
    assert_eq!(root.json(&["quota", "show", "--tenant", "acme"])["quota"]["bytes"], 64 << 10);
    let shown = ana.ok(&["quota", "show"]);
    assert!(shown.starts_with("acme\n  bytes ") && shown.contains(" of 65536\n"), "{shown}");
    let file = server.folder().join("large");
    std::fs::write(&file, vec![b'x'; 33 << 10]).unwrap();
    let put = |name: &str| ana.output(&["put", file.to_str().unwrap(), &format!("/tenants/acme/{name}")]);
    let said = String::from_utf8(put("large").stderr).unwrap();
    assert!(said.contains("`file_bytes` is exceeded: 33792 to come, 1024 over the 32768 allowed"), "{said}");
    root.ok(&["quota", "set", "acme", "--bytes", "8K", "--largest-file", "1M"]);
    let said = String::from_utf8(put("large").stderr).unwrap();
    assert!(said.contains("`bytes` is exceeded: ") && said.contains("used and 33792 to come, "), "{said}");
    assert!(said.contains("over the 8192 allowed") && said.contains("`bailey quota show`"), "{said}");
    // What is not named stays; nothing named is nothing asked for.
    root.ok(&["quota", "set", "acme", "--files", "100"]);
    assert_eq!(ana.json(&["quota", "show"])["quota"]["bytes"], 8 << 10);
    root.fails(2, &["quota", "set", "acme"]);
    root.ok(&["quota", "set", "acme", "--usual"]);
    assert!(put("large").status.success());
    assert!(root.ok(&["gc", "acme"]).contains("objects in use"));
    assert!(server.user("acme", "bob").fails(1, &["quota", "show"]).contains("admins-only"));
}

#[test]
fn a_purge_takes_a_path_out_of_all_versions_and_leaves_a_receipt() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    ana.put("/tenants/acme/keep", "1\n");
    ana.put("/tenants/acme/secret", "s3cret\n");
    let with = ana.json(&["log", "/tenants/acme"])["versions"][0]["version"].as_str().unwrap().to_owned();
    ana.ok(&["rm", "/tenants/acme/secret"]);
    assert_eq!(ana.ok(&["cat", "--ref", &with, "/tenants/acme/secret"]), "s3cret\n");
    assert!(server.user("acme", "bob").fails(1, &["purge", "/tenants/acme/secret"]).contains("denied"));
    let receipt = ana.ok(&["purge", "/tenants/acme/secret"]);
    let id = receipt.split(' ').next().unwrap();
    assert!(receipt.contains(" versions changed; ") && receipt.contains(&format!("{with} -> ")), "{receipt}");
    let gone = ana.fails(1, &["cat", "--ref", &with, "/tenants/acme/secret"]);
    assert!(gone.contains("version_expired") && gone.contains(&format!("`bailey purge --receipt` {id}")), "{gone}");
    assert!(ana.ok(&["purge", "--receipt", id]).starts_with(&format!("{id} ")));
    assert_eq!(ana.json(&["purge", "--receipt", id])["id"], id);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/keep"]), "1\n");
    ana.fails(1, &["log", "/tenants/acme/secret"]);
}
