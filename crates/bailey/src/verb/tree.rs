//! `ls`, `cat`, `put`, `rm`, `log`, `diff`: reading the tree, and files one by one.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use bailey_protocol::api::{Diff, DiffChange, EntryKind, History, TreeEntry, TreeListing, VersionInfo, WriteAnswer};
use bailey_protocol::path::{TreePath, text_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt as _;
use reqwest::{Method, Response};
use tokio_util::io::ReaderStream;

use super::{UsageError, VerbError, connect, say, say_list};
use crate::cli::tree::{CatArgs, ListArgs};
use crate::cli::value::Target;
use crate::cli::{Common, DiffArgs, LogArgs, PutArgs, RmArgs};
use crate::client::{Client, Upload, broken, collect, decode, tree_path};
use crate::progress::Meter;
use crate::terminal::{self, Paint, printable, rows};

/// Bytes that are read from a local file at once.
const PIECE: usize = 128 * 1024;

pub(super) const DONE: Result<ExitCode, VerbError> = Ok(ExitCode::SUCCESS);

pub(super) async fn list(args: ListArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = tree_path("tree", &args.at.path);
    let mut first = reference(args.at.reference);
    let recursive = args.recursive || args.glob.as_ref().is_some_and(|glob| glob.contains('/'));
    first.extend(recursive.then(|| ("recursive", "true".to_owned())));
    first.extend(args.glob.map(|glob| ("glob", glob)));
    let mut query = first.clone();
    loop {
        // Read as any answer, so that a file is told apart from a folder.
        let response = client.read(&path, &query).await?;
        if is_file(&response) {
            return Err(VerbError::Input { what: "that is a file: `bailey cat` prints it, `bailey ls` lists folders" });
        }
        let listing: TreeListing = decode(response).await?;
        say(&common, &listing, || rows(&listing.entries, entry_row))?;
        let Some(next) = listing.next else { return DONE };
        // The pages of one listing are of one version.
        query.clone_from(&first);
        query.retain(|(name, _)| *name != "ref");
        query.extend(listing.version.map(|version| ("ref", version.to_string())));
        query.push(("after", next));
    }
}

fn entry_row(TreeEntry { name, kind, size, .. }: &TreeEntry) -> String {
    let paint = Paint::stdout();
    let name = printable(name);
    let name = match kind {
        EntryKind::Directory => paint.cyan(&format!("{name}/")),
        EntryKind::Executable => paint.green(&format!("{name}*")),
        EntryKind::Symlink => format!("{name}@"),
        EntryKind::File => name,
    };
    let size = size.map(terminal::size).unwrap_or_default();
    format!("{size:>10}  {name}")
}

/// Whether the answer is a file's content, and not a folder's listing.
fn is_file(response: &Response) -> bool {
    response.headers().contains_key("bailey-kind")
}

pub(super) async fn cat(args: CatArgs, common: Common) -> Result<ExitCode, VerbError> {
    let CatArgs { at: args, range } = args;
    let client = connect(&common)?;
    let (path, query) = (tree_path("tree", &args.path), reference(args.reference));
    let mut response = match range {
        Some(range) => client.read_part(&path, &query, range).await?,
        None => client.read(&path, &query).await?,
    };
    if !is_file(&response) {
        return Err(VerbError::Input { what: "that is a folder: `bailey ls` lists it, `bailey get` takes it whole" });
    }
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
    let mut meter = Meter::new("receiving");
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        meter.add(chunk.len());
        out.write_all(&chunk)?;
    }
    out.flush()?;
    DONE
}

pub(super) async fn put(args: PutArgs, common: Common) -> Result<ExitCode, VerbError> {
    let remote = remote(args.remote, &args.local)?;
    let client = connect(&common)?;
    let (body, executable) = upload(&args.local).await?;
    let mut query = args.write.query();
    if let Some(executable) = executable {
        query.push(("executable", executable.to_string()));
    }
    let path = tree_path("tree", &remote);
    let answer: WriteAnswer = client.write(Method::PUT, &path, &query, args.write.if_match.as_deref(), body).await?;
    written(&answer, &common)
}

/// Where what is at a local path goes; standard input has no name of its own.
pub(super) fn remote(target: Target, local: &Path) -> Result<TreePath, VerbError> {
    let name = local.file_name().filter(|_| local != Path::new("-")).map(|name| text_of(name.as_bytes()));
    Ok(target.of(name.as_deref()).map_err(UsageError::from)?)
}

pub(super) async fn remove(args: RmArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let query = args.write.query();
    let path = tree_path("tree", &args.path);
    let nothing = Upload { content: Vec::new().into(), length: None };
    let answer: WriteAnswer =
        client.write(Method::DELETE, &path, &query, args.write.if_match.as_deref(), nothing).await?;
    written(&answer, &common)
}

pub(super) async fn log(args: LogArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let mut query = reference(args.at.reference);
    query.push(("limit", args.limit.to_string()));
    let history: History = client.get(&tree_path("tree-history", &args.at.path), &query).await?;
    let paint = Paint::stdout();
    say_list(&common, &history, "no version yet", || {
        rows(&history.versions, |VersionInfo { version, author, time_ms, message, run, .. }| {
            let by = run.as_ref().map_or_else(|| author.clone(), |run| format!("{author} by {run}"));
            let when = paint.dim(&terminal::time(*time_ms));
            let row = format!("{} {when} {} {}", paint.cyan(version.as_str()), printable(&by), printable(message));
            row.trim_end().to_owned()
        })
    })
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
    say(&common, &diff, || diff_text(&diff))
}

/// The last version that touched the path, and what it grew from.
async fn last_change(client: &Client, history: &str) -> Result<Vec<(&'static str, String)>, VerbError> {
    let history: History = client.get(history, &[("limit", "1".to_owned())]).await?;
    let last = history.versions.into_iter().next();
    let last = last.ok_or(VerbError::Input { what: "the path has no version yet" })?;
    let from = last.parents.into_iter().next().map(|parent| ("from", parent.to_string()));
    Ok(from.into_iter().chain([("to", last.version.to_string())]).collect())
}

fn diff_text(diff: &Diff) -> String {
    let paint = Paint::stdout();
    let mut lines = Vec::new();
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
        lines.push(format!("{head}  {}", paint.dim(&sizes)).trim_end().to_owned());
        lines.extend(entry.unified.iter().flat_map(|text| text.lines()).map(|line| {
            let text = printable(line);
            match line.chars().next() {
                Some('+') => paint.green(&text),
                Some('-') => paint.red(&text),
                Some('@') => paint.cyan(&text),
                _ => text,
            }
        }));
    }
    lines.extend(diff.truncated.then(|| "… and more".to_owned()));
    lines.join("\n")
}

pub(super) fn written(answer: &WriteAnswer, common: &Common) -> Result<ExitCode, VerbError> {
    terminal::warn(&answer.warnings);
    let path = printable(answer.path.as_str());
    say(common, answer, || format!("version {} {path} on {}", answer.version, answer.branch))
}

pub(super) fn reference(reference: Option<String>) -> Vec<(&'static str, String)> {
    reference.into_iter().map(|reference| ("ref", reference)).collect()
}

/// A local file's content and whether it may be executed; of standard input only the content is known.
pub(super) async fn upload(local: &Path) -> Result<(Upload, Option<bool>), VerbError> {
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
        return Err(VerbError::Input { what: "a folder is no archive: `bailey put` takes it as it is" });
    }
    // Of standard input somebody may have read the start.
    let length = (facts.is_file() && !input).then_some(facts.len());
    let mut meter = Meter::new("sending");
    let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE);
    let pieces = pieces.inspect_ok(move |piece| meter.add(piece.len()));
    let content = reqwest::Body::wrap_stream(pieces);
    Ok((Upload { content, length }, (!input).then_some(facts.mode() & 0o111 != 0)))
}
