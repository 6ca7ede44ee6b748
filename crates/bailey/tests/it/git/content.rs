//! What a push brings besides changes: names that are no text, and content that has labels.

use super::{Git, api, write};
use crate::server::Server;

/// A server under `policy`, and what it is kept by.
fn under(policy: &str) -> (Server, tempfile::TempDir) {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("own.cedar"), policy).unwrap();
    let config = format!("parked = 1\npolicies = \"{}\"\n", folder.path().display());
    (Server::start_in(data, &config), folder)
}

#[test]
fn a_pushed_name_that_is_no_text_is_judged_as_others_are_and_can_be_taken_away() {
    use std::os::unix::ffi::OsStrExt as _;
    let policy = "@id(\"hidden-unread\")\nforbid (principal, action == Action::\"tree_read\", resource is Path) \
                  when { resource.path like \"*/hidden*\" };";
    let (server, _policies) = under(policy);
    let ana = server.admin("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    let latin = std::ffi::OsStr::from_bytes(b"caf\xe9");
    write(&work.join("d").join(latin), b"1");
    write(&work.join("d/keep"), b"1");
    git.commit("work", "latin");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    // A policy that may be about any name hinders neither clone nor archive, and the name leads to the file.
    let again = git.clone_into("again");
    assert_eq!(std::fs::read(again.join("d").join(latin)).unwrap(), b"1");
    assert_eq!(ana.json(&["ls", "/tenants/acme/d"])["entries"][0]["name"], "caf\u{10ffe9}");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/d/caf\u{10ffe9}"]), "1");
    assert_eq!(api(&ana, &server, "GET", "/v1/tree/tenants/acme/d/caf%e9", ""), "1");
    // The rule holds for its like.
    write(&work.join("d").join(std::ffi::OsStr::from_bytes(b"hidden\xe9")), b"2");
    git.commit("work", "hidden");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    let said = git.fails("", &["clone", "-q", &git.url, "refused"]);
    assert!(said.contains("hidden-unread"), "{said}");
    ana.ok(&["rm", "/tenants/acme/d/caf\u{10ffe9}"]);
    ana.ok(&["purge", "/tenants/acme/d/hidden\u{10ffe9}"]);
    git.clone_into("after");
    assert_eq!(ana.json(&["ls", "/tenants/acme/d"])["entries"][0]["name"], "keep");
}

#[test]
fn what_a_push_moves_or_copies_keeps_its_labels() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("secret/plan"), b"the plan");
    write(&work.join("secret/deep/key"), b"the key");
    write(&work.join("secret/empty"), b"");
    write(&work.join("note"), b"a note");
    git.commit("work", "first");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    ana.ok(&["label", "/tenants/acme/secret", "confidential"]);
    ana.ok(&["label", "/tenants/acme/secret/deep/key", "key"]);
    let labels = |path: &str| -> Vec<String> {
        let shown = ana.json(&["label", &format!("/tenants/acme/{path}")]);
        let of = |field: &str| shown[field].as_array().unwrap().clone();
        let mut all: Vec<String> =
            [of("labels"), of("inherited")].concat().iter().map(|label| label.as_str().unwrap().to_owned()).collect();
        all.sort();
        all
    };
    // A folder as it is, a file by another name, and a copy on the way that is gone again.
    git.ok("work", &["mv", "secret/plan", "public"]);
    git.ok("work", &["mv", "secret", "moved"]);
    std::fs::copy(work.join("moved/deep/key"), work.join("between")).unwrap();
    git.commit("work", "moved");
    std::fs::remove_file(work.join("between")).unwrap();
    write(&work.join("void"), b"");
    write(&work.join("other"), b"a note");
    git.commit("work", "more");
    let pushed = git.output("work", &["push", "origin", "HEAD:refs/heads/main"]);
    let said = crate::server::text(&pushed.stderr);
    assert!(pushed.status.success() && said.contains("`public` holds content that is labelled"), "{said}");
    assert_eq!(labels("public"), ["confidential"]);
    assert_eq!(labels("moved/deep/key"), ["confidential", "key"]);
    assert_eq!(labels("between"), ["confidential", "key"]);
    for path in ["other", "note", "void"] {
        assert!(labels(path).is_empty(), "{path}");
    }
    // Also from what `main` has, on a branch that never had it.
    git.ok("work", &["checkout", "-q", "--orphan", "side"]);
    git.ok("work", &["rm", "-rqf", "."]);
    write(&work.join("from-main"), b"the plan");
    git.commit("work", "side");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/side"]);
    assert_eq!(labels("from-main"), ["confidential"]);
}
