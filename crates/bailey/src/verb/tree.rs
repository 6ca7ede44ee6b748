//! `ls`, `cat`, `put`, `rm`, `log`, `diff`: the tree.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use bailey_protocol::api::{Diff, DiffChange, EntryKind, History, TreeEntry, TreeListing, VersionInfo, WriteAnswer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use tokio_util::io::ReaderStream;

use super::{VerbError, connect};
use crate::cli::{AtArgs, Common, DiffArgs, LogArgs, PutArgs, RmArgs};
use crate::client::{Client, Upload, broken, collect, tree_path};
use crate::terminal::{self, Paint, printable};

const DONE: Result<ExitCode, VerbError> = Ok(ExitCode::SUCCESS);

pub(super) async fn list(args: AtArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let listing: TreeListing = client.get(&tree_path("tree", &args.path), &reference(args.reference)).await?;
    if common.json {
        terminal::json(&listing)?;
        return DONE;
    }
    let paint = Paint::stdout();
    for TreeEntry { name, kind, size, .. } in &listing.entries {
        let name = printable(name);
        let name = match kind {
            EntryKind::Directory => paint.cyan(&format!("{name}/")),
            EntryKind::Executable => paint.green(&format!("{name}*")),
            EntryKind::Symlink => format!("{name}@"),
            EntryKind::File => name,
        };
        let size = size.map(terminal::size).unwrap_or_default();
        terminal::line(&format!("{size:>10}  {name}"))?;
    }
    DONE
}

pub(super) async fn cat(args: AtArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = tree_path("tree", &args.path);
    let mut response = client.read(&path, &reference(args.reference)).await?;
    if common.json {
        let bytes = collect(response).await?;
        let mut value = serde_json::json!({ "path": args.path, "size": bytes.len() });
        let (key, text) = match std::str::from_utf8(&bytes) {
            Ok(text) => ("text", text.to_owned()),
            Err(_bytes) => ("base64", STANDARD.encode(&bytes)),
        };
        if let Some(fields) = value.as_object_mut() {
            fields.insert(key.to_owned(), text.into());
        }
        terminal::json(&value)?;
        return DONE;
    }
    let mut out = std::io::stdout();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        out.write_all(&chunk)?;
    }
    out.flush()?;
    DONE
}

pub(super) async fn put(args: PutArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let (body, executable) = upload(&args.local).await?;
    let mut query = branch(args.write.branch.as_ref());
    if let Some(executable) = executable {
        query.push(("executable", executable.to_string()));
    }
    let path = tree_path("tree", &args.remote);
    let answer: WriteAnswer = client.write(Method::PUT, &path, &query, args.write.if_match.as_deref(), body).await?;
    written(&answer, common.json)
}

pub(super) async fn remove(args: RmArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let query = branch(args.write.branch.as_ref());
    let path = tree_path("tree", &args.path);
    let nothing = Upload { content: Vec::new().into(), length: None };
    let answer: WriteAnswer =
        client.write(Method::DELETE, &path, &query, args.write.if_match.as_deref(), nothing).await?;
    written(&answer, common.json)
}

pub(super) async fn log(args: LogArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let mut query = reference(args.at.reference);
    query.push(("limit", args.limit.to_string()));
    let history: History = client.get(&tree_path("tree-history", &args.at.path), &query).await?;
    if common.json {
        terminal::json(&history)?;
        return DONE;
    }
    let paint = Paint::stdout();
    for VersionInfo { version, author, time_ms, message, run, .. } in &history.versions {
        let by = run.as_ref().map_or_else(|| author.clone(), |run| format!("{author} by {run}"));
        let when = paint.dim(&terminal::time(*time_ms));
        let said = format!("{} {when} {} {}", paint.cyan(version.as_str()), printable(&by), printable(message));
        terminal::line(said.trim_end())?;
    }
    DONE
}

pub(super) async fn diff(args: DiffArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let mut query = Vec::new();
    match (args.from, args.to) {
        (Some(from), to) => {
            query.push(("from", from));
            query.extend(to.map(|to| ("to", to)));
        }
        (None, _) => query = last_change(&client, &tree_path("tree-history", &args.path)).await?,
    }
    let diff: Diff = client.get(&tree_path("tree-diff", &args.path), &query).await?;
    if common.json {
        terminal::json(&diff)?;
        return DONE;
    }
    print_diff(&diff)?;
    DONE
}

/// The last version that touched the path, and what it grew from.
async fn last_change(client: &Client, history: &str) -> Result<Vec<(&'static str, String)>, VerbError> {
    let history: History = client.get(history, &[("limit", "1".to_owned())]).await?;
    let last = history.versions.into_iter().next();
    let last = last.ok_or(VerbError::Input { what: "the path has no version yet" })?;
    let from = last.parents.into_iter().next().map(|parent| ("from", parent.to_string()));
    Ok(from.into_iter().chain([("to", last.version.to_string())]).collect())
}

fn print_diff(diff: &Diff) -> std::io::Result<()> {
    let paint = Paint::stdout();
    for entry in &diff.changes {
        let path = printable(&entry.path);
        let sizes = match (entry.old_size, entry.new_size) {
            (Some(old), Some(new)) => format!("{} → {}", terminal::size(old), terminal::size(new)),
            (Some(size), None) | (None, Some(size)) => terminal::size(size),
            (None, None) => String::new(),
        };
        let head = match entry.change {
            DiffChange::Added => paint.green(&format!("A {path}")),
            DiffChange::Modified => paint.yellow(&format!("M {path}")),
            DiffChange::Deleted => paint.red(&format!("D {path}")),
        };
        terminal::line(format!("{head}  {}", paint.dim(&sizes)).trim_end())?;
        for line in entry.unified.iter().flat_map(|text| text.lines()) {
            let text = printable(line);
            let text = match line.chars().next() {
                Some('+') => paint.green(&text),
                Some('-') => paint.red(&text),
                Some('@') => paint.cyan(&text),
                _ => text,
            };
            terminal::line(&text)?;
        }
    }
    if diff.truncated {
        terminal::line("… and more")?;
    }
    Ok(())
}

fn written(answer: &WriteAnswer, json: bool) -> Result<ExitCode, VerbError> {
    if json {
        terminal::json(answer)?;
    } else {
        let path = printable(answer.path.as_str());
        terminal::line(&format!("version {} {path} on {}", answer.version, answer.branch))?;
    }
    DONE
}

fn reference(reference: Option<String>) -> Vec<(&'static str, String)> {
    reference.into_iter().map(|reference| ("ref", reference)).collect()
}

fn branch(branch: Option<&bailey_protocol::path::BranchName>) -> Vec<(&'static str, String)> {
    branch.into_iter().map(|branch| ("ref", branch.to_string())).collect()
}

/// A local file's content and whether it may be executed; of standard input only the content is known.
async fn upload(local: &Path) -> Result<(Upload, Option<bool>), VerbError> {
    let failed = |source| VerbError::ReadLocal { path: local.display().to_string(), source };
    let input = local == Path::new("-");
    let opened = if input {
        std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from)
    } else {
        std::fs::File::open(local)
    };
    let file = opened.map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if facts.is_dir() {
        return Err(VerbError::Input { what: "a folder cannot be written as one file: put its files one by one" });
    }
    // Of standard input somebody may have read the start.
    let length = (facts.is_file() && !input).then_some(facts.len());
    let content = reqwest::Body::wrap_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok((Upload { content, length }, (!input).then_some(facts.mode() & 0o111 != 0)))
}
