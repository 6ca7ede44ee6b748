//! From the body of `POST /v1/runs` to what will be done: every rule that needs neither policy nor a store.

mod files;
mod wall;

pub(crate) use wall::Chosen as ChosenWall;

use std::collections::BTreeMap;

use bailey_protocol::api::{Language, LimitsRequest, MountRequest, RunRequest};
use bailey_protocol::id::TemplateName;
use bailey_protocol::limits::{
    Limits, MAX_ARGS, MAX_ARGS_BYTES, MAX_CODE_BYTES, MAX_MOUNT_DEPTH, MAX_MOUNTS, MAX_STDIN_BYTES,
};
use bailey_protocol::node::SessionFile;
use bailey_protocol::path::{BranchName, SandboxPath, TreePath};

use crate::api_error::ApiError;
use crate::config::RunConfig;

/// Folders whose content is the template's or the sandbox's own: a mount there, or anywhere below, would stand in for what
/// programs take for the system.
const SYSTEM: [&str; 15] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys",
    "/usr", "/var",
];
/// What is anybody's all the same.
const NOT_SYSTEM: [&str; 2] = ["/var/tmp", "/var/www"];
/// It holds the user's home, which a mount there would hide. What is below it may be mounted at.
const HOMES: &str = "/home";

/// How to get a disk that does not fit in three quarters of the run's memory.
const LARGE_DISK_HINT: &str =
    "Ask for less, or for more memory as well; or have the operator set larger disks aside (`[large_disks]`).";

/// A run that could be carried out, if policy allows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedRun {
    /// What isolates it.
    pub(crate) wall: ChosenWall,
    /// What it starts from.
    pub(crate) template: TemplateName,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// Added to the environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Working folder.
    pub(crate) cwd: Option<SandboxPath>,
    /// Standard input.
    pub(crate) stdin: Vec<u8>,
    /// Files of its own.
    pub(crate) files: Vec<SessionFile>,
    /// Whether nobody waits for its events.
    pub(crate) detach: bool,
    /// Whether `sudo` works inside.
    pub(crate) root: bool,
    /// Slices, in the order of the request.
    pub(crate) mounts: Vec<PlannedMount>,
    /// What it may use.
    pub(crate) limits: Limits,
}

/// A slice that a run asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedMount {
    /// The folder in the tree.
    pub(crate) path: TreePath,
    /// Where it appears inside.
    pub(crate) at: SandboxPath,
    /// Whether changes become a version.
    pub(crate) writable: bool,
    /// Branch to read and to commit to.
    pub(crate) branch: BranchName,
}

/// Checks a request against the server's configuration.
///
/// # Errors
/// Names the first field that does not fit and how to correct it.
pub(crate) fn plan(request: RunRequest, config: &RunConfig) -> Result<PlannedRun, ApiError> {
    let limits = limits(&request.limits, config)?;
    let wall = wall::choose(&request, &limits, &config.host)?;
    let command = command(request.command, request.code, request.language)?;
    check_sizes(&command, &request.env)?;
    check_env(&request.env)?;
    let stdin = request.stdin.unwrap_or_default().into_bytes();
    if stdin.len() > MAX_STDIN_BYTES {
        return Err(ApiError::invalid(
            "stdin_too_large",
            format!("`stdin` has {} bytes: use at most {MAX_STDIN_BYTES}", stdin.len()),
            "Put larger input into the tree and mount it.",
        ));
    }
    let mounts = mounts(request.mounts)?;
    Ok(PlannedRun {
        wall,
        template: request.template.unwrap_or_else(|| config.default_template.clone()),
        command,
        env: request.env,
        cwd: request.cwd,
        stdin,
        detach: request.detach,
        root: request.root,
        files: files::plan(request.files, &mounts, &limits)?,
        mounts,
        limits,
    })
}

fn limits(asked: &LimitsRequest, config: &RunConfig) -> Result<Limits, ApiError> {
    let default = &config.default_limits;
    let memory_bytes = asked.memory_bytes.unwrap_or(default.memory_bytes);
    let mut limits = Limits {
        cpu_millis: asked.cpu_millis.unwrap_or(default.cpu_millis),
        memory_bytes,
        pids: asked.pids.unwrap_or(default.pids),
        // A caller who asks for little memory and says nothing of the disk gets the disk that fits.
        disk_bytes: asked.disk_bytes.unwrap_or_else(|| default.disk_bytes.min(memory_bytes / 2)),
        disk_inodes: asked.disk_inodes.unwrap_or(default.disk_inodes),
        open_files: asked.open_files.unwrap_or(default.open_files),
        timeout_ms: asked.timeout_ms.unwrap_or(default.timeout_ms),
        output_bytes: asked.output_bytes.unwrap_or(default.output_bytes),
    };
    if let Some(large) = config.large_disks.filter(|_| asked.disk_inodes.is_none() && limits.wants_large_disk()) {
        limits.disk_inodes = limits.disk_inodes.min(large.most_inodes(limits.disk_bytes));
    }
    match limits.check(&config.ceiling, config.large_disks.as_ref()) {
        Ok(()) => Ok(limits),
        Err(error) => {
            let hint = match error.field {
                "disk_bytes" if limits.wants_large_disk() => LARGE_DISK_HINT,
                _ => "Ask for a value in that range.",
            };
            Err(ApiError::invalid("invalid_limit", error.to_string(), hint))
        }
    }
}

fn command(
    command: Option<Vec<String>>,
    code: Option<String>,
    language: Option<Language>,
) -> Result<Vec<String>, ApiError> {
    let hint = "Send `command` (a list: program and arguments), or `code` together with `language`.";
    let fail = |message: &str| Err(ApiError::invalid("invalid_command", message, hint));
    match (command, code, language) {
        (Some(_), Some(_), _) => fail("`command` and `code` exclude each other"),
        (Some(_), None, Some(_)) => fail("`language` belongs to `code`, not to `command`"),
        (None, None, _) => fail("neither `command` nor `code` is there"),
        (None, Some(_), None) => fail("`code` needs `language`"),
        (Some(command), None, None) => match command.first() {
            None => fail("`command` is empty"),
            Some(program) if program.is_empty() => fail("the first of `command` is empty"),
            Some(_) if command.iter().any(|argument| argument.contains('\0')) => fail("`command` holds a NUL byte"),
            Some(_) => Ok(command),
        },
        (None, Some(code), Some(_)) if code.len() > MAX_CODE_BYTES => Err(ApiError::invalid(
            "code_too_large",
            format!("`code` has {} bytes: use at most {MAX_CODE_BYTES}", code.len()),
            "Put larger programs into the tree, mount them and run them with `command`.",
        )),
        (None, Some(code), Some(_)) if code.contains('\0') => fail("`code` holds a NUL byte"),
        (None, Some(code), Some(language)) => {
            let (program, flag) = match language {
                Language::Python => ("python3", "-c"),
                Language::Javascript => ("node", "-e"),
                Language::Bash => ("bash", "-c"),
            };
            Ok(vec![program.to_owned(), flag.to_owned(), code])
        }
    }
}

fn check_sizes(command: &[String], env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let hint = "Send long input by `stdin` or put it into the tree and mount it.";
    if command.len() > MAX_ARGS {
        let message = format!("`command` has {} arguments: use at most {MAX_ARGS}", command.len());
        return Err(ApiError::invalid("command_too_long", message, hint));
    }
    let arguments: usize = command.iter().map(|argument| argument.len() + 1).sum();
    let environment: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if arguments + environment > MAX_ARGS_BYTES {
        let message = format!(
            "`command` and `env` have {} bytes together: use at most {MAX_ARGS_BYTES}",
            arguments + environment
        );
        return Err(ApiError::invalid("command_too_long", message, hint));
    }
    Ok(())
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let bad = env.iter().find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'));
    match bad {
        None => Ok(()),
        Some((name, _)) => Err(ApiError::invalid(
            "invalid_env",
            format!("`env` entry `{}` cannot be set", name.escape_default()),
            "Use names without `=`, and no NUL bytes.",
        )),
    }
}

fn mounts(asked: Vec<MountRequest>) -> Result<Vec<PlannedMount>, ApiError> {
    if asked.len() > MAX_MOUNTS {
        let message = format!("`mounts` has {} entries: use at most {MAX_MOUNTS}", asked.len());
        return Err(ApiError::invalid("too_many_mounts", message, "Mount a folder that contains the others."));
    }
    let mounts: Vec<PlannedMount> = asked
        .into_iter()
        .map(|mount| PlannedMount {
            path: mount.path,
            at: mount.at,
            writable: !mount.read_only,
            branch: mount.branch.unwrap_or_else(BranchName::main),
        })
        .collect();
    for (index, mount) in mounts.iter().enumerate() {
        check_place(&mount.at)?;
        for other in mounts.iter().skip(index + 1) {
            check_pair(mount, other)?;
        }
    }
    Ok(mounts)
}

fn check_place(at: &SandboxPath) -> Result<(), ApiError> {
    let depth = at.as_str().split('/').filter(|name| !name.is_empty()).count();
    if depth > MAX_MOUNT_DEPTH {
        return Err(ApiError::invalid(
            "invalid_mount",
            format!("a mount is {depth} folders deep: at most {MAX_MOUNT_DEPTH} are possible"),
            "Mount at a place of its own, such as `/data`, `/work`, `/mnt/NAME` or `/home/user/NAME`.",
        ));
    }
    let Some(system) = systems(at.as_str()) else { return Ok(()) };
    Err(ApiError::invalid(
        "invalid_mount",
        format!("nothing can be mounted at `{at}`: `{system}` is the sandbox's own"),
        "Mount at a place of its own, such as `/data`, `/work`, `/mnt/NAME` or `/home/user/NAME`.",
    ))
}

/// The folder of the system's that a mount at `at` would stand in for a part of.
fn systems(at: &str) -> Option<&'static str> {
    if at == HOMES {
        return Some(HOMES);
    }
    let system = SYSTEM.into_iter().find(|system| within(at, system));
    system.filter(|_| !NOT_SYSTEM.iter().any(|open| within(at, open)))
}

fn check_pair(one: &PlannedMount, other: &PlannedMount) -> Result<(), ApiError> {
    if within(one.at.as_str(), other.at.as_str()) || within(other.at.as_str(), one.at.as_str()) {
        return Err(ApiError::invalid(
            "invalid_mount",
            format!("`{}` and `{}` are one within the other", one.at, other.at),
            "Give every mount a place of its own.",
        ));
    }
    if !one.writable || !other.writable {
        return Ok(());
    }
    if one.path.overlaps(&other.path) {
        return Err(ApiError::invalid(
            "invalid_mount",
            format!("`{}` and `{}` overlap and are both writable", one.path, other.path),
            "Make one of them `read_only`, or mount only the outer one.",
        ));
    }
    // The refs of one store move together, so a run writes to one branch of it.
    if one.path.repo() == other.path.repo() && one.branch != other.branch {
        return Err(ApiError::invalid(
            "invalid_mount",
            format!("`{}` and `{}` write to two branches of one store", one.path, other.path),
            "Write to one branch per run, or make one of the mounts `read_only`.",
        ));
    }
    Ok(())
}

fn within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
