//! The operator's folder of policies in a real server, and `bailey policy` against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Server, bailey, eventually, text};

const NO_READING: &str =
    r#"@id("no-reading") @reason("closed") forbid (principal, action == Action::"tree_read", resource);"#;
const NO_DELETING: &str = r#"@id("no-deleting") forbid (principal, action == Action::"tree_delete", resource);"#;
/// How soon a change is in force, its proof included.
const SOON: Duration = Duration::from_secs(2);

/// A server that follows a folder of policies.
struct World {
    server: Server,
    /// The folder lies beside the server's own.
    folder: tempfile::TempDir,
}

impl World {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Read by the server under a uid of its own.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let config = format!("parked = 0\npolicies = \"{}\"\n", folder.path().display());
        Self { server: Server::start_in(tempfile::tempdir().unwrap(), &config), folder }
    }

    fn write(&self, name: &str, text: &str) {
        // Whole or not at all, as an operator's tools do it.
        let draft = self.folder.path().join("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, self.folder.path().join(name)).unwrap();
    }

    /// What `/readyz` answers.
    fn ready(&self) -> String {
        let output = Command::new("curl").args(["-sS", &format!("{}/readyz", self.server.url)]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }
}

/// `make setup` installs the solver: without it, nothing would be proven and nobody would see.
fn need_solver() {
    assert!(Path::new("/usr/bin/cvc5").exists(), "cvc5 is missing: run `make setup`");
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies")
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real time is what is measured")]
fn c12_a_change_in_the_operators_folder_is_soon_in_force_and_a_broken_one_never() {
    let world = World::new(&[]);
    let (ana, root) = (world.server.user("acme", "ana"), world.server.operator());
    ana.put("/tenants/acme/x", "content");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/x"]), "content");
    assert_eq!(world.ready(), "ok\n");
    let reads = || ana.output(&["cat", "/tenants/acme/x"]).status.success();

    let mut took = Vec::new();
    let mut timed = |what: &str, text: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        world.write("rules.cedar", text);
        eventually(what, holds);
        took.push(begun.elapsed());
    };
    timed("the new policy denies", NO_READING, &|| !reads());
    timed("reading is allowed again", NO_DELETING, &reads);
    timed("the new policy denies", NO_READING, &|| !reads());
    // The machine may be busy with other tests; at its best it has to keep the promise.
    assert!(took.iter().min() < Some(&SOON), "it took {took:?}");
    let denied = ana.fails(1, &["cat", "/tenants/acme/x"]);
    assert!(denied.contains("no-reading") && denied.contains("closed"), "{denied}");

    for (broken, why) in [
        ("forbid (principal", "does not parse"),
        (r#"forbid (principal, action, resource) when { resource.colour == "red" };"#, "do not fit the schema"),
        (r#"@id("own-tenant-only") permit (principal, action, resource);"#, "is taken"),
    ] {
        world.write("rules.cedar", broken);
        eventually("the refusal is told", || text(&root.output(&["policy", "status"]).stdout).contains(why));
        // Anybody may ask that: why is for the operator.
        assert_eq!(world.ready(), "ok\npolicy: refused\n");
        let output = root.output(&["policy", "status"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stdout);
        assert!(said.contains("the last change was refused") && said.contains(why), "{said}");
        assert!(!reads(), "a refused set took the one in force away");
    }

    world.write("rules.cedar", NO_DELETING);
    eventually("reading is allowed again", reads);
    assert_eq!(world.ready(), "ok\n");
    assert!(ana.fails(1, &["rm", "/tenants/acme/x"]).contains("no-deleting"));
    // A file that goes away takes its policies along.
    std::fs::remove_file(world.folder.path().join("rules.cedar")).unwrap();
    eventually("deleting is allowed again", || ana.output(&["rm", "/tenants/acme/x"]).status.success());
}

#[test]
fn c12_a_link_in_the_folder_is_refused_and_what_it_names_is_not_read() {
    let world = World::new(&[("rules.cedar", NO_DELETING)]);
    std::os::unix::fs::symlink("/etc/passwd", world.folder.path().join("z.cedar")).unwrap();
    let root = world.server.operator();
    let status = || text(&root.output(&["policy", "status"]).stdout).to_owned();
    eventually("the refusal is told", || status().contains("is no regular file"));
    let ana = world.server.user("acme", "ana");
    ana.put("/tenants/acme/x", "content");
    assert!(ana.fails(1, &["rm", "/tenants/acme/x"]).contains("no-deleting"));
    assert!(!status().contains("root:"));
}

#[test]
fn c14_the_solver_runs_in_the_servers_own_root() {
    need_solver();
    let world = World::new(&[("rules.cedar", r#"@id("wide") permit (principal, action, resource);"#)]);
    let root = world.server.operator();
    let state = root.json(&["policy", "status"]);
    assert_eq!(state["proof"], "proven", "{state}");
    let before = state["policies"].as_u64().unwrap();
    world.write("more.cedar", NO_DELETING);
    eventually("the change is in force", || root.json(&["policy", "status"])["policies"].as_u64() == Some(before + 1));
    assert_eq!(root.json(&["policy", "status"])["proof"], "proven");
    assert!(root.ok(&["policy", "status"]).contains(&format!("{} policies since", before + 1)));
    // It leaves nothing behind.
    let parent = format!("PPid:\t{}\n", world.server.pid().as_raw_nonzero());
    eventually("no solver is left", || {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let mut solvers = processes.filter(|entry| {
            let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            read("status").contains(&parent) && read("comm").contains("cvc5")
        });
        solvers.next().is_none()
    });
}

#[test]
fn a_tenants_admin_lists_puts_and_takes_away_policies() {
    let world = World::new(&[]);
    let (admin, ana) = (world.server.admin("acme", "root"), world.server.user("acme", "ana"));
    ana.put("/tenants/acme/x", "content");
    let file = world.folder.path().join("quiet.txt");
    std::fs::write(&file, NO_READING.replace("no-reading", "ignored")).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(admin.ok(&["policy", "ls"]).trim(), "");
    assert!(ana.fails(1, &["policy", "put", "quiet", file]).contains("admins-only"));
    assert!(admin.ok(&["policy", "put", "quiet", file]).contains("tenant/quiet is in force"));
    assert!(ana.fails(1, &["cat", "/tenants/acme/x"]).contains("tenant/quiet"));
    assert!(admin.ok(&["policy", "ls"]).contains("// tenant/quiet\n"));
    assert_eq!(admin.json(&["policy", "ls"])["policies"][0]["name"], "quiet");
    let permit = world.folder.path().join("permit.txt");
    std::fs::write(&permit, "permit (principal, action, resource);").unwrap();
    let said = admin.fails(1, &["policy", "put", "open", permit.to_str().unwrap()]);
    assert!(said.contains("not one `forbid`"), "{said}");
    assert!(admin.fails(1, &["policy", "put", "none", "/no/such"]).contains("/no/such"));

    let why = ana.ok(&["policy", "explain", "tree_read", "--path", "/tenants/acme/x"]);
    assert!(why.starts_with("denied by tenant/quiet: closed"), "{why}");
    let why = ana.ok(&["policy", "explain", "user_list"]);
    assert!(why.contains("denied by admins-only") && why.contains("principal.roles"), "{why}");
    assert_eq!(ana.json(&["policy", "explain", "tree_list", "--path", "/tenants/acme"])["allowed"], true);
    // What is missing is said, and what was taken for granted.
    for (asked, says) in [
        (&["tree_read"][..], "--path"),
        (&["run_cancel"], "--run"),
        (&["run_create", "--path", "/tenants/acme/x"], "not about that"),
        (&["tenant_list"], "not for a tenant's users"),
    ] {
        let said = ana.fails(1, &[&["policy", "explain"], asked].concat());
        assert!(said.contains(says), "{asked:?}: {said}");
    }
    let why = ana.ok(&["policy", "explain", "run_create"]);
    assert!(why.starts_with("allowed by own-tenant") && why.contains("wall = container"), "{why}");
    assert!(why.contains("memory_bytes = ") && why.contains("timeout_ms = "), "{why}");
    // An admin asks about others.
    let boss = world.server.admin("acme", "boss");
    let why = boss.ok(&["policy", "explain", "user_list", "--user", "ana"]);
    assert!(why.contains("denied by admins-only") && why.contains("with the roles and entitlements of"), "{why}");
    assert!(ana.fails(1, &["policy", "explain", "user_list", "--user", "boss"]).contains("own-requests-only"));
    assert!(boss.fails(1, &["policy", "explain", "user_list", "--user", "nobody"]).contains("ever seen"));
    assert!(ana.fails(1, &["policy", "explain", "no_such"]).contains("no_such"));

    admin.ok(&["policy", "rm", "quiet"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/x"]), "content");
    admin.fails(1, &["policy", "rm", "quiet"]);
    // These are the operator's.
    assert!(admin.fails(1, &["policy", "status"]).contains("operator"));
}

#[test]
fn a_dry_run_says_what_a_folder_would_have_denied() {
    let world = World::new(&[]);
    let (ana, root) = (world.server.user("acme", "ana"), world.server.operator());
    ana.put("/tenants/acme/x", "content");
    ana.ok(&["cat", "/tenants/acme/x"]);
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("rules.cedar"), NO_READING).unwrap();
    let folder = other.path().to_str().unwrap();
    let said = root.ok(&["policy", "dry-run", folder]);
    assert!(said.contains("distinct requests of the last day"), "{said}");
    assert!(said.contains("newly denied") && said.contains("tree_read") && said.contains("no-reading"), "{said}");
    assert_eq!(root.json(&["policy", "dry-run", folder])["newly_allowed"], serde_json::json!([]));
    ana.fails(1, &["policy", "dry-run", folder]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/x"]), "content");
}

#[test]
fn cases_and_proofs_need_no_server() {
    let offline = |arguments: &[&str]| bailey().arg("policy").args(arguments).output().unwrap();
    let (rules, cases) = (examples(), examples().join("tests"));
    let (rules, cases) = (rules.to_str().unwrap(), cases.to_str().unwrap());
    let output = offline(&["test", cases, "--policies", rules]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains(" cases hold, 0 do not"), "{output:?}");
    // Without the rules the cases fail, each by its name.
    let output = offline(&["test", cases]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("a user from elsewhere is refused"), "{output:?}");
    let empty = tempfile::tempdir().unwrap();
    assert!(!offline(&["test", empty.path().to_str().unwrap()]).status.success());

    need_solver();
    std::fs::write(empty.path().join("rules.cedar"), NO_DELETING).unwrap();
    let folder = empty.path().to_str().unwrap();
    let output = offline(&["prove", "--policies", folder, "--against", folder]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("tenants are apart") && said.contains("`no-deleting` never errors"), "{said}");
    assert!(said.contains("0 violated, 0 unproven") && !said.contains("newly"), "{said}");
    let older = tempfile::tempdir().unwrap();
    let output = offline(&["prove", "--policies", folder, "--against", older.path().to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(said.contains("newly denied: User::") && said.contains(r#"Action::"tree_delete""#), "{said}");
    let sum = r#"@id("sum") forbid (principal, action == Action::"run_create", resource)
                 when { resource.memory_bytes + resource.disk_bytes > 1000 };"#;
    std::fs::write(empty.path().join("rules.cedar"), sum).unwrap();
    let output = offline(&["prove", "--policies", folder]);
    assert_eq!(output.status.code(), Some(1));
    // One line for it: who, what, on what, and the attributes that the policy looks at.
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.starts_with("VIOLATED")).expect("the violation is told");
    assert!(
        line.contains("`sum` never errors") && line.contains(r#"may do Action::"run_create" on Sandbox::"#),
        "{line}"
    );
    assert!(line.contains("resource.memory_bytes = ") && line.contains("resource.disk_bytes = "), "{line}");
    assert!(said.ends_with(" 1 violated, 0 unproven\n"), "{said}");
}

#[test]
fn what_is_in_force_in_a_data_folder_is_proven_the_operators_and_each_tenants() {
    need_solver();
    let world = World::new(&[("rules.cedar", NO_READING)]);
    let file = world.folder.path().join("own.txt");
    let sum = r#"forbid (principal, action == Action::"run_create", resource)
                 when { resource.memory_bytes + resource.disk_bytes > 1000 };"#;
    for (tenant, policy) in [("acme", NO_DELETING), ("globex", sum)] {
        std::fs::write(&file, policy).unwrap();
        world.server.admin(tenant, "root").ok(&["policy", "put", "own", file.to_str().unwrap()]);
    }
    // What was put in force last counts, not what the server began with.
    world.write("rules.cedar", &NO_READING.replace("no-reading", "renamed"));
    let data = world.server.data();
    let prove = |more: &[&str]| {
        bailey().args(["policy", "prove", "--data", data.to_str().unwrap()]).args(more).output().unwrap()
    };
    eventually("the change is in force", || {
        let noted = std::fs::read_to_string(data.join("serve/policies.json")).unwrap_or_default();
        noted.contains("renamed")
    });
    let output = prove(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcome = |whose: &str, claim: serde_json::Value| {
        let found = lines.iter().find(|line| line["policies"] == whose && line["finding"]["claim"] == claim);
        found.map(|line| line["finding"]["outcome"].clone())
    };
    let never_errors = |policy: &str| serde_json::json!({ "never_errors": policy });
    for whose in ["operator", "tenant acme", "tenant globex"] {
        assert_eq!(outcome(whose, "tenants_apart".into()), Some("proven".into()), "{whose}");
    }
    assert_eq!(outcome("operator", never_errors("renamed")), Some("proven".into()));
    assert_eq!(outcome("tenant acme", never_errors("tenant/own")), Some("proven".into()));
    assert_eq!(outcome("tenant globex", never_errors("tenant/own")), Some("violated".into()));
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!((&summary["sets"], &summary["violated"]), (&3.into(), &1.into()), "{summary}");
    let empty = tempfile::tempdir().unwrap();
    let output = bailey().args(["policy", "prove", "--data", empty.path().to_str().unwrap()]).output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("--policies"), "{output:?}");
}

#[test]
fn a_region_that_is_noted_of_a_tenant_is_for_policies() {
    let region = std::fs::read_to_string(examples().join("region.cedar")).unwrap();
    let world = World::new(&[("region.cedar", &region)]);
    let (server, root) = (&world.server, world.server.operator());
    let ana = server.holder(&["--tenant", "acme", "--user", "ana", "--role", "member", "--region", "us"]);
    ana.put("/tenants/acme/x", "content");
    assert!(root.ok(&["tenant", "show", "acme"]).contains("region  not noted"));
    let set = root.ok(&["tenant", "set", "acme", "--region", "eu", "--plan", "free"]);
    assert!(set.contains("region  eu") && set.contains("plan    free"), "{set}");
    assert!(ana.fails(1, &["cat", "/tenants/acme/x"]).contains("same-region"));
    root.fails(2, &["tenant", "set", "acme"]);
    ana.fails(1, &["tenant", "set", "acme", "--region", "us"]);
    let set = root.json(&["tenant", "set", "acme", "--no-region"]);
    assert_eq!(set, serde_json::json!({ "tenant": "acme", "plan": "free", "known": true }));
    assert_eq!(ana.ok(&["cat", "/tenants/acme/x"]), "content");
}
