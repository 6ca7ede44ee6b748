//! Debian's cloud kernel, from its package: downloaded and unpacked, never installed. Tests of other crates include this
//! file, and the archive beside it.

use std::io;
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

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error(
        "apt knows no package `{NEWEST}`: add Debian's archive to its sources, or name a kernel by BAILEY_GUEST_KERNEL"
    )]
    Unknown,
    #[error("`{command}` failed: {said}")]
    Command { command: String, said: String },
    #[error("cannot {action} `{path}`: {source}")]
    Place { action: &'static str, path: PathBuf, source: io::Error },
}

/// A package by its name and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    name: String,
    version: String,
}

impl Package {
    /// The newest one that apt knows.
    ///
    /// # Errors
    /// When it knows none even once its lists are fetched.
    pub(crate) fn newest() -> Result<Self, KernelError> {
        if let Some(package) = Self::known() {
            return Ok(package);
        }
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        Self::known().ok_or(KernelError::Unknown)
    }

    /// Package and version that stand behind [`NEWEST`], if the lists of packages are there.
    fn known() -> Option<Self> {
        let output = Command::new("apt-cache").args(["show", "--no-all-versions", NEWEST]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let needs = text.lines().find_map(|line| line.strip_prefix("Depends: "))?;
        let (name, rest) = needs.split_once(" (= ")?;
        let (version, _) = rest.split_once(')')?;
        Some(Self { name: name.to_owned(), version: version.to_owned() })
    }

    /// The folder that it is unpacked into.
    pub(crate) fn folder(&self) -> String {
        format!("{}_{}", self.name, self.version)
    }

    /// Downloads and unpacks it below `shelf` unless that was done. The modules are named below the kernel's own folder of
    /// them, in an order in which they load.
    ///
    /// # Errors
    /// Names the step that failed.
    pub(crate) fn unpack(&self, shelf: &Path, modules: &[&str]) -> Result<Kernel, KernelError> {
        let home = shelf.join(self.folder());
        if !home.exists() {
            let place = |action, source| KernelError::Place { action, path: shelf.to_owned(), source };
            let work = tempfile::TempDir::new_in(shelf).map_err(|error| place("make a folder in", error))?;
            let wanted = format!("{}={}", self.name, self.version);
            let mut download = Command::new("apt-get");
            // Its own user for downloads cannot write to where this works.
            download.args(["download", "-qq", "-o", "APT::Sandbox::User=root", &wanted]).current_dir(&work);
            run(&mut download)?;
            let file = std::fs::read_dir(&work).and_then(|mut found| found.next().transpose());
            let file = file.map_err(|error| place("list", error))?.ok_or(KernelError::Unknown)?.path();
            run(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(work.path().join("unpacked")))?;
            match std::fs::rename(work.path().join("unpacked"), &home) {
                // Another process was faster.
                Err(_) if home.exists() => {}
                other => other.map_err(|error| place("move the kernel to", error))?,
            }
        }
        let release = self.name.strip_prefix("linux-image-").unwrap_or(&self.name);
        let lib = if home.join("usr/lib/modules").exists() { "usr/lib/modules" } else { "lib/modules" };
        let folder = home.join(lib).join(release);
        Ok(Kernel { image: home.join(format!("boot/vmlinuz-{release}")), modules: find(&folder, modules)? })
    }
}

/// Modules by their names below the folder of a kernel's, unpacked.
///
/// # Errors
/// When one cannot be unpacked.
pub(crate) fn find(folder: &Path, modules: &[&str]) -> Result<Vec<PathBuf>, KernelError> {
    modules.iter().map(|name| unpacked(&folder.join("kernel").join(name))).collect()
}

/// A module; those of newer releases are compressed.
fn unpacked(module: &Path) -> Result<PathBuf, KernelError> {
    let packed = module.with_extension("ko.xz");
    if !module.exists() && packed.exists() {
        run(Command::new("xz").args(["--decompress", "--keep"]).arg(packed))?;
    }
    Ok(module.to_owned())
}

fn run(command: &mut Command) -> Result<(), KernelError> {
    let named = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| KernelError::Command { command: named.clone(), said: error.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(KernelError::Command { command: named, said: format!("{said} ({})", output.status) })
}
