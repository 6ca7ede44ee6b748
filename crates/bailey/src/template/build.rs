//! Debian packages in, one erofs image out. Sources, proxies and credentials are those of the host's own apt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{TemplateError, recipe};
use crate::progress;
use crate::terminal::note;

const TOOLS: [(&str, &str); 4] =
    [("mmdebstrap", "mmdebstrap"), ("mkfs.erofs", "erofs-utils"), ("apt-get", "apt"), ("chroot", "coreutils")];

/// Checks that every program that a build starts is there.
pub(super) fn check_tools() -> Result<(), TemplateError> {
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    for (tool, package) in TOOLS {
        if !folders.iter().any(|folder| Path::new(folder).join(tool).exists()) {
            return Err(TemplateError::MissingTool { tool, package });
        }
    }
    Ok(())
}

/// Builds the image below `scratch` and gives its path.
pub(super) fn image(scratch: &Path) -> Result<PathBuf, TemplateError> {
    let root = scratch.join("root");
    let sources = scratch.join("sources.list");
    let options = scratch.join("apt.conf");
    let customise = scratch.join("customise.sh");
    let image = scratch.join("image.erofs");
    write(&sources, &debian_sources()?)?;
    write(&options, &host_transport()?)?;
    write(&customise, recipe::CUSTOMISE)?;

    let mut debian = tool("mmdebstrap");
    debian.args(["--mode=root", "--variant=minbase", "--format=directory"]);
    debian.arg(format!("--include={}", recipe::PACKAGES.join(",")));
    for folder in ["doc", "man", "info", "lintian", "locale"] {
        debian.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    debian.arg(format!("--aptopt={}", options.display()));
    if has_credentials() {
        debian.arg("--setup-hook=cp -a /etc/apt/auth.conf* \"$1\"/etc/apt/");
    }
    debian.arg(recipe::SUITE).arg(&root).arg(&sources);
    run("installing the packages of template `base` (about a minute)", "installing the packages", &mut debian)?;
    run("arranging template `base`", "arranging the template", tool("sh").arg("-eu").arg(&customise).arg(&root))?;
    let mut pack = tool("mkfs.erofs");
    run("packing template `base`", "packing the image", pack.args(recipe::IMAGE_FLAGS).arg(&image).arg(&root))?;
    Ok(image)
}

/// Lines of `sources.list` for what the host's apt knows as Debian of the recipe's release.
fn debian_sources() -> Result<String, TemplateError> {
    let known = || -> Result<String, TemplateError> {
        let mut list = tool("apt-get");
        list.args(["indextargets", "--format", "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"]);
        list.args(["Created-By: Packages", "Origin: Debian"]);
        let text = run("asking apt for its sources", "listing apt's sources", &mut list)?;
        let of_suite = |line: &&str| {
            line.split(' ').nth(2).is_some_and(|suite| suite.split(['-', '/']).next() == Some(recipe::SUITE))
        };
        let mut lines: Vec<&str> = text.lines().filter(of_suite).collect();
        lines.sort_unstable();
        lines.dedup();
        Ok(lines.join("\n"))
    };
    let lines = known()?;
    if !lines.is_empty() {
        return Ok(lines);
    }
    // A fresh machine has sources but has never fetched what they hold.
    note!("bailey: apt has no package lists yet; running apt-get update");
    run("fetching package lists", "apt-get update", tool("apt-get").arg("update"))?;
    let lines = known()?;
    if lines.is_empty() { Err(TemplateError::NoSources { suite: recipe::SUITE }) } else { Ok(lines) }
}

/// How the host's apt reaches its sources (proxies, certificates, retries), as apt options.
fn host_transport() -> Result<String, TemplateError> {
    let text = run("asking apt for its options", "reading apt's options", tool("apt-config").arg("dump"))?;
    let wanted = ["Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::ForceIPv4", "Acquire::ForceIPv6"];
    let carries = |line: &&str| wanted.iter().any(|name| line.starts_with(name)) && !line.ends_with("\"\";");
    Ok(text.lines().filter(carries).fold(String::new(), |all, line| all + line + "\n"))
}

fn has_credentials() -> bool {
    let folder = fs::read_dir("/etc/apt/auth.conf.d").is_ok_and(|mut entries| entries.next().is_some());
    folder || Path::new("/etc/apt/auth.conf").exists()
}

fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").env("SOURCE_DATE_EPOCH", "0");
    command
}

fn run(what: &str, step: &'static str, command: &mut Command) -> Result<String, TemplateError> {
    let output = progress::during(what, || command.output());
    let output = output.map_err(|e| TemplateError::Step { step, output: e.to_string() })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut last: Vec<&str> = said.lines().rev().take(20).collect();
    last.reverse();
    Err(TemplateError::Step { step, output: format!("{}\n{}", last.join("\n"), output.status) })
}

fn write(path: &Path, text: &str) -> Result<(), TemplateError> {
    fs::write(path, text).map_err(|e| TemplateError::cache("write", path, e))
}
