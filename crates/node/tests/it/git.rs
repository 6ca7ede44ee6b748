//! Stock git over a repository, in a real sandbox.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use bailey_protocol::git::{GitJob, GitProtocol, GitSpec, GitUpdate};
use bailey_protocol::id::VersionId;
use bailey_protocol::limits::Limits;
use bailey_protocol::node::Ending;
use bailey_protocol::path::{BranchName, RepoId};
use bailey_protocol::wall::WallKind;
use bailey_tree::{CommitMeta, PushLimits, Store};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::real;

const LIMITS: PushLimits = PushLimits { file_bytes: 1 << 30, total_bytes: 1 << 30, objects: 1 << 20 };

fn store(tenant: &str) -> (Store, VersionId) {
    let repo = RepoId { tenant: tenant.parse().unwrap(), user: None };
    let store = real::shared().trees.store(&repo).unwrap();
    let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 0, message: "x".to_owned(), run: None };
    let head = store.write_file(None, "f", &mut &b"hello"[..], 99, false, &meta).unwrap();
    store.publish_refs(&[(BranchName::main(), head.clone())]).unwrap();
    (store, head)
}

fn exchange(store: &Store, job: GitJob, input: Vec<Bytes>) -> (Vec<u8>, GitUpdate) {
    let spec = GitSpec {
        tenant: store.id().tenant.clone(),
        repo: store.id().clone(),
        wall: WallKind::Container,
        template: "base".parse().unwrap(),
        job,
        limits: Limits { memory_bytes: 1 << 30, disk_bytes: 700 << 20, ..Limits::default() },
    };
    let host = real::shared();
    host.runtime.block_on(async {
        let (to_git, from_client) = mpsc::channel(4);
        let (updates, mut told) = mpsc::channel(4);
        let node = host.node.clone();
        let sending = async move {
            for piece in input {
                to_git.send(piece).await.unwrap_or_default();
            }
        };
        let reading = async {
            let (mut output, mut last) = (Vec::new(), None);
            while let Some(update) = told.recv().await {
                match update {
                    GitUpdate::Output { data } => output.extend_from_slice(&data),
                    other => last = Some(other),
                }
            }
            (output, last.unwrap())
        };
        let ((), (), told) = tokio::join!(node.git(spec, from_client, updates), sending, reading);
        told
    })
}

#[test]
fn git_serves_a_repository_that_it_cannot_write() {
    let (store, head) = store("git-fetch");
    let request = format!("0011command=fetch0001000fno-progress0032want {head}\n0009done\n0000");
    let job = GitJob::UploadPack { protocol: GitProtocol::V2 };
    let (output, last) = exchange(&store, job, vec![Bytes::from(request)]);
    let said = String::from_utf8_lossy(&output);
    assert!(matches!(last, GitUpdate::Ended { ending: Ending::Exited { code: 0 }, .. }), "{last:?} {said}");
    assert!(said.contains("packfile") && said.contains("PACK"), "{said}");
    assert!(store.folder().join("HEAD").exists());
}

#[test]
fn git_unpacks_what_a_client_sends_into_objects_that_the_tree_takes() {
    let (store, head) = store("git-push");
    let dir = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@x"]).args(args);
        let output = command.current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{args:?} {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["clone", "-q", store.folder().to_str().unwrap(), "."]);
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(dir.path().join("large"), &large).unwrap();
    std::fs::write(dir.path().join("f"), "hello again").unwrap();
    git(&["add", "-A"]);
    git(&["commit", "-qm", "edit"]);
    let tip: VersionId = git(&["rev-parse", "HEAD"]).parse().unwrap();
    let mut child = Command::new("git")
        .args(["pack-objects", "--revs", "--thin", "--stdout", "-q"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{tip}\n^{head}\n").as_bytes()).unwrap();
    let pack = child.wait_with_output().unwrap().stdout;
    let input = || pack.chunks(100_000).map(Bytes::copy_from_slice).collect();
    let job = |max_bytes| GitJob::Unpack { tips: vec![tip.clone()], max_bytes };
    let (output, last) = exchange(&store, job(1 << 30), input());
    assert!(matches!(&last, GitUpdate::Ended { ending: Ending::Exited { code: 0 }, .. }), "{last:?}");
    store.take_in(&mut &*output, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
    assert_eq!(store.entry(Some(&tip), "large").unwrap().unwrap().size, Some(12_000_000));
    // Again: nothing is new to it but what no branch has yet.
    store.publish_refs(&[(BranchName::main(), tip.clone())]).unwrap();
    let empty = [&b"PACK\0\0\0\x02\0\0\0\0"[..], &hex("029d08823bd8a8eab510ad6ac75c823cfd3ed31e")].concat();
    let (output, last) = exchange(&store, job(1 << 30), vec![Bytes::from(empty)]);
    assert!(matches!(&last, GitUpdate::Ended { ending: Ending::Exited { code: 0 }, .. }), "{last:?}");
    assert_eq!(store.take_in(&mut &*output, std::slice::from_ref(&tip), &LIMITS).unwrap().objects(), 0);
    // Cut off, and too large.
    let cut: BTreeMap<&str, (Vec<Bytes>, u64)> =
        [("early EOF", (vec![Bytes::copy_from_slice(&pack[..1000])], 1 << 30)), ("exceeds maximum", (input(), 10_000))]
            .into();
    for (rule, (input, most)) in cut {
        let (_, last) = exchange(&store, job(most), input);
        let GitUpdate::Ended { ending: Ending::Exited { code: 1.. }, said } = &last else { panic!("{last:?}") };
        assert!(String::from_utf8_lossy(said).contains(rule), "{said:?}");
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
