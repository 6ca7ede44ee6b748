//! Stock git against a real server: clone, fetch, push, and what is refused.

mod content;
mod cut;
mod habits;
mod wire;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::server::{Server, User, text};

/// Someone with stock git and a folder to work in.
struct Git {
    dir: tempfile::TempDir,
    url: String,
    token: String,
    protocol: u8,
}

impl Git {
    fn new(server: &Server, user: &User, repo: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, url: format!("{}/git/{repo}.git", server.url), token: user.token.clone(), protocol: 2 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Git with a bearer token, and nothing of the developer's configuration.
    fn command(&self, folder: &str, args: &[&str]) -> Command {
        let mut command = bare_git();
        command.args(["-c", &format!("http.extraHeader=Authorization: Bearer {}", self.token)]);
        command.args(["-c", &format!("protocol.version={}", self.protocol)]);
        command.args(args).current_dir(self.dir.path().join(folder));
        command
    }

    fn output(&self, folder: &str, args: &[&str]) -> Output {
        self.command(folder, args).output().unwrap()
    }

    fn ok(&self, folder: &str, args: &[&str]) -> String {
        let output = self.output(folder, args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn fails(&self, folder: &str, args: &[&str]) -> String {
        let output = self.output(folder, args);
        assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn clone_into(&self, name: &str) -> PathBuf {
        self.ok("", &["clone", "-q", &self.url, name]);
        self.path(name)
    }

    fn commit(&self, folder: &str, message: &str) -> String {
        self.ok(folder, &["add", "-A"]);
        self.ok(folder, &["commit", "-q", "--allow-empty", "-m", message]);
        self.ok(folder, &["rev-parse", "HEAD"])
    }
}

fn bare_git() -> Command {
    let mut command = Command::new("git");
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").env("LC_ALL", "C");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    command.args(["-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "init.defaultBranch=main"]);
    command.args(["-c", "safe.directory=*", "-c", "advice.detachedHead=false"]);
    command
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn packs(server: &Server) -> Vec<String> {
    let folder = server.data().join("serve/trees/acme/tenant.git/objects/pack");
    let entries = std::fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().file_name()));
    let mut names: Vec<String> = entries.into_iter().flatten().map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Deterministic bytes that do not shrink.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

#[test]
fn an_empty_repository_is_cloned_pushed_to_and_read_everywhere() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("notes/plan.md"), b"one\n");
    let first = git.commit("work", "first");
    git.ok("work", &["push", "-q", "origin", "main"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/notes/plan.md"]), "one\n");
    let run = [
        "run",
        "--mount",
        "/tenants/acme:/data",
        "--",
        "sh",
        "-c",
        "cat /data/notes/plan.md; echo two >>/data/notes/plan.md",
    ];
    assert_eq!(ana.ok(&run), "one\n");
    git.ok("work", &["pull", "-q", "--ff-only"]);
    assert_eq!(std::fs::read(work.join("notes/plan.md")).unwrap(), b"one\ntwo\n");
    assert_eq!(git.ok("work", &["rev-parse", "HEAD^"]), first);
    // A branch, another clone of it, and stock git's own opinion of what lies on disk.
    git.ok("work", &["checkout", "-q", "-b", "feature/x"]);
    write(&work.join("x"), b"x");
    let tip = git.commit("work", "branch");
    git.ok("work", &["push", "-q", "origin", "feature/x"]);
    let other = git.clone_into("other");
    assert_eq!(git.ok("other", &["rev-parse", "origin/feature/x"]), tip);
    assert!(!other.join("x").exists());
    git.ok("other", &["fsck", "--full", "--strict"]);
    let stored = server.data().join("serve/trees/acme/tenant.git");
    let fsck = bare_git().args(["fsck", "--full", "--strict"]).current_dir(stored).output().unwrap();
    assert!(fsck.status.success(), "{fsck:?}");
    // The credential as a password, under any name.
    let url = git.url.replace("http://", &format!("http://whoever:{}@", git.token));
    let output = bare_git().args(["ls-remote", &url]).output().unwrap();
    assert!(text(&output.stdout).contains("refs/heads/feature/x"), "{output:?}");
}

#[test]
fn every_version_of_the_protocol_clones_fetches_and_pushes() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    for (name, content) in [("a", "1"), ("b", "2"), ("c", "3")] {
        ana.put(&format!("/tenants/acme/{name}"), content);
    }
    for protocol in [0, 1, 2] {
        let git = Git { protocol, ..Git::new(&server, &ana, "acme") };
        let work = git.clone_into("work");
        let shallow = git.path("shallow");
        git.ok("", &["clone", "-q", "--depth=1", &git.url, "shallow"]);
        assert_eq!(git.ok("shallow", &["rev-list", "--count", "HEAD"]), "1", "version {protocol}");
        ana.put(&format!("/tenants/acme/fetched-{protocol}"), "x");
        git.ok("work", &["pull", "-q", "--ff-only"]);
        assert!(work.join(format!("fetched-{protocol}")).exists());
        write(&work.join(format!("pushed-{protocol}")), b"y");
        git.commit("work", "push");
        git.ok("work", &["push", "-q"]);
        // From a shallow clone as well.
        git.ok("shallow", &["fetch", "-q", "--depth=1"]);
        git.ok("shallow", &["reset", "-q", "--hard", "origin/main"]);
        write(&shallow.join(format!("shallow-{protocol}")), b"z");
        git.commit("shallow", "from a shallow clone");
        git.ok("shallow", &["push", "-q"]);
        git.ok("shallow", &["fetch", "-q", "--unshallow"]);
        git.ok("shallow", &["fsck", "--full"]);
        assert_eq!(ana.ok(&["cat", &format!("/tenants/acme/shallow-{protocol}")]), "z");
    }
}

#[test]
fn a_history_that_retention_cut_is_cloned_as_a_shallow_one() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), "parked = 1\n[retention]\nversions = 3\n");
    let ana = server.user("acme", "ana");
    let token = crate::server::bailey().args(["token", "--operator", "root", "--data"]).arg(server.data()).output();
    let root = User { url: server.url.clone(), token: text(&token.unwrap().stdout).trim().to_owned() };
    for n in 0..6 {
        ana.put(&format!("/tenants/acme/f{n}"), &n.to_string());
    }
    let git = Git::new(&server, &ana, "acme");
    git.ok("", &["clone", "-q", &git.url, "before"]);
    assert_eq!(git.ok("before", &["rev-list", "--count", "HEAD"]), "6");
    assert_eq!(root.json(&["gc", "acme"])["expired"], 3);
    for protocol in [0, 1, 2] {
        let git = Git { protocol, ..Git::new(&server, &ana, "acme") };
        let work = git.clone_into("work");
        assert_eq!(git.ok("work", &["rev-list", "--count", "HEAD"]), "3", "version {protocol}");
        assert_eq!(git.ok("work", &["rev-parse", "--is-shallow-repository"]), "true", "version {protocol}");
        git.ok("work", &["fsck", "--full", "--strict"]);
        assert_eq!(std::fs::read(work.join("f0")).unwrap(), b"0", "files of old versions that are still there");
        git.ok("work", &["fetch", "-q"]);
        write(&work.join(format!("pushed-{protocol}")), b"y");
        git.commit("work", "from what is left");
        git.ok("work", &["push", "-q"]);
        assert_eq!(ana.ok(&["cat", &format!("/tenants/acme/pushed-{protocol}")]), "y");
        assert!(root.json(&["gc", "acme"])["expired"].as_u64().unwrap() >= 1);
    }
}

#[test]
fn odd_content_survives_clone_edit_push_read_and_run() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    // Made inside: a nested repository, a link, a script, an empty folder, names of all kinds.
    let make = "cd /data && mkdir -p nested/.git empty 'd\u{e9}/\u{540d}' && echo ref >nested/.git/HEAD && ln -s ../nope link \
                && printf '#!/bin/sh\n' >run.sh && chmod +x run.sh && echo 1 >Twin && echo 2 >twin && echo 3 >'c\u{e9}' && echo 4 >'ce\u{301}' && echo x >.gitmodules \
                && echo q >'a \"b\" \\ *?' && printf 'n\u{e9}' >'d\u{e9}/\u{540d}/f'";
    ana.ok(&["run", "--mount", "/tenants/acme:/data", "--", "sh", "-c", make]);
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    assert_eq!(std::fs::read(work.join("nested/bailey=.git/HEAD")).unwrap(), b"ref\n");
    write(&work.join("nested/bailey=.git/HEAD"), b"edited\n");
    write(&work.join("nested/bailey=.git/config"), b"new\n");
    git.commit("work", "edit");
    let pushed = git.output("work", &["push"]);
    assert!(pushed.status.success(), "{pushed:?}");
    assert!(text(&pushed.stderr).contains("git keeps no empty folders, so `main` lost: empty"), "{pushed:?}");
    let check = "cd /data && cat nested/.git/HEAD nested/.git/config Twin twin 'c\u{e9}' 'ce\u{301}' .gitmodules 'a \"b\" \\ *?' 'd\u{e9}/\u{540d}/f' \
                 && test -x run.sh && readlink link";
    let read = ana.ok(&["run", "--mount", "/tenants/acme:/data:ro", "--", "sh", "-c", check]);
    assert_eq!(read, "edited\nnew\n1\n2\n3\n4\nx\nq\nn\u{e9}../nope\n");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/nested/.git/config"]), "new\n");
}

#[test]
fn a_large_file_streams_both_ways() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    let large = noise(200 << 20, 7);
    write(&work.join("large"), &large);
    git.commit("work", "large");
    git.ok("work", &["push", "-q", "origin", "main"]);
    let peak = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    assert!(peak.parse::<u64>().unwrap() < 150 * 1024, "the server held {peak} KiB");
    let again = git.clone_into("again");
    assert!(std::fs::read(again.join("large")).unwrap() == large);
}

#[test]
fn of_pushes_at_once_one_wins_and_the_others_are_told_to_fetch() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/base", "0");
    let git = Git::new(&server, &ana, "acme");
    let commits: Vec<String> = (0..4)
        .map(|n| {
            let work = git.clone_into(&format!("work{n}"));
            write(&work.join(format!("file{n}")), b"x");
            git.commit(&format!("work{n}"), "race")
        })
        .collect();
    let pushes: Vec<_> = (0..4)
        .map(|n| git.command(&format!("work{n}"), &["push", "-q"]).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let ends: Vec<Output> = pushes.into_iter().map(|push| push.wait_with_output().unwrap()).collect();
    let winners = ends.iter().filter(|end| end.status.success()).count();
    assert_eq!(winners, 1, "{ends:?}");
    for loser in ends.iter().filter(|end| !end.status.success()) {
        assert!(text(&loser.stderr).contains("fetch first"), "{loser:?}");
    }
    // What was taken in of a loser before the winner's branch moved is garbage, and goes like any other.
    let store = server.data().join("serve/trees/acme/tenant.git");
    let kept = |n: usize| {
        let mut command = bare_git();
        command.arg("--git-dir").arg(&store).args(["cat-file", "-e", &commits[n]]);
        command.output().unwrap().status.success()
    };
    let winner = ends.iter().position(|end| end.status.success()).unwrap();
    let root = server.operator();
    crate::server::eventually("the losers' objects are gone", || {
        root.ok(&["gc", "acme"]);
        (0..4).all(|n| kept(n) == (n == winner))
    });
    // A write through the API in between is a race that was lost, too; after a merge the push is taken.
    let stale = git.clone_into("stale");
    ana.put("/tenants/acme/api", "1");
    write(&stale.join("late"), b"x");
    git.commit("stale", "late");
    assert!(git.fails("stale", &["push", "-q"]).contains("fetch first"));
    // Forcing changes nothing about it: no version is lost.
    git.ok("stale", &["fetch", "-q"]);
    assert!(git.fails("stale", &["push", "-q", "--force"]).contains("not a fast-forward"));
    git.ok("stale", &["pull", "-q", "--no-rebase", "--no-edit"]);
    git.ok("stale", &["push", "-q"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/late"]), "x");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/api"]), "1");
}

#[test]
fn what_is_no_branch_of_people_is_refused_and_all_refs_move_or_none() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("f"), b"1");
    git.commit("work", "first");
    for (refspec, reason) in [
        ("HEAD:refs/tags/v1", "only branches are kept"),
        ("HEAD:refs/notes/commits", "only branches are kept"),
        ("HEAD:refs/heads/runs/run_x", "made by runs alone"),
    ] {
        let said = git.fails("work", &["push", "origin", "HEAD:refs/heads/main", refspec]);
        assert!(said.contains(reason) && said.contains("another ref of this push was refused"), "{said}");
    }
    assert_eq!(git.ok("work", &["ls-remote", "origin"]), "");
    assert_eq!(packs(&server), Vec::<String>::new());
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/main", "HEAD:refs/heads/second"]);
    let said = git.fails("work", &["push", "origin", "HEAD:refs/heads/second/below"]);
    assert!(said.contains("cannot both be branches"), "{said}");
    // Submodules, with the reason.
    let head = git.ok("work", &["rev-parse", "HEAD"]);
    git.ok("work", &["update-index", "--add", "--cacheinfo", &format!("160000,{head},sub")]);
    git.ok("work", &["commit", "-qm", "submodule"]);
    let said = git.fails("work", &["push", "origin", "main"]);
    assert!(said.contains("submodules are not kept"), "{said}");
}

#[test]
fn f16_a02_another_tenants_repository_is_denied_whether_it_is_there_or_not() {
    let server = Server::start();
    let (ana, eve) = (server.user("acme", "ana"), server.user("globex", "eve"));
    ana.put("/tenants/acme/secret", "s");
    let there = Git::new(&server, &eve, "acme").fails("", &["clone", "-q", &Git::new(&server, &eve, "acme").url]);
    let absent = Git::new(&server, &eve, "initech");
    let not_there = absent.fails("", &["clone", "-q", &absent.url]);
    let plain = |said: &str, name: &str| {
        let lines = said.lines().filter(|line| !line.contains("request req"));
        lines.collect::<Vec<_>>().join("\n").replace(name, "NAME")
    };
    assert_eq!(plain(&there, "acme"), plain(&not_there, "initech"));
    assert!(there.contains("own-tenant-only") && there.contains("403"), "{there}");
    // Another user's own repository, and a credential that is none.
    let bob = server.user("acme", "bob");
    ana.put("/tenants/acme/users/ana/f", "x");
    let git = Git::new(&server, &bob, "acme/users/ana");
    assert!(git.fails("", &["clone", "-q", &git.url]).contains("403"));
    let git = Git::new(&server, &ana, "acme/users/ana");
    assert_eq!(std::fs::read(git.clone_into("own").join("f")).unwrap(), b"x");
    let git = Git { token: "nonsense".to_owned(), ..git };
    assert!(git.fails("", &["ls-remote", &git.url]).contains("could not read Username"));
}

#[test]
fn l08_credentials_in_urls_and_headers_are_not_logged() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    git.clone_into("work");
    for url in [
        git.url.replace("http://", &format!("http://x:{}@", git.token)),
        git.url.replace("http://", "http://x:planted-secret@"),
        format!("{}?token=planted-secret", git.url),
    ] {
        drop(bare_git().args(["ls-remote", &url]).output().unwrap());
    }
    let log = server.log();
    assert!(!log.contains(&git.token) && !log.contains("planted-secret"), "{log}");
}

#[test]
fn no_hook_runs_wherever_it_was_planted() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    let hook = b"#!/bin/sh\ntouch /tmp/hook-ran /repo/hook-ran; exit 1\n";
    for place in ["hooks/pre-receive", "hooks/update", "hooks/post-receive", "bailey=.git/hooks/pre-receive"] {
        write(&work.join(place), hook);
        std::fs::set_permissions(work.join(place), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    write(&work.join("config"), b"[core]\n\thooksPath = hooks\n[uploadpack]\n\tpackObjectsHook = hooks/update\n");
    git.commit("work", "hooks");
    git.ok("work", &["push", "-q", "origin", "main"]);
    git.clone_into("again");
    let stored = server.data().join("serve/trees/acme/tenant.git");
    assert!(!stored.join("hooks").exists() && !stored.join("hook-ran").exists());
    assert!(!Path::new("/tmp/hook-ran").exists());
    // Not even one in the repository's own folder, which nobody can write: as if the first barrier had fallen.
    std::fs::create_dir(stored.join("hooks")).unwrap();
    for name in ["pre-receive", "update", "post-receive", "reference-transaction", "proc-receive"] {
        std::fs::write(stored.join("hooks").join(name), hook).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(stored.join("hooks").join(name), mode).unwrap();
    }
    write(&git.path("again/more"), b"x");
    git.commit("again", "more");
    git.ok("again", &["push", "-q"]);
    assert!(!stored.join("hook-ran").exists());
}

#[test]
fn a_push_killed_midway_leaves_nothing() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("large"), &noise(60 << 20, 9));
    git.commit("work", "large");
    let mut push =
        git.command("work", &["-c", "http.postBuffer=65536", "push", "-q", "origin", "main"]).spawn().unwrap();
    crate::server::eventually("the push has begun", || {
        std::fs::read_dir(server.data().join("serve/trees/acme/tenant.git/objects/pack")).is_ok_and(|e| e.count() > 0)
            || push.try_wait().unwrap().is_some()
    });
    push.kill().unwrap();
    push.wait().unwrap();
    crate::server::eventually("nothing is left of it", || {
        packs(&server).is_empty() || git.ok("work", &["ls-remote", "origin"]).contains("main")
    });
}

/// A request to the API; the answer's body.
fn api(user: &User, server: &Server, method: &str, path: &str, body: &str) -> String {
    let url = format!("{}{path}", server.url);
    let (authorization, kind) = (format!("Authorization: Bearer {}", user.token), "Content-Type: application/json");
    let output = Command::new("curl")
        .args(["-s", "-X", method, "-H", &authorization, "-H", kind, "-d", body, &url])
        .output()
        .unwrap();
    text(&output.stdout)
}

#[test]
fn a_protected_branch_is_pushed_to_by_nobody_and_others_can_be_deleted() {
    let server = Server::start();
    let ana = server.admin("acme", "ana");
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    write(&work.join("f"), b"1");
    git.commit("work", "first");
    git.ok("work", &["push", "-q", "origin", "main", "HEAD:refs/heads/gone"]);
    let said = api(&ana, &server, "PUT", "/v1/protections/tenants/acme?branch=main", "{}");
    assert!(said.contains("main"), "{said}");
    write(&work.join("f"), b"2");
    git.commit("work", "second");
    let before = packs(&server).len();
    let said = git.fails("work", &["push", "origin", "main", "HEAD:refs/heads/other"]);
    assert!(said.contains("`main` is protected") && said.contains("another ref of this push"), "{said}");
    assert_eq!(packs(&server).len(), before);
    git.ok("work", &["push", "-q", "origin", "HEAD:refs/heads/other"]);
    let said = git.fails("work", &["push", "origin", "--delete", "main"]);
    assert!(said.contains("`main` stays") || said.contains("protected"), "{said}");
    git.ok("work", &["push", "-q", "origin", "--delete", "gone"]);
    assert!(!git.ok("work", &["ls-remote", "origin"]).contains("gone"));
}

#[test]
fn paths_that_policy_hides_are_never_served_in_part_nor_written_by_a_push() {
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
    git.ok("work", &["push", "-q", "origin", "main"]);
    // The same data under a policy that keeps one folder as it is, and another unread.
    let policy = "@id(\"locked-stays\")\nforbid (principal, action in [Action::\"tree_write\", Action::\"tree_delete\"], \
                  resource is Path) when { resource.path like \"*/locked/*\" };\n\
                  @id(\"hidden-unread\")\nforbid (principal, action == Action::\"tree_read\", resource is Path) \
                  when { resource.path like \"*/hidden/*\" };";
    std::fs::write(policies.join("own.cedar"), policy).unwrap();
    let (_, data) = server.end(rustix::process::Signal::TERM);
    let server = Server::start_in(data, &format!("parked = 1\npolicies = \"{}\"\n", policies.display()));
    let git = Git { url: format!("{}/git/acme.git", server.url), ..git };
    git.ok("work", &["remote", "set-url", "origin", &git.url]);
    write(&work.join("open/f"), b"2");
    git.commit("work", "fine");
    git.ok("work", &["push", "-q", "origin", "main"]);
    // Changed, deleted, or only in between.
    let head = git.ok("work", &["rev-parse", "HEAD"]);
    write(&work.join("locked/f"), b"changed");
    git.commit("work", "changed");
    let said = git.fails("work", &["push", "origin", "main"]);
    assert!(said.contains("locked-stays") && said.contains("tree_write"), "{said}");
    write(&work.join("locked/f"), b"keep");
    let refused = git.commit("work", "changed back");
    // What the first push brought lies in the store by the second, and all of it by the third: it is judged all the same.
    for _ in 0..2 {
        let said = git.fails("work", &["push", "origin", "main"]);
        assert!(said.contains("locked-stays"), "{said}");
    }
    let said = git.fails("work", &["push", "origin", "HEAD:refs/heads/side"]);
    assert!(said.contains("locked-stays"), "{said}");
    // Nor is it a version that anything can be made from.
    let body = format!("{{\"path\":\"/tenants/acme\",\"branch\":\"side\",\"from\":\"{refused}\"}}");
    assert!(api(&ana, &server, "POST", "/v1/forks", &body).contains("not_found"));
    git.ok("work", &["reset", "-q", "--hard", &head]);
    std::fs::remove_file(work.join("locked/f")).unwrap();
    git.commit("work", "deleted");
    let said = git.fails("work", &["push", "origin", "main"]);
    assert!(said.contains("locked-stays") && said.contains("tree_delete"), "{said}");
    git.ok("work", &["reset", "-q", "--hard", &head]);
    // What may be written but not read: from then on nobody clones, nor when it is only in history.
    write(&work.join("hidden/f"), b"secret");
    git.commit("work", "hidden");
    git.ok("work", &["push", "-q", "origin", "main"]);
    let refused = |git: &Git| {
        let said = git.fails("", &["clone", "-q", &git.url, "refused"]);
        assert!(said.contains("hidden-unread") && said.contains("/tenants/acme/hidden/f"), "{said}");
    };
    refused(&git);
    ana.at(&server).ok(&["rm", "/tenants/acme/hidden"]);
    refused(&git);
}

/// Put together here, so that none lies in the repository.
fn credential() -> String {
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').chain('0'..='9').collect();
    let noise: String = (0..36).map(|n| letters[(n * 37 + n * n * 11) % letters.len()]).collect();
    format!("gh{}_{noise}", 'p')
}

#[test]
fn what_is_pushed_shaped_like_a_credential_is_told_or_refused_by_policy() {
    let server = Server::start();
    let (ana, boss) = (server.user("acme", "ana"), server.admin("acme", "boss"));
    let git = Git::new(&server, &ana, "acme");
    let work = git.clone_into("work");
    let push = || text(&git.output("work", &["push", "origin", "main"]).stderr);
    write(&work.join("plain"), b"nothing");
    git.commit("work", "plain");
    let said = push();
    assert!(said.contains("main -> main") && !said.contains("credential"), "{said}");
    let secret = credential();
    write(&work.join("conf/token.env"), format!("token = {secret}\n").as_bytes());
    git.commit("work", "a secret");
    let said = push();
    let warning = "remote: bailey: conf/token.env: shaped like a credential (github-token) at byte 8";
    assert!(said.contains("main -> main") && said.matches(warning).count() == 1, "{said}");
    assert!(!said.contains(&secret), "{said}");

    // By either of the two actions it can be refused, even where a later version of the push has it no more.
    for (name, action) in [("as-write", "tree_write"), ("as-push", "tree_push")] {
        let rule = format!(
            r#"@reason("no secrets") forbid (principal, action == Action::"{action}", resource)
               unless {{ context.credential_shaped.isEmpty() }};"#
        );
        let file = work.join("../rule.cedar");
        write(&file, rule.as_bytes());
        boss.ok(&["policy", "put", name, file.to_str().unwrap()]);
        write(&work.join(name), format!("again {secret}").as_bytes());
        git.commit("work", "another secret");
        std::fs::remove_file(work.join(name)).unwrap();
        git.commit("work", "and away with it");
        let said = git.fails("work", &["push", "origin", "main"]);
        assert!(said.contains(&format!("tenant/{name}")) && said.contains("no secrets"), "{said}");
        assert!(!said.contains(&secret), "{said}");
        git.ok("work", &["reset", "-q", "--hard", "HEAD~2"]);
        let denied = boss.ok(&["audit", "--decision", "denied", "--action", action]);
        assert!(denied.contains(&format!("tenant/{name}")), "{denied}");
        write(&work.join(name), b"harmless");
        git.commit("work", "harmless");
        assert!(push().contains("main -> main"));
        boss.ok(&["policy", "rm", name]);
    }
}
