//! The policies that we ship as examples: each allows and denies what it says.
#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::path::Path;

use bailey_policy::Policies;
use bailey_policy::case::{Case, CaseFile, Expected};

#[test]
fn the_examples_allow_and_deny_what_their_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cedar"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() >= 7);
    let policies = Policies::new(&files).unwrap();
    let text = std::fs::read_to_string(folder.join("tests/examples.toml")).unwrap();
    let cases: CaseFile = toml::from_str(&text).unwrap();
    for case in &cases.cases {
        case.check(&policies).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    }
    // Each rule has denied something, and none is left out.
    for (file, text) in &files {
        for id in text.lines().filter_map(|line| line.strip_prefix("@id(\"")?.strip_suffix("\")")) {
            let denies =
                |case: &&Case| case.expect == Expected::Deny && case.by.as_ref().is_some_and(|by| by.contains(id));
            let denied: Vec<_> = cases.cases.iter().filter(denies).collect();
            assert!(!denied.is_empty(), "{file}: no case shows `{id}`");
            let allows =
                |case: &&Case| case.expect == Expected::Allow && denied.iter().any(|no| no.action == case.action);
            assert!(cases.cases.iter().any(|case| allows(&case)), "{file}: no case shows what `{id}` lets through");
        }
    }
}

#[test]
fn what_is_shipped_as_a_comment_decides_once_it_is_none() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies/credential-shaped.cedar");
    let text = std::fs::read_to_string(file).unwrap();
    let rule = text.split_once("// @id(").map(|(_, rule)| format!("@id({}", rule.replace("// ", ""))).unwrap();
    let policies = Policies::new(&[("credential-shaped.cedar".to_owned(), rule)]).unwrap();
    let cases: CaseFile = toml::from_str(
        r#"
        [[case]]
        name = "what is shaped like a credential"
        principal = { tenant = "acme", user = "ana" }
        action = "tree_write"
        resource = { path = { at = "/tenants/acme/x" } }
        context = { branch = "main", credential_shaped = ["github-token"] }
        expect = "deny"
        by = ["no-credentials"]

        [[case]]
        name = "what is not"
        principal = { tenant = "acme", user = "ana" }
        action = "tree_write"
        resource = { path = { at = "/tenants/acme/x" } }
        context = { branch = "main" }
        expect = "allow"
        "#,
    )
    .unwrap();
    for case in &cases.cases {
        case.check(&policies).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    }
}
