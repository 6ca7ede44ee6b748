//! The three binaries belong together.

use std::path::Path;

use crate::server::{Server, bailey, text};

#[test]
fn binaries_of_another_build_are_refused_by_name() {
    let beside = Path::new(env!("CARGO_BIN_EXE_bailey")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("bailey");
    std::fs::copy(env!("CARGO_BIN_EXE_bailey"), &copy).unwrap();
    let serve = || {
        std::process::Command::new(&copy)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .output()
            .unwrap()
    };
    let said = text(&serve().stderr);
    assert!(said.contains("bailey-jail") && said.contains("make build"), "{said}");
    if option_env!("BAILEY_JAIL_SHA256").is_none() {
        eprintln!("skipped: this `bailey` was built without the hashes of its companions (`make test` gives them)");
        return;
    }
    std::fs::copy(beside.join("bailey-jail"), folder.path().join("bailey-jail")).unwrap();
    let mut guest = std::fs::read(beside.join("bailey-guest")).unwrap();
    guest.push(0);
    std::fs::write(folder.path().join("bailey-guest"), guest).unwrap();
    let said = text(&serve().stderr);
    assert!(said.contains("`bailey-guest` and `bailey` are not of one build"), "{said}");
    assert!(!folder.path().join("data").exists());
}

#[test]
fn nobody_but_the_jail_starts_the_server_half() {
    let output = bailey().args(["serve", "--supervised"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("bailey-jail"), "{}", text(&output.stderr));
}

#[test]
fn a_server_says_where_it_listens_and_answers_there() {
    let server = Server::start();
    assert!(server.url.starts_with("http://127.0.0.1:") && !server.url.ends_with(":0"), "{}", server.url);
    let ana = server.user("acme", "ana");
    assert_eq!(ana.ok(&["run", "--", "echo", "fine"]), "fine\n");
}
