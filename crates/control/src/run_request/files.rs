//! Files that a run brings along: where they may be, and how large they are together.

use std::collections::BTreeMap;

use bailey_protocol::api::FileInput;
use bailey_protocol::limits::{Limits, MAX_FILES, MAX_FILES_BYTES};
use bailey_protocol::node::SessionFile;
use bailey_protocol::path::SandboxPath;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{PlannedMount, within};
use crate::api_error::ApiError;

/// Folders that are there for files of anybody: the sandbox itself reads nothing below them.
const FOLDERS: [&str; 6] = ["/home/user", "/tmp", "/var/tmp", "/opt", "/srv", "/mnt"];

pub(super) fn plan(
    asked: BTreeMap<SandboxPath, FileInput>,
    mounts: &[PlannedMount],
    limits: &Limits,
) -> Result<Vec<SessionFile>, ApiError> {
    if asked.len() > MAX_FILES {
        let message = format!("`files` has {} entries: use at most {MAX_FILES}", asked.len());
        return Err(ApiError::invalid("too_many_files", message, "Put them into the tree and mount it."));
    }
    let (mut files, mut bytes) = (Vec::<SessionFile>::with_capacity(asked.len()), 0);
    for (at, input) in asked {
        check_place(&at, mounts)?;
        // In order, so that a file comes right before what is said to be below it, or before its neighbours.
        if let Some(above) = files.iter().find(|above| within(at.as_str(), above.at.as_str())) {
            let message = format!("`{at}` cannot be below `{}`, which is a file", above.at);
            return Err(ApiError::invalid("invalid_file", message, "Give every file a place of its own."));
        }
        let content = content(&at, input)?;
        bytes += content.len();
        files.push(SessionFile { at, content: content.into() });
    }
    let room = limits.disk_bytes.min(MAX_FILES_BYTES as u64);
    if bytes as u64 > room {
        let message = format!("`files` have {bytes} bytes together: use at most {room}");
        return Err(ApiError::invalid("files_too_large", message, "Put larger files into the tree and mount it."));
    }
    Ok(files)
}

fn check_place(at: &SandboxPath, mounts: &[PlannedMount]) -> Result<(), ApiError> {
    let place = at.as_str();
    if !FOLDERS.iter().any(|folder| *folder != place && within(place, folder)) {
        let message = format!("no file can be brought to `{at}`: that is not below {}", FOLDERS.join(", "));
        return Err(ApiError::invalid("invalid_file", message, "Name a place such as `/tmp/input.json`."));
    }
    let mount = mounts.iter().find(|mount| within(place, mount.at.as_str()) || within(mount.at.as_str(), place));
    match mount {
        None => Ok(()),
        Some(mount) => Err(ApiError::invalid(
            "invalid_file",
            format!("`{at}` is in the way of the mount at `{}`: a run's own files never enter the tree", mount.at),
            "Name a place outside of the mounts, or write the file into the tree.",
        )),
    }
}

fn content(at: &SandboxPath, input: FileInput) -> Result<Vec<u8>, ApiError> {
    match input {
        FileInput::Text(text) => Ok(text.into_bytes()),
        FileInput::Base64(encoded) => STANDARD.decode(encoded).map_err(|error| {
            let message = format!("the content of `{at}` is not base64");
            ApiError::invalid("invalid_file", message, "Send standard base64 with padding, or `text`.").because(error)
        }),
    }
}
