//! Park, claim, stop, collect, destroy.

use bailey_protocol::jail::{JailAnswer, JailOp};
use bailey_protocol::limits::Limits;
use tempfile::TempDir;

use crate::harness::{Jail, config};

#[test]
fn a_cage_lives_and_leaves_nothing() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    assert_eq!(cage.agent.get("cat /etc/marker; echo $$; id -u"), "template\n2\n0\n");
    jail.claim(&cage.sandbox, Limits::default(), &[]);
    jail.stop(&cage.sandbox);
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn slices_are_mounted_with_the_code_as_their_owner_and_collected() {
    let data = TempDir::new().unwrap();
    slices(&data, Jail::start(data.path()));
}

#[test]
fn the_same_where_the_kernel_takes_layers_by_path_only() {
    let data = TempDir::new().unwrap();
    let before = "exec \"$0\" 4 --layers-by-path;";
    slices(&data, Jail::start_with(&config(data.path()), before));
}

fn slices(data: &TempDir, mut jail: Jail) {
    let mut cage = jail.park();
    let lower = data.path().join("lower");
    std::fs::create_dir_all(lower.join("sub")).unwrap();
    std::fs::write(lower.join("file"), "old\n").unwrap();
    std::fs::write(lower.join("gone"), "old\n").unwrap();
    let mounts = [("/data", true, lower.as_path()), ("/srv/deep/ro", false, lower.as_path())];
    jail.claim(&cage.sandbox, Limits::default(), &mounts);
    assert_eq!(
        cage.agent.get("stat -c %u:%g:%a /data /data/file /srv/deep /srv/deep/ro"),
        "1000:1000:755\n1000:1000:644\n0:0:755\n1000:1000:755\n"
    );
    cage.agent.get("echo new > /data/made; rm /data/gone; echo more >> /data/file");
    let (_, code) = cage.agent.run("echo no > /srv/deep/ro/made");
    assert_ne!(code, 0);
    let mountinfo = cage.agent.get("cat /proc/self/mountinfo");
    assert!(!mountinfo.contains("lower/") && !mountinfo.contains(&*data.path().to_string_lossy()), "{mountinfo}");
    jail.stop(&cage.sandbox);
    assert_eq!(std::fs::read_to_string(lower.join("file")).unwrap(), "old\n");
    let collected = jail.collect(&cage.sandbox, 0);
    let mut lines: Vec<&str> = collected.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "lower file",
            "lower gone",
            "lower sub",
            "merged file",
            "merged made",
            "merged sub",
            "pid 1 uid 0 root -1",
            "upper file",
            "upper gone",
            "upper made"
        ]
    );
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn a_mount_that_nothing_was_written_to_is_not_collected() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let lower = data.path().join("lower");
    std::fs::create_dir_all(lower.join("sub")).unwrap();
    std::fs::write(lower.join("file"), "old\n").unwrap();
    let mut collected = |work: &str| {
        let mut cage = jail.park();
        jail.claim(&cage.sandbox, Limits::default(), &[("/data", true, &lower)]);
        cage.agent.get(work);
        jail.stop(&cage.sandbox);
        let (answer, descriptors) = jail.call(JailOp::Collect { sandbox: cage.sandbox.clone(), mount: 0 }, &[]);
        jail.destroy(&cage.sandbox);
        (answer.unwrap(), descriptors.len())
    };
    // What a tree does not hold of the mount itself is no change of it.
    for nothing in ["cat /data/file; ls /data/sub", "chmod 700 /data", "echo 1 > /data/made; rm /data/made"] {
        assert_eq!(collected(nothing), (JailAnswer::Unchanged {}, 0), "{nothing}");
    }
    for change in ["echo 1 > /data/made", "rm /data/file", "echo 1 > /data/sub/made", "mv /data/file /data/..x"] {
        assert_eq!(collected(change), (JailAnswer::Collecting {}, 1), "{change}");
    }
}
