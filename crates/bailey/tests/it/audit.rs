//! The audit from the command line: read, followed, exported, verified. And what is warned of: credentials in files and
//! requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::{Server, User, eventually, text};

/// Shaped like a token of GitHub's, which it is not.
const SHAPED: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn credentials_in_files_and_runs_are_warned_of_and_never_shown() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("env");
    std::fs::write(&local, format!("TOKEN={SHAPED}\n")).unwrap();
    let local = local.to_str().unwrap();
    let warned = |arguments: &[&str]| {
        let output = ana.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("warning: ") && said.contains("github-token"), "{arguments:?}: {said}");
        assert!(!said.contains(SHAPED), "{said}");
        text(&output.stdout)
    };
    warned(&["put", local, "/tenants/acme/env"]);
    let answer = lines(&warned(&["--json", "put", local, "/tenants/acme/more"])).remove(0);
    assert!(answer["warnings"][0].as_str().unwrap().contains("github-token"), "{answer}");
    // A whole folder as well.
    let answer = lines(&warned(&["--json", "put", folder.path().to_str().unwrap(), "/tenants/acme/all"])).remove(0);
    assert!(answer["warnings"][0].as_str().unwrap().starts_with("all/env: "), "{answer}");

    let env = format!("TOKEN={SHAPED}");
    assert_eq!(warned(&["run", "--env", &env, "--", "echo", "done"]), "done\n");
    let events = lines(&warned(&["--json", "run", "--env", &env, "--", "true"]));
    assert_eq!(events[0]["event"], "started");
    assert!(events[0]["warnings"][0].as_str().unwrap().contains("github-token"), "{}", events[0]);
    assert!(events.iter().skip(1).all(|event| event.get("warnings").is_none()), "{events:?}");
    let accepted = lines(&warned(&["--json", "run", "--detach", "--env", &env, "--", "true"])).remove(0);
    assert!(accepted["run"].is_string() && accepted["warnings"][0].is_string(), "{accepted}");
    // What a run leaves is kept, and said.
    let leave = format!("echo {} >/data/left", SHAPED.replacen("ghp_", "ghp_'", 1) + "'");
    warned(&["run", "--mount", "/tenants/acme:/data", "--", "sh", "-c", &leave]);
    let quiet = ana.output(&["run", "--", "true"]);
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
}

/// A command that goes on until it is dropped, and the lines that it prints.
struct Following {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Following {
    fn start(user: &User, arguments: &[&str]) -> Self {
        let mut child = user.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::channel();
        // Ends with the command's output, or with whoever reads.
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, lines }
    }

    /// The next line that holds the text.
    fn until(&self, wanted: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(std::time::Duration::from_secs(30));
            let line = line.unwrap_or_else(|error| panic!("{error}: nothing with {wanted}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Waits for its end, and gives its code and what it said of it.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
            self.child.wait().unwrap();
        }
    }
}

#[test]
fn the_audit_is_read_by_what_a_row_says_and_by_admins_alone() {
    let server = Server::start();
    let (ana, boss, root) = (server.user("acme", "ana"), server.admin("acme", "boss"), server.operator());
    ana.put("/tenants/acme/docs/a", "1");
    ana.put("/tenants/acme/other", "2");
    ana.fails(1, &["rm", "/tenants/acme/users/bob/x"]);
    let run = ana.json(&["run", "--detach", "--", "true"])["run"].as_str().unwrap().to_owned();
    let rows = |arguments: &[&str]| boss.ok(&[&["audit"], arguments].concat()).lines().count();
    assert_eq!(rows(&["--user", "ana", "--action", "tree_write"]), 2);
    assert_eq!(rows(&["--resource", "/tenants/acme/docs"]), 1);
    assert_eq!(rows(&["--decision", "denied"]), 1);
    assert_eq!(rows(&["--user", "nobody"]), 0);
    assert_eq!(rows(&["--run", &run, "--action", "run_create"]), 1);
    eventually("its end is a row", || rows(&["--run", &run, "--action", "run_end"]) == 1);
    assert_eq!(rows(&["--run", &run]), 2);
    assert_eq!(rows(&["--action", "tree_write", "-n", "1"]), 1);
    assert_eq!(rows(&["--action", "tree_write", "--since", "1h"]), 2);
    let denied = boss.ok(&["audit", "--decision", "denied"]);
    assert!(
        denied.contains("ana tree_delete /tenants/acme/users/bob/x") && denied.contains("own-folder-only"),
        "{denied}"
    );
    let json = lines(&boss.ok(&["--json", "audit", "--resource", "/tenants/acme/docs"])).remove(0);
    assert!(json["user"] == "ana" && json["row"]["action"] == "tree_write", "{json}");
    assert!(ana.fails(1, &["audit"]).contains("admins-only"));
    assert!(boss.fails(1, &["audit", "--operator"]).contains("operators"));
    assert!(root.fails(1, &["audit"]).contains("users of a tenant"));
    // Operators: their own with names, a tenant's without.
    root.ok(&["tenant", "list"]);
    let own = root.ok(&["audit", "--operator", "--user", "root", "--action", "tenant_list"]);
    assert!(own.lines().count() == 1 && own.contains("root tenant_list bailey: ok"), "{own}");
    let theirs = root.ok(&["audit", "--tenant", "acme", "--action", "tree_write"]);
    assert!(theirs.lines().count() == 2 && !theirs.contains("ana") && !theirs.contains("docs"), "{theirs}");
    assert!(theirs.lines().all(|line| line.contains(" ~") && line.contains("(not told)")), "{theirs}");
    // What they change of a tenant's both are told, and operators alone by whom.
    root.ok(&["user", "disable", "zoe", "--tenant", "acme"]);
    let seen = root.ok(&["audit", "--tenant", "acme", "--action", "tenant_user_disable"]);
    assert!(seen.contains("root tenant_user_disable"), "{seen}");
    let theirs = boss.ok(&["audit", "--action", "tenant_user_disable"]);
    assert!(theirs.contains(" ~") && !theirs.contains("root"), "{theirs}");
    assert!(root.fails(1, &["audit", "--tenant", "acme", "--user", "ana"]).contains("the tenant's own"));
}

#[test]
fn whoever_follows_the_audit_sees_rows_as_they_come_until_that_is_over() {
    let server = Server::start();
    let (ana, boss, root) = (server.user("acme", "ana"), server.admin("acme", "boss"), server.operator());
    let rita = server.holder(&["--operator", "rita"]);
    ana.put("/tenants/acme/before", "1");
    let admins = Following::start(&boss, &["audit", "--follow"]);
    admins.until("/tenants/acme/before");
    let operators = Following::start(&rita, &["audit", "--operator", "--follow"]);
    let theirs = Following::start(&rita, &["audit", "--tenant", "acme", "--follow", "--action", "tree_write"]);
    operators.until("rita operator_audit");
    theirs.until("tree_write");
    ana.put("/tenants/acme/after", "1");
    assert!(admins.until("/tenants/acme/after").contains("ana tree_write"));
    let seen = theirs.until("tree_write");
    assert!(!seen.contains("ana") && !seen.contains("after"), "{seen}");
    root.ok(&["tenant", "list"]);
    operators.until("root tenant_list");
    // Disabled, they are told so, and nothing more.
    root.ok(&["account", "disable", "operator", "rita"]);
    root.ok(&["user", "disable", "boss", "--tenant", "acme"]);
    for (following, why) in [(admins, "the user is disabled"), (operators, "disabled"), (theirs, "disabled")] {
        let (code, said) = following.end();
        assert!(code == Some(1) && said.contains("broken off") && said.contains(why), "{code:?} {said}");
    }
}

#[test]
fn d18_an_export_verifies_anywhere_and_one_that_was_changed_says_where() {
    let server = Server::start();
    let (ana, boss, root) = (server.user("acme", "ana"), server.admin("acme", "boss"), server.operator());
    for name in ["a", "b", "canary-c"] {
        ana.put(&format!("/tenants/acme/{name}"), name);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut answer = String::new();
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"GET /.well-known/jwks.json HTTP/1.1\r\nhost: bailey\r\nconnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    std::fs::write(file("keys"), answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let (theirs, own, sealed) = (file("acme"), file("operator"), file("sealed"));
    boss.ok(&["audit", "export", &theirs]);
    root.ok(&["audit", "export", "--operator", &own]);
    root.ok(&["audit", "export", "--tenant", "acme", &sealed]);
    // Nothing is written over what is there.
    boss.fails(1, &["audit", "export", &theirs]);
    let nobody = User { url: "http://127.0.0.1:1".to_owned(), token: String::new() };
    let verify =
        |file: &str| nobody.output(&["audit", "verify", file, "--keys", &folder.path().join("keys").to_string_lossy()]);
    for (file, chain) in [(&theirs, "tenant/acme"), (&own, "operator"), (&sealed, "tenant/acme")] {
        let output = verify(file);
        let said = text(&output.stdout);
        assert!(output.status.code() == Some(0) && said.contains(chain) && said.contains("whole"), "{output:?}");
    }
    let text_of = |file: &str| std::fs::read_to_string(file).unwrap();
    assert!(text_of(&theirs).contains("canary-c") && !text_of(&sealed).contains("canary-c"));
    assert!(text(&verify(&sealed).stdout).contains("left out"));
    // One word of one row.
    let whole = text_of(&theirs);
    let changed = file("changed");
    let row = whole.lines().position(|line| line.contains("\"seq\":2,")).unwrap();
    let edited = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        change(&mut lines);
        std::fs::write(&changed, lines.join("\n")).unwrap();
        let output = verify(&changed);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stdout)
    };
    let said = edited(&|lines| lines[row] = lines[row].replace("\"allowed\"", "\"denied\""));
    assert!(said.contains("broken") && said.contains("row 2 was edited"), "{said}");
    let said = edited(&|lines| drop(lines.remove(row)));
    assert!(said.contains("row 2 was removed"), "{said}");
    let said = edited(&|lines| lines[row] = lines[row].replace("/tenants/acme/b", "/tenants/acme/z"));
    assert!(said.contains("what row 2 was about was edited"), "{said}");
    let said = edited(&|lines| drop(lines.pop()));
    assert!(said.contains("breaks off"), "{said}");
    // The server's own audit, where it lies.
    let data = server.data().to_str().unwrap().to_owned();
    assert!(nobody.ok(&["audit", "verify", "--data", &data]).contains("tenant/acme: whole"));
}
