//! `bailey run`: the program's bytes and code pass through as if it ran here.

mod follow;
mod interrupt;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use bailey_protocol::api::{FileInput, LimitsRequest, RunAccepted, RunRequest};
use bailey_protocol::limits::{MAX_FILES_BYTES, MAX_STDIN_BYTES};
use bailey_protocol::path::SandboxPath;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) use follow::follow;
pub(crate) use interrupt::Interrupts;

use super::{VerbError, connect, usage};
use crate::cli::{Common, RunArgs};
use crate::terminal::note;
use crate::{exit, terminal};

pub(super) async fn carry_out(args: RunArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let request = request(args)?;
    if request.detach {
        let (accepted, warnings): (RunAccepted, _) = client.post_warned("/v1/runs", &request).await?;
        terminal::warn(&warnings);
        if common.json {
            terminal::json(&follow::Warned::new(&accepted, &warnings))?;
        } else {
            terminal::line(accepted.run.as_str())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Before the request: a Ctrl-C while the sandbox is being claimed must end the run too.
    let mut interrupts = Interrupts::listen().map_err(VerbError::Runtime)?;
    let Some(events) = interrupts.unless_twice(client.post_events("/v1/runs", &request)).await else {
        note!("bailey: not waiting for the server's answer; `bailey runs` shows whether the run has begun");
        return Ok(ExitCode::from(exit::CANCELLED));
    };
    follow(&client, events?, interrupts, common.json).await
}

fn request(args: RunArgs) -> Result<RunRequest, VerbError> {
    let mut mounts = args.mounts;
    for mount in &mut mounts {
        mount.branch = args.branch.clone();
    }
    Ok(RunRequest {
        wall: args.wall.unwrap_or_default(),
        template: args.template,
        command: Some(args.command),
        mounts,
        limits: LimitsRequest {
            cpu_millis: args.cpu,
            memory_bytes: args.memory,
            pids: args.pids,
            disk_bytes: args.disk,
            timeout_ms: args.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            output_bytes: args.output,
            ..LimitsRequest::default()
        },
        env: args.env.into_iter().collect(),
        cwd: args.cwd,
        stdin: if args.stdin { Some(stdin()?) } else { None },
        files: files(args.files)?,
        root: args.root,
        detach: args.detach,
        ..RunRequest::default()
    })
}

/// Local files that go with the run.
fn files(asked: Vec<(PathBuf, SandboxPath)>) -> Result<BTreeMap<SandboxPath, FileInput>, VerbError> {
    let mut files = BTreeMap::new();
    let mut room = u64::try_from(MAX_FILES_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    for (local, at) in asked {
        let failed = |source| VerbError::ReadLocal { path: local.display().to_string(), source };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&local).map_err(failed)?;
        let read = file.take(room).read_to_end(&mut bytes).map_err(failed)?;
        room = room.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        if room == 0 {
            return Err(VerbError::Input {
                what: "the files have more than 1 MiB: put them into the tree and mount it",
            });
        }
        let input = match String::from_utf8(bytes) {
            Ok(text) => FileInput::Text(text),
            Err(binary) => FileInput::Base64(STANDARD.encode(binary.as_bytes())),
        };
        if files.insert(at, input).is_some() {
            return Err(usage("two files are to be at the same place"));
        }
    }
    Ok(files)
}

/// All of standard input, which crosses the API as text.
fn stdin() -> Result<String, VerbError> {
    let input = std::io::stdin();
    if input.is_terminal() {
        note!("bailey: reading standard input to its end (Ctrl-D)");
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_STDIN_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let read = input.lock().take(limit).read_to_end(&mut bytes);
    read.map_err(|source| VerbError::ReadLocal { path: "-".to_owned(), source })?;
    if bytes.len() > MAX_STDIN_BYTES {
        return Err(VerbError::Input { what: "standard input has more than 1 MiB: put it into the tree and mount it" });
    }
    String::from_utf8(bytes)
        .map_err(|_bytes| VerbError::Input { what: "standard input is not UTF-8: put it into the tree and mount it" })
}
