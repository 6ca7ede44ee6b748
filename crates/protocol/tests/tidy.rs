//! The repository's own rules, checked over its files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Tracked and new files that are not ignored, relative to the root.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| root().join(line).exists()).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(root().join(path)).unwrap()).into_owned()
}

fn rust_files() -> Vec<(String, String)> {
    let paths = files().into_iter().filter(|path| path.ends_with(".rs"));
    paths
        .map(|path| {
            let text = read(&path);
            (path, text)
        })
        .collect()
}

/// The manifest's section `[name]`, up to the next header.
fn section<'a>(manifest: &'a str, name: &str) -> &'a str {
    let header = format!("[{name}]\n");
    let start = manifest.find(&header).map_or(manifest.len(), |at| at + header.len());
    let rest = manifest.get(start..).unwrap();
    rest.get(..rest.find("\n[").unwrap_or(rest.len())).unwrap()
}

#[test]
fn no_source_file_is_longer_than_600_lines_without_its_tests() {
    for (path, text) in rust_files() {
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        assert!(lines <= 600, "{path} has {lines} lines without tests; split it by what its parts are about");
    }
}

#[test]
fn crate_edges_are_those_of_the_architecture() {
    let document = read("ARCHITECTURE.md");
    let table = document.split("\n## Crates\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut documented = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        documented.insert(cells.get(1).unwrap().trim_matches('`').to_owned(), (*cells.get(3).unwrap()).to_owned());
    }
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(crates, documented.keys().cloned().collect(), "ARCHITECTURE's crate table is not the crates folder");
    for (name, wanted) in &documented {
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        let actual: BTreeSet<&str> = section(&manifest, "dependencies")
            .lines()
            .filter_map(|line| line.strip_prefix("bailey-"))
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .collect();
        let wanted: BTreeSet<&str> = match wanted.as_str() {
            "–" => BTreeSet::new(),
            "all but jail and guest" => {
                crates.iter().map(String::as_str).filter(|n| !["jail", "guest", "bailey"].contains(n)).collect()
            }
            list => list.split(", ").collect(),
        };
        assert_eq!(actual, wanted, "edges of `{name}`: manifest on the left, ARCHITECTURE on the right");
    }
}

#[test]
fn unsafe_code_lives_in_sys_only() {
    for (path, text) in rust_files() {
        if path.starts_with("crates/sys/") || path == "crates/protocol/tests/tidy.rs" {
            continue;
        }
        let words = ["{", "fn", "impl", "extern", "trait"].map(|next| format!("{} {next}", ["un", "safe"].concat()));
        let guilty = text.lines().find(|line| words.iter().any(|word| line.contains(word.as_str())));
        assert_eq!(guilty, None, "{path}");
    }
    for manifest in files().iter().filter(|path| path.ends_with("Cargo.toml") && path.starts_with("crates/")) {
        if manifest == "crates/sys/Cargo.toml" {
            continue;
        }
        assert!(read(manifest).contains("[lints]\nworkspace = true"), "{manifest} does not take the workspace's lints");
    }
}

#[test]
fn the_linux_build_has_one_crypto_provider_and_stays_in_its_package_budget() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--workspace",
            "--locked",
            "--target",
            "x86_64-unknown-linux-gnu",
            "-e",
            "normal,build",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let packages: BTreeSet<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or("")))
        .collect();
    assert!(packages.len() <= 420, "{} packages", packages.len());
    for other in ["ring", "openssl", "openssl-sys", "native-tls", "boring", "mbedtls"] {
        assert!(!packages.iter().any(|(name, _)| *name == other), "a second crypto provider entered: {other}");
    }
    assert!(packages.iter().any(|(name, _)| *name == "aws-lc-rs"));
}

#[test]
fn documents_keep_to_their_caps_and_their_links_lead_somewhere() {
    let caps = [("README.md", 120), ("ARCHITECTURE.md", 300), ("THREAT_MODEL.md", 250), ("SPECIFICATION.md", 100)];
    for (path, cap) in caps {
        let lines = read(path).lines().count();
        assert!(lines <= cap, "{path} has {lines} lines, {cap} are allowed");
    }
    for path in files().iter().filter(|path| path.ends_with(".md")) {
        if path.starts_with("docs/adr/") {
            assert!(read(path).lines().count() <= 60, "{path} is longer than a page");
        }
        let text = read(path);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = root().join(path).parent().unwrap().join(target);
            assert!(file.exists(), "{path} links to {target}, which does not exist");
        }
    }
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut names = BTreeSet::new();
    for (_, text) in rust_files() {
        for rest in text.split("fn ").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            names.insert(name);
        }
    }
    for document in ["THREAT_MODEL.md", "SPECIFICATION.md"] {
        let text = read(document);
        let mut named = 0;
        for row in text.lines().filter(|line| line.starts_with("| ") && line.contains("` |")) {
            let Some(cell) = row.trim_end_matches([' ', '|']).rsplit('|').next() else { continue };
            for test in cell.split('`').skip(1).step_by(2) {
                named += 1;
                assert!(names.contains(test), "{document} names `{test}`, which is no function of this repository");
            }
        }
        assert!(named > 0, "{document} names no test");
    }
}

#[test]
fn every_fuzz_target_is_built_has_seeds_and_is_replayed() {
    let files = files();
    let below = |folder: &str| -> BTreeSet<String> {
        let names = files.iter().filter_map(|path| path.strip_prefix(folder)?.split(['/', '.']).next());
        names.map(str::to_owned).collect()
    };
    let targets = below("fuzz/targets/");
    assert!(!targets.is_empty());
    assert_eq!(targets, below("fuzz/corpus/"), "fuzz/targets on the left, fuzz/corpus on the right");
    let manifest = read("fuzz/Cargo.toml");
    let sources = rust_files();
    for target in &targets {
        assert!(
            manifest.contains(&format!("[[bin]]\nname = \"{target}\"\n")),
            "fuzz/Cargo.toml does not build {target}"
        );
        let replays = format!("replay::target(\"{target}\"");
        let replayed = sources.iter().any(|(path, text)| path.starts_with("crates/") && text.contains(&replays));
        assert!(replayed, "no test replays {target}");
    }
    let corpus = files.iter().filter(|path| path.starts_with("fuzz/corpus/"));
    let bytes: usize = corpus.map(|path| fs::read(root().join(path)).unwrap().len()).sum();
    assert!(bytes <= 200 * 1024, "the seeds have {bytes} bytes: keep the smallest that shows a thing");
}

#[test]
fn every_todo_names_an_issue_and_nothing_is_stubbed() {
    let todo = ["TO", "DO"].concat();
    for (path, text) in rust_files() {
        for line in text.lines().filter(|line| line.contains(&todo)) {
            assert!(line.contains(&format!("{todo}(#")), "{path}: {line}");
        }
        for stub in [["unimplemen", "ted!"].concat(), ["#[ig", "nore"].concat()] {
            assert!(!text.contains(&stub), "{path} contains {stub}");
        }
    }
}

#[test]
fn product_binaries_cannot_be_weakened_or_stopped() {
    for path in files().iter().filter(|path| path.ends_with("Cargo.toml")) {
        let manifest = read(path);
        for feature in ["weakened", "crash-points"] {
            for part in ["dependencies", "workspace.dependencies"] {
                assert!(!section(&manifest, part).contains(feature), "{path} turns `{feature}` on in [{part}]");
            }
            // Neither a default nor another feature leads there.
            let lines = section(&manifest, "features").lines();
            let leads = lines.filter_map(|line| line.split_once('=')).any(|(_, to)| to.contains(feature));
            assert!(!leads, "{path} turns `{feature}` on by a feature");
        }
    }
}

#[test]
fn no_machine_path_or_binary_is_committed() {
    let forbidden = [["/wo", "rk/"].concat(), ["index.crates", ".io"].concat()];
    for path in files() {
        let bytes = fs::read(root().join(&path)).unwrap();
        assert!(bytes.len() < 1024 * 1024, "{path} is larger than 1 MiB");
        assert!(!bytes.contains(&0) || path.starts_with("fuzz/"), "{path} is binary");
        let text = String::from_utf8_lossy(&bytes);
        if path == "Cargo.lock" {
            continue;
        }
        for word in &forbidden {
            assert!(!text.contains(word.as_str()), "{path} contains {word}");
        }
    }
}
