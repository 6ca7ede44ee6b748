//! The tour in the README, executed as written.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bailey_sys::namespace;
use rustix::thread::UnshareFlags;

use crate::server::text;

/// The shell blocks of the tour, in order.
fn blocks() -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let tour = readme.split("\n## Sixty seconds\n").nth(1).unwrap().split("\n## ").next().unwrap();
    tour.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn shell(script: &str) -> Command {
    let folder = Path::new(env!("CARGO_BIN_EXE_bailey")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var_os("PATH").unwrap().to_string_lossy());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "bash", "-euo", "pipefail", "-c", script]);
    command.current_dir(root()).env("PATH", path).env("HOME", "/nonexistent").stdin(Stdio::null());
    command.env_remove("BAILEY_URL").env_remove("BAILEY_TOKEN");
    command
}

/// Gives this thread, and what it starts, a network and a `/var/lib` of its own: the tour uses the default port and
/// data folder, which on this machine may be somebody's.
fn in_a_place_of_its_own() {
    namespace::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::FS).unwrap();
    namespace::bring_up_loopback().unwrap();
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    rustix::mount::mount("tmpfs", "/var/lib", "tmpfs", flags, None).unwrap();
}

struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM).ok();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_tour_works_as_written() {
    let blocks = blocks();
    let [serve, tour] = &blocks[..] else { panic!("{} blocks", blocks.len()) };
    in_a_place_of_its_own();
    let mut server = Background(shell(&format!("exec {serve}")).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listening on http://127.0.0.1:8470\n");
    let output = shell(tour).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    for part in ["73,868.15 in all", "chart.svg", "# Sales", "uid=1000(user)", "A report.md", "denied, as it should be"]
    {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}
