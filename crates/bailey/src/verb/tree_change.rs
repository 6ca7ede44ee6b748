//! `edit`, `cp`, `mv`, `mkdir`, `restore`, `revert`, `blame`: changes that the server makes by itself.

use std::process::ExitCode;

use bailey_protocol::api::{
    Blame, CopyRequest, RestoreRequest, RevertRequest, TreeEdit, TreePatch, VersionInfo, WriteAnswer,
};
use bailey_protocol::path::TreePath;
use reqwest::Method;
use serde::Serialize;

use super::tree::{reference, written};
use super::{UsageError, VerbError, connect, usage};
use crate::cli::tree::{CopyArgs, EditArgs, MoveArgs, VersionArgs};
use crate::cli::{AtArgs, Common, RmArgs, WriteArgs};
use crate::client::{Upload, collect, tree_path};
use crate::terminal::{self, Paint, printable};

pub(super) async fn edit(args: EditArgs, common: Common) -> Result<ExitCode, VerbError> {
    let new = args.new;
    let edit = match (args.old, args.at, new) {
        (None, None, None) => None,
        (old, at, Some(new)) if old.is_some() || at.is_some() => Some(TreeEdit {
            old,
            start: at.map(|(start, _)| start),
            length: at.map(|(_, length)| length),
            new: Some(new),
            ..TreeEdit::default()
        }),
        _ => {
            return Err(usage("say what goes, with `--old` or `--at`, and what comes, with `--new`"));
        }
    };
    if edit.is_none() && args.executable.is_none() {
        return Err(usage("there is nothing to edit: use `--old` or `--at`, or `--executable`"));
    }
    let patch = TreePatch { edits: edit.into_iter().collect(), executable: args.executable };
    let client = connect(&common)?;
    let path = tree_path("tree", &args.path);
    let (query, if_match) = (args.write.query(), args.write.if_match.as_deref());
    let answer: WriteAnswer = client.send_json(Method::PATCH, &path, &query, if_match, &patch).await?;
    written(&answer, &common)
}

pub(super) async fn copy(args: CopyArgs, common: Common) -> Result<ExitCode, VerbError> {
    let CopyArgs { from, to, from_ref, write } = args;
    let to = to.of(last_name(&from)).map_err(UsageError::from)?;
    let body = CopyRequest { from, to, reference: write.branch.clone(), from_ref, moves: false };
    post("/v1/tree-copy", &body, &write, &common).await
}

pub(super) async fn rename(args: MoveArgs, common: Common) -> Result<ExitCode, VerbError> {
    let MoveArgs { from, to, write } = args;
    let to = to.of(last_name(&from)).map_err(UsageError::from)?;
    let body = CopyRequest { from, to, reference: write.branch.clone(), from_ref: None, moves: true };
    post("/v1/tree-copy", &body, &write, &common).await
}

/// The name of what is at a path; a store's root has none that something could go by.
fn last_name(path: &TreePath) -> Option<&str> {
    path.inner().rsplit('/').next().filter(|name| !name.is_empty())
}

pub(super) async fn restore(args: VersionArgs, common: Common) -> Result<ExitCode, VerbError> {
    let VersionArgs { path, version, write } = args;
    let body = RestoreRequest { path, from_version: version, reference: write.branch.clone() };
    post("/v1/tree-restore", &body, &write, &common).await
}

pub(super) async fn revert(args: VersionArgs, common: Common) -> Result<ExitCode, VerbError> {
    let VersionArgs { path, version, write } = args;
    let body = RevertRequest { path, version, reference: write.branch.clone() };
    post("/v1/tree-revert", &body, &write, &common).await
}

async fn post(path: &str, body: &impl Serialize, write: &WriteArgs, common: &Common) -> Result<ExitCode, VerbError> {
    let client = connect(common)?;
    let answer: WriteAnswer = client.send_json(Method::POST, path, &[], write.if_match.as_deref(), body).await?;
    written(&answer, common)
}

pub(super) async fn make_folder(args: RmArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let mut query = args.write.query();
    query.push(("type", "folder".to_owned()));
    let nothing = Upload { content: Vec::new().into(), length: Some(0) };
    let path = tree_path("tree", &args.path);
    let answer: WriteAnswer = client.write(Method::PUT, &path, &query, args.write.if_match.as_deref(), nothing).await?;
    written(&answer, &common)
}

pub(super) async fn blame(args: AtArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let blame: Blame = client.get(&tree_path("tree-blame", &args.path), &reference(args.reference)).await?;
    if common.json {
        terminal::json(&blame)?;
        return Ok(ExitCode::SUCCESS);
    }
    let at = [("ref", blame.version.to_string())];
    let content = collect(client.read(&tree_path("tree", &args.path), &at).await?).await?;
    terminal::lines(&blame_text(&blame, &String::from_utf8_lossy(&content)))?;
    Ok(ExitCode::SUCCESS)
}

/// Each line behind the version, author and day that it comes from.
fn blame_text(blame: &Blame, content: &str) -> String {
    let mut lines = content.lines();
    let paint = Paint::stdout();
    let mut text = Vec::new();
    for span in &blame.spans {
        let info = span.version.as_ref().and_then(|id| blame.versions.iter().find(|info| info.version == *id));
        let head = paint.dim(&info.map_or_else(|| format!("{:40} {:20} {:10}", "?", "", ""), head_of));
        let count = usize::try_from(span.lines).unwrap_or(usize::MAX);
        text.extend(lines.by_ref().take(count).map(|line| format!("{head} {}", printable(line))));
    }
    text.join("\n")
}

fn head_of(info: &VersionInfo) -> String {
    let by = if info.run.is_some() { format!("{} (run)", info.author) } else { info.author.clone() };
    let by: String = printable(&by).chars().take(20).collect();
    let day: String = terminal::time(info.time_ms).chars().take(10).collect();
    // Whole, as the other verbs take it.
    format!("{} {by:20} {day}", info.version)
}
