//! What clients of git do every day, and what they are told.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Git, noise, packs, write};
use crate::server::{Server, eventually, text};

#[test]
fn gits_own_files_come_back_as_they_were_pushed() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    let modules = b"[submodule \"lib\"]\n\tpath = lib\n\turl = https://example.org/lib.git\n";
    // Were anybody here to act on them, content would come out otherwise: the filter fails, the ends of lines change.
    let attributes = b"* text=auto eol=crlf filter=none ident\r\n.git* -text\n*.bin -text\n/**/x export-ignore\n";
    write(&work.join(".gitattributes"), attributes);
    write(&work.join("d/.gitattributes"), b"* -text\n");
    write(&work.join(".gitmodules"), modules);
    write(&work.join("x"), b"$Id$\none\ntwo\n");
    git.commit("work", "with all of them");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/.gitattributes"]).as_bytes(), attributes);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/x"]), "$Id$\none\ntwo\n");
    let read = "cat /data/.gitmodules /data/x && printf '* -text\\n' >/data/.gitattributes";
    let out = ana.ok(&["run", "--mount", "/tenants/acme:/data", "--", "sh", "-c", read]);
    assert_eq!(out.as_bytes(), [&modules[..], b"$Id$\none\ntwo\n"].concat());
    let again = git.clone_into("again");
    assert_eq!(std::fs::read(again.join(".gitmodules")).unwrap(), modules);
    assert_eq!(std::fs::read(again.join("d/.gitattributes")).unwrap(), b"* -text\n");
    assert_eq!(std::fs::read(again.join(".gitattributes")).unwrap(), b"* -text\n", "what the run wrote");
    git.ok("again", &["fsck", "--full", "--strict"]);
    // What git itself finds dangerous there is refused.
    write(&again.join(".gitmodules"), b"[submodule \"lib\"]\n\tpath = lib\n\turl = -u./payload\n");
    git.commit("again", "dangerous");
    let said = git.fails("again", &["push", "origin", "main"]);
    assert!(said.contains("gitmodulesUrl"), "{said}");
    git.ok("again", &["reset", "-q", "--hard", "HEAD^"]);
    std::fs::remove_file(again.join(".gitmodules")).unwrap();
    std::os::unix::fs::symlink("x", again.join(".gitmodules")).unwrap();
    git.commit("again", "a link");
    git.fails("again", &["push", "origin", "main"]);
    // Nor the link that goes with a submodule, nor a tag.
    git.ok("again", &["reset", "-q", "--hard", "HEAD^"]);
    let head = git.ok("again", &["rev-parse", "HEAD"]);
    git.ok("again", &["update-index", "--add", "--cacheinfo", &format!("160000,{head},lib")]);
    git.ok("again", &["commit", "-qm", "the submodule"]);
    let said = git.fails("again", &["push", "origin", "main"]);
    assert!(said.contains("submodules are not kept"), "{said}");
    git.ok("again", &["tag", "-a", "-m", "one", "v1", &head]);
    git.ok("again", &["tag", "v2", &head]);
    for tag in ["v1", "v2"] {
        let said = git.fails("again", &["push", "origin", tag]);
        assert!(said.contains("only branches are kept"), "{said}");
    }
    let refs = git.ok("again", &["ls-remote", "origin"]);
    assert_eq!(refs, format!("{head}\tHEAD\n{head}\trefs/heads/main"));
}

#[test]
fn a_new_branch_is_judged_by_what_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("open/f"), b"1");
    write(&work.join("locked/f"), b"keep");
    git.commit("work", "first");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    let policy = "@id(\"locked-stays\")\nforbid (principal, action in [Action::\"tree_write\", Action::\"tree_delete\"], \
                  resource is Path) when { resource.path like \"*/locked/*\" };";
    std::fs::write(policies.join("own.cedar"), policy).unwrap();
    let (_, data) = server.end(rustix::process::Signal::TERM);
    let server = Server::start_in(data, &format!("parked = 1\npolicies = \"{}\"\n", policies.display()));
    let git = Git { url: format!("{}/git/acme.git", server.url), ..git };
    git.ok("work", &["remote", "set-url", "origin", &git.url]);
    // As it is, and grown from it, while main goes on.
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/same"]);
    ana.at(&server).put("/tenants/acme/open/g", "meanwhile");
    write(&work.join("open/f"), b"2");
    let fine = git.commit("work", "leaves it alone");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/mine"]);
    assert_eq!(ana.at(&server).ok(&["cat", "/tenants/acme/locked/f", "--ref", "mine"]), "keep");
    write(&work.join("locked/f"), b"changed");
    git.commit("work", "does not");
    let said = git.fails("work", &["push", "origin", "HEAD:refs/heads/other"]);
    assert!(said.contains("locked-stays"), "{said}");
    // Nor with a history of its own, in which everything is new.
    git.ok("work", &["checkout", "-q", "--orphan", "alone"]);
    git.commit("work", "all anew");
    let said = git.fails("work", &["push", "origin", "HEAD:refs/heads/alone"]);
    assert!(said.contains("locked-stays"), "{said}");
    let refs = git.ok("work", &["ls-remote", "origin"]);
    assert!(refs.contains(&fine) && !refs.contains("other") && !refs.contains("alone"), "{refs}");
}

#[test]
fn a_rebased_commit_of_a_run_is_taken_in_as_one_of_its_pusher() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/f", "1");
    ana.ok(&["run", "--mount", "/tenants/acme:/data", "--", "sh", "-c", "echo 2 >/data/f"]);
    let git = Git::new(&server, &ana, "acme");
    git.clone_into("work");
    let message = git.ok("work", &["log", "-1", "--format=%B"]);
    assert!(message.contains("Run: run_"), "{message}");
    git.ok("work", &["commit", "-q", "--amend", "--allow-empty", "-m", &message, "--date", "2001-01-01T00:00:00Z"]);
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/mine"]);
    let history = |branch: &str| ana.json(&["log", "/tenants/acme", "--ref", branch]);
    let run_of = |branch: &str| history(branch)["versions"][0]["run"].clone();
    assert!(run_of("main").as_str().is_some_and(|run| run.starts_with("run_")), "{}", history("main"));
    assert!(run_of("mine").is_null(), "{}", history("mine"));
}

#[test]
fn a_clone_from_before_a_cut_goes_on() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), "parked = 1\n[retention]\nversions = 3\n");
    let (ana, root) = (server.user("acme", "ana"), server.operator());
    let put = |what: &str| (0..6).for_each(|n| drop(ana.put(&format!("/tenants/acme/f{n}"), what)));
    put("first");
    for protocol in [0, 1, 2] {
        let git = Git { protocol, ..Git::new(&server, &ana, "acme") };
        git.clone_into("work");
        write(&git.path("work/picked"), b"1");
        let own = git.commit("work", "not pushed yet");
        put(&format!("more {protocol}"));
        root.json(&["gc", "acme"]);
        let pulled = git.output("work", &["pull", "-q", "--no-rebase"]);
        assert!(!pulled.status.success(), "version {protocol}: what was there is no part of what is");
        git.ok("work", &["fetch", "-q", "--update-shallow"]);
        git.ok("work", &["reset", "-q", "--hard", "origin/main"]);
        let head = git.ok("work", &["ls-remote", "origin", "refs/heads/main"]);
        assert!(head.starts_with(&git.ok("work", &["rev-parse", "HEAD"])), "version {protocol}");
        assert_eq!(git.ok("work", &["rev-parse", "--is-shallow-repository"]), "true", "version {protocol}");
        git.ok("work", &["fsck", "--full"]);
        git.ok("work", &["cherry-pick", &own]);
        git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
        assert_eq!(ana.ok(&["cat", "/tenants/acme/picked"]), "1");
        ana.ok(&["rm", "/tenants/acme/picked"]);
    }
}

/// Within what time nothing works any more for a user who was disabled: a second, and what a busy machine adds. Without
/// it, the clients that are slow here would keep git at work for half a minute and more.
const SOON: Duration = Duration::from_secs(10);

/// A request to a repository as git sends it, by a client that is slow.
fn slowly(git: &Git, service: &str, rate: &str, args: &[&str]) -> Child {
    let mut curl = Command::new("curl");
    curl.args(["-sSN", "--limit-rate", rate, "-H", "Expect:", "-H", "Git-Protocol: version=2", "-w", "%{http_code}"]);
    curl.args(["-H", &format!("Content-Type: application/x-{service}-request")]);
    curl.args(["-H", &format!("Authorization: Bearer {}", git.token)]).args(args);
    curl.arg(format!("{}/{service}", git.url)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether git is at work for the server.
fn at_work(server: &Server) -> bool {
    let fields = |pid: i32| -> Option<(i32, bool)> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        Some((field("PPid:")?.parse().ok()?, field("Name:")?.starts_with("git") && !field("State:")?.starts_with('Z')))
    };
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let table: HashMap<i32, (i32, bool)> = processes.filter_map(|pid| Some((pid, fields(pid)?))).collect();
    let jail = server.jail_pid().as_raw_nonzero().get();
    let below_jail = |pid: i32| {
        std::iter::successors(Some(pid), |pid| table.get(pid).map(|(parent, _)| *parent)).any(|pid| pid == jail)
    };
    table.iter().any(|(pid, (_, is_git))| *is_git && below_jail(*pid))
}

/// Disables ana; waits until nothing works for her any more, and says how long that took.
#[allow(clippy::disallowed_methods, reason = "real time is what is measured")]
fn disabled(server: &Server, mut over: impl FnMut() -> bool) -> Duration {
    assert!(at_work(server), "it goes on");
    server.admin("acme", "boss").ok(&["user", "disable", "ana"]);
    let at = Instant::now();
    eventually("it is over", || over() && !at_work(server));
    at.elapsed()
}

#[test]
fn a10_a_user_disabled_during_a_clone_gets_no_more_of_it() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("large"), &noise(60 << 20, 3));
    let tip = git.commit("work", "large");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    eventually("the push is over", || !at_work(&server));
    let (request, got) = (git.path("request"), git.path("got"));
    write(&request, format!("0011command=fetch0001000fno-progress0032want {tip}\n0009done\n0000").as_bytes());
    let (data, out) = (format!("@{}", request.display()), got.display().to_string());
    let mut slow = slowly(&git, "git-upload-pack", "1M", &["--data-binary", &data, "-o", &out]);
    eventually("it has begun", || std::fs::metadata(&got).is_ok_and(|file| file.len() > 100_000));
    let took = disabled(&server, || true);
    assert!(took < SOON, "{took:?}");
    // What is under way in sockets arrives yet, slowly; the rest never does.
    slow.kill().unwrap();
    let ended = slow.wait_with_output().unwrap();
    let came = std::fs::metadata(&got).unwrap().len();
    assert!(!ended.status.success() && came < 30 << 20, "{came}");
    git.fails("work", &["fetch"]);
}

#[test]
fn a10_a_user_disabled_during_a_push_moves_nothing_and_leaves_nothing() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("f"), b"1");
    let first = git.commit("work", "first");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    eventually("the push is over", || !at_work(&server));
    let before = (git.ok("work", &["ls-remote", "origin"]), packs(&server));
    write(&work.join("large"), &noise(30 << 20, 5));
    let tip = git.commit("work", "large");
    // The push as git would send it.
    let objects = git.command("work", &["pack-objects", "--all", "--stdout", "-q"]).output().unwrap().stdout;
    let line = format!("{first} {tip} refs/heads/main\0 report-status");
    let body = git.path("body");
    write(&body, &[format!("{:04x}{line}0000", line.len() + 4).into_bytes(), objects].concat());
    let mut slow = slowly(&git, "git-receive-pack", "1M", &["-X", "POST", "-T", body.to_str().unwrap()]);
    eventually("it has begun", || at_work(&server) && packs(&server) != before.1);
    let took = disabled(&server, || slow.try_wait().unwrap().is_some());
    assert!(took < SOON, "{took:?}");
    let ended = slow.wait_with_output().unwrap();
    assert!(!text(&ended.stdout).ends_with("200"), "{}", text(&ended.stdout));
    server.admin("acme", "boss").ok(&["user", "enable", "ana"]);
    assert_eq!(packs(&server), before.1, "nothing is left of it");
    assert_eq!(git.ok("work", &["ls-remote", "origin"]), before.0);
}

/// A commit that has a tree of the caller's choice: `HEAD`'s, with one file as it is said.
fn forged(git: &Git, parents: &[&str], path: &str, content: &str) -> String {
    write(&git.path("content"), content.as_bytes());
    let blob = git.ok("work", &["hash-object", "-w", "../content"]);
    git.ok("work", &["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{path}")]);
    let tree = git.ok("work", &["write-tree"]);
    git.ok("work", &["reset", "-q", "--hard"]);
    let parents = parents.iter().flat_map(|parent| ["-p", parent]);
    let args: Vec<&str> = ["commit-tree", &tree, "-m", "forged"].into_iter().chain(parents).collect();
    git.ok("work", &args)
}

#[test]
fn a_merge_of_main_is_judged_by_what_it_changes_itself() {
    let server = Server::start();
    let (ana, boss) = (server.user("acme", "ana"), server.admin("acme", "boss"));
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    for (path, content) in [("open/f", "1"), ("locked/f", "old"), ("locked/gone", "1"), ("locked/kept", "1")] {
        write(&work.join(path), content.as_bytes());
    }
    let old = git.commit("work", "first");
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main"]);
    let policy = |name: &str, when: &str| {
        let rule = format!(
            r#"forbid (principal, action in [Action::"tree_write", Action::"tree_delete"], resource is Path)
            when {{ resource.path like "*/locked/*" && {when} }};"#
        );
        write(&git.path("rule"), rule.as_bytes());
        boss.ok(&["policy", "put", name, git.path("rule").to_str().unwrap()]);
    };
    policy("locked-stays", r#"!principal.roles.contains("admin")"#);
    let pushes = |what: &str, to: &str| git.ok("work", &["push", "-q", "origin", &format!("{what}:refs/heads/{to}")]);
    let denied = |why: &str, what: &str, to: &str| {
        let said = git.fails("work", &["push", "origin", &format!("{what}:refs/heads/{to}")]);
        assert!(said.contains("tenant/locked-stays"), "{why}: {said}");
    };
    let of_boss = |content: &str| drop(boss.put("/tenants/acme/locked/f", content));
    git.ok("work", &["checkout", "-q", "-b", "mine"]);
    write(&work.join("open/f"), b"2");
    git.commit("work", "mine");
    pushes("mine", "mine");
    // What others may write comes along: changed, new, and gone; merged the one way and the other, and onto a new branch.
    of_boss("new");
    boss.put("/tenants/acme/locked/made/n", "n");
    boss.ok(&["rm", "/tenants/acme/locked/gone"]);
    git.ok("work", &["fetch", "-q"]);
    git.ok("work", &["merge", "-q", "--no-edit", "origin/main"]);
    pushes("mine", "another");
    pushes("mine", "mine");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/locked/f", "--ref", "mine"]), "new");
    of_boss("newer");
    git.ok("work", &["fetch", "-q"]);
    git.ok("work", &["checkout", "-q", "-B", "turned", "origin/main"]);
    git.ok("work", &["merge", "-q", "--no-edit", "mine"]);
    pushes("turned", "mine");
    git.ok("work", &["checkout", "-q", "-B", "mine", "turned"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/locked/f", "--ref", "mine"]), "newer");
    let head = git.ok("work", &["rev-parse", "HEAD"]);

    // What the merge itself changes does not, nor what it takes back of what was there, whichever parent comes first.
    of_boss("newest");
    git.ok("work", &["fetch", "-q"]);
    let main = git.ok("work", &["rev-parse", "origin/main"]);
    let side = forged(&git, &[&old], "locked/f", "newer");
    for (why, parents, path, content) in [
        ("an evil merge", [&*head, &*main], "locked/f", "evil"),
        ("an evil merge, turned", [&main, &head], "locked/f", "evil"),
        ("another path", [&head, &main], "locked/kept", "evil"),
        ("a new path", [&head, &main], "locked/made/evil", "evil"),
        ("an old version's", [&head, &old], "locked/f", "old"),
        ("an old version's, turned", [&old, &head], "locked/f", "old"),
        ("one that main had in between", [&head, &main], "locked/f", "new"),
        ("of a parent that was not judged", [&head, &side], "locked/f", "old"),
        ("of a parent that was not judged, turned", [&side, &head], "locked/f", "old"),
    ] {
        denied(why, &forged(&git, &parents, path, content), "mine");
    }
    // A change of one's own does not come in by a second parent, also when the push that first brought it was refused.
    let own = forged(&git, &[&head], "locked/f", "own");
    denied("a change", &own, "mine");
    for parents in [[&*head, &*own], [&own, &head]] {
        denied("a change as a parent", &forged(&git, &parents, "locked/f", "own"), "mine");
        denied("a change as a parent, on a new branch", &forged(&git, &parents, "locked/f", "own"), "fresh");
    }
    // What another branch has is not what main has; and main takes nothing over from anywhere.
    boss.ok(&["put", git.path("content").to_str().unwrap(), "/tenants/acme/locked/f", "--branch", "another"]);
    git.ok("work", &["fetch", "-q"]);
    let another = git.ok("work", &["rev-parse", "origin/another"]);
    denied("another branch's", &forged(&git, &[&head, &another], "locked/f", "own"), "mine");
    denied("a merge that drops main's", &forged(&git, &[&head, &main], "open/g", "1"), "main");
    assert_eq!(git.ok("work", &["ls-remote", "origin", "refs/heads/mine"]).split('\t').next(), Some(&*head));
    assert_eq!(git.ok("work", &["ls-remote", "origin", "refs/heads/main"]).split('\t').next(), Some(&*main));
    assert!(!git.ok("work", &["ls-remote", "origin"]).contains("fresh"));
    // Where policy looks at the branch, what main has says nothing about another.
    git.ok("work", &["merge", "-q", "--no-edit", "origin/main"]);
    policy("release-stays", r#"context.branch == "release""#);
    denied("a branch may differ", "mine", "mine");
    boss.ok(&["policy", "rm", "release-stays"]);
    pushes("mine", "mine");
}
