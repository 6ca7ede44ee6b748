//! The weakened arm (O10): the same attack program, with the same interpreter, in a reference bad jail: root on
//! the host, with the template as its root folder and the host's `/proc`, `/dev` and `/sys` in it. What does not
//! succeed there proves nothing by failing in a sandbox.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::attack;
use crate::host::Process;
use crate::server;

const JAIL: &str = r#"
set -e
mount -t erofs -o loop,ro "$IMAGE" "$ROOT"
for part in dev sys; do mount --rbind "/$part" "$ROOT/$part"; done
if [ -n "$FRESH_PROC" ]; then mount -t proc proc "$ROOT/proc"; else mount --rbind /proc "$ROOT/proc"; fi
for part in tmp run root home data media dev/shm; do mount -t tmpfs hostile "$ROOT/$part"; done
cd "$ROOT"
pivot_root . mnt
/bin/umount -l /mnt
cd /
exec /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin "$@"
"#;

/// An attack that runs as a bare child.
#[derive(Debug)]
pub(crate) struct Bare {
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: Vec<u8>,
}

impl Bare {
    /// Starts a program of [`attack`] with arguments and environment variables.
    pub(crate) fn start(program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_with(&[], program, args, env)
    }

    /// As [`Bare::start`], with further flags for `unshare`.
    pub(crate) fn start_with(flags: &[&str], program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let root = server::scratch().join("bare");
        std::fs::create_dir_all(&root).expect("a mount point");
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--kill-child"])
            .args(flags)
            .args(["sh", "-c", JAIL, "bare"])
            .args(env.iter().map(|(name, value)| format!("{name}={value}")))
            .args(["python3", "-c", &attack::text(program)])
            .args(args)
            .env("IMAGE", image())
            .env("ROOT", root)
            .env("FRESH_PROC", if flags.contains(&"--pid") { "1" } else { "" })
            // Not the null device: root in the bad jail changes the mode of whatever descriptor 0 is.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start `unshare`");
        drop(child.stdin.take());
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, stdout, seen: Vec::new() }
    }

    /// Waits until the attack says that it holds what it got.
    pub(crate) fn ready(&mut self) {
        loop {
            let before = self.seen.len();
            let got = self.stdout.read_until(b'\n', &mut self.seen).expect("read the bare child");
            assert!(got > 0, "the bare child ended early: {}", String::from_utf8_lossy(&self.seen));
            if self.seen[before..].starts_with(b"ready") {
                return;
            }
        }
    }

    /// Itself and its children, while they run.
    pub(crate) fn processes(&self) -> Vec<Process> {
        Process(i32::try_from(self.child.id()).expect("a pid")).family()
    }

    /// What it has printed up to `ready`.
    pub(crate) fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// What it printed, when it has ended by itself.
    pub(crate) fn output(mut self) -> Vec<u8> {
        self.stdout.read_to_end(&mut self.seen).expect("read the bare child");
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        for process in self.processes().iter().rev() {
            if let Some(pid) = rustix::process::Pid::from_raw(process.0) {
                // It may have ended meanwhile, which is what is wanted.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
        self.child.wait().ok();
    }
}

/// The image of the `base` template, as the server that runs has prepared it.
pub(crate) fn image() -> PathBuf {
    let templates = server::cache().join("templates");
    let note = std::fs::read(templates.join("base.json")).expect("the server has prepared its template");
    let note: serde_json::Value = serde_json::from_slice(&note).expect("base.json");
    templates.join(format!("{}.erofs", note["digest"].as_str().expect("a digest")))
}
