//! Debian's cloud kernel, from its package. Other crates' tests include this file, and the archive beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What stands for the newest one.
const NEWEST: &str = "linux-image-cloud-amd64";

/// A kernel that was unpacked.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) modules: Vec<PathBuf>,
}

/// Downloads and unpacks the kernel unless that was done. The modules are named below the kernel's own folder of them, in
/// an order in which they load.
pub(crate) fn kernel(modules: &[&str]) -> Kernel {
    let (package, version) = newest().unwrap_or_else(|| {
        run(Command::new("apt-get").args(["update", "-qq"]));
        newest().unwrap_or_else(|| panic!("no package `{NEWEST}`: this test needs Debian's archive"))
    });
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let home = shelf.join(format!("{package}_{version}"));
    if !home.exists() {
        let work = tempfile::TempDir::new_in(shelf).unwrap();
        run(Command::new("apt-get").args(["download", "-qq", &format!("{package}={version}")]).current_dir(&work));
        let file = std::fs::read_dir(&work).unwrap().next().unwrap().unwrap().path();
        run(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(work.path().join("unpacked")));
        match std::fs::rename(work.path().join("unpacked"), &home) {
            // Another run of this test was faster.
            Err(_) if home.exists() => {}
            other => other.unwrap(),
        }
    }
    let release = package.strip_prefix("linux-image-").unwrap();
    let lib = if home.join("usr/lib/modules").exists() { "usr/lib/modules" } else { "lib/modules" };
    let modules = modules.iter().map(|name| unpacked(&home.join(lib).join(release).join("kernel").join(name)));
    Kernel { image: home.join(format!("boot/vmlinuz-{release}")), modules: modules.collect() }
}

/// A module; those of newer releases are compressed.
fn unpacked(module: &Path) -> PathBuf {
    let packed = module.with_extension("ko.xz");
    if !module.exists() && packed.exists() {
        run(Command::new("xz").args(["--decompress", "--keep"]).arg(packed));
    }
    module.to_owned()
}

/// Package and version that stand behind [`NEWEST`], if the lists of packages are there.
fn newest() -> Option<(String, String)> {
    let output = Command::new("apt-cache").args(["show", "--no-all-versions", NEWEST]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let needs = text.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let (package, rest) = needs.split_once(" (= ")?;
    let (version, _) = rest.split_once(')')?;
    Some((package.to_owned(), version.to_owned()))
}

fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
