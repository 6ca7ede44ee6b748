//! `get`, `put` of folders, `archive`, `extract`: whole folders, in flat memory on both sides.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bailey_protocol::api::ExtractAnswer;
use bailey_protocol::path::TreePath;
use bytes::Bytes;
use futures_util::stream;
use reqwest::{Method, Response};
use tokio::sync::mpsc;

use super::tree::{reference, remote, upload};
use super::{VerbError, connect, say};
use crate::cli::Common;
use crate::cli::tree::{ArchiveArgs, ArchiveFormat, ExtractArgs, GetArgs};
use crate::cli::{PutArgs, WriteArgs};
use crate::client::{Client, Upload, broken, tree_path};
use crate::local::{self, LocalError};
use crate::progress::Meter;
use crate::terminal::{self, note, printable};

const TAR: &str = "application/x-tar";
const ZIP: &str = "application/zip";
/// Pieces that may wait between the network and the disk.
const WAITING: usize = 8;
const PIECE: usize = 128 * 1024;

pub(super) async fn get(args: GetArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = tree_path("tree", &args.at.path);
    let name = || PathBuf::from(args.at.path.as_str().rsplit('/').next().unwrap_or("tree"));
    let local = args.local.unwrap_or_else(name);
    let mut query = reference(args.at.reference);
    query.push(("limit", "1".to_owned()));
    let response = client.read(&path, &query).await?;
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let count = match (header("bailey-kind"), header("bailey-version")) {
        (Some(kind), _) => save(response, &local, &kind).await?,
        (None, None) => return Err(VerbError::Input { what: "the tree has no version yet" }),
        (None, Some(_)) if local == Path::new("-") => {
            return Err(VerbError::Input { what: "a folder does not fit standard output: use `bailey archive`" });
        }
        (None, Some(version)) => {
            let response = client.read_as(&path, &[("ref", version)], TAR).await?;
            let folder = local.clone();
            receive(response, move |input| Ok(local::unpack(input, &folder)?)).await?
        }
    };
    taken(&args.at.path, &local, count, &common)
}

/// Says what was written to the local disk; where that is standard output, it speaks for itself.
fn taken(path: &TreePath, local: &Path, count: local::Count, common: &Common) -> Result<ExitCode, VerbError> {
    if local == Path::new("-") {
        return Ok(ExitCode::SUCCESS);
    }
    let local::Count { members, bytes } = count;
    say(common, &serde_json::json!({ "path": path, "local": local, "members": members, "bytes": bytes }), || {
        let (path, local) = (printable(path.as_str()), printable(&local.display().to_string()));
        match members {
            1 => format!("{path} to {local}: {}", terminal::size(bytes)),
            _ => format!("{path} to {local}: {members} entries, {}", terminal::size(bytes)),
        }
    })
}

/// Writes a file's content to a new file beside `local`, which takes its place once it is whole.
async fn save(response: Response, local: &Path, kind: &str) -> Result<local::Count, VerbError> {
    if local == Path::new("-") {
        return receive(response, |mut input| copy(&mut input, &mut io::stdout().lock(), Path::new("-"))).await;
    }
    let (local, kind) = (local.to_owned(), kind.to_owned());
    receive(response, move |mut input| {
        let failed = |source| LocalError::Write { path: local.display().to_string(), source };
        if local.is_dir() {
            return Err(LocalError::Taken { path: local.display().to_string() }.into());
        }
        if kind == "symlink" {
            let mut target = String::new();
            input.read_to_string(&mut target).map_err(failed)?;
            std::os::unix::fs::symlink(target, &local).map_err(failed)?;
            return Ok(local::Count { members: 1, bytes: 0 });
        }
        let beside = local.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".bailey-").tempfile_in(beside).map_err(failed)?;
        let count = copy(&mut input, file.as_file_mut(), &local)?;
        let mode = if kind == "executable" { 0o755 } else { 0o644 };
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        file.persist(&local).map_err(|error| failed(error.error))?;
        Ok(count)
    })
    .await
}

fn copy(input: &mut dyn Read, out: &mut dyn Write, local: &Path) -> Result<local::Count, VerbError> {
    let copied = io::copy(input, out).and_then(|bytes| out.flush().map(|()| bytes));
    let bytes = copied.map_err(|source| LocalError::Write { path: local.display().to_string(), source })?;
    Ok(local::Count { members: 1, bytes })
}

pub(super) async fn archive(args: ArchiveArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let accept = match format_of(args.format, &args.local) {
        ArchiveFormat::Tar => TAR,
        ArchiveFormat::Zip => ZIP,
    };
    let path = tree_path("tree", &args.at.path);
    let response = client.read_as(&path, &reference(args.at.reference), accept).await?;
    let count = save(response, &args.local, "file").await?;
    taken(&args.at.path, &args.local, count, &common)
}

pub(super) async fn extract(args: ExtractArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let (body, _executable) = upload(&args.local).await?;
    let format = match format_of(args.format, &args.local) {
        ArchiveFormat::Tar => "tar",
        ArchiveFormat::Zip => "zip",
    };
    let answer = send(&client, &args.remote, &args.write, format, body).await?;
    extracted(&answer, &common)
}

fn format_of(told: Option<ArchiveFormat>, local: &Path) -> ArchiveFormat {
    let zip = local.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"));
    told.unwrap_or(if zip { ArchiveFormat::Zip } else { ArchiveFormat::Tar })
}

/// Writes a local folder into the tree, in one version.
pub(super) async fn put_folder(args: PutArgs, common: Common) -> Result<ExitCode, VerbError> {
    let remote = remote(args.remote, &args.local)?;
    let client = connect(&common)?;
    let sent = send_folder(args.local, async |body| send(&client, &remote, &args.write, "tar", body).await);
    extracted(&sent.await?, &common)
}

/// Has `send` take a local folder as a tar, and says what was passed over.
pub(super) async fn send_folder<T>(
    folder: PathBuf,
    send: impl AsyncFnOnce(Upload) -> Result<T, VerbError>,
) -> Result<T, VerbError> {
    let (tx, rx) = mpsc::channel::<io::Result<Bytes>>(WAITING);
    let packing = tokio::task::spawn_blocking(move || {
        let mut out = Pieces { tx, piece: Vec::with_capacity(PIECE) };
        let packed = local::pack(&folder, &mut out);
        if packed.is_err() {
            // The server must not take what came so far for the whole.
            let _gone = out.tx.blocking_send(Err(io::ErrorKind::BrokenPipe.into())).is_err();
        }
        packed
    });
    let meter = Meter::new("sending");
    let pieces = stream::unfold((rx, meter), |(mut rx, mut meter)| async move {
        let piece = rx.recv().await?;
        meter.add(piece.as_ref().map_or(0, Bytes::len));
        Some((piece, (rx, meter)))
    });
    let sent = send(Upload { content: reqwest::Body::wrap_stream(pieces), length: None }).await;
    let packed = packing.await.map_err(|error| VerbError::Runtime(io::Error::other(error)))?;
    match (sent, packed) {
        // What is wrong with the folder is why the server was left waiting.
        (Err(_broken), Err(error @ LocalError::Read { .. })) => Err(error.into()),
        (Err(error), _) => Err(error),
        (Ok(_), Err(error)) => Err(error.into()),
        (Ok(answer), Ok(passed)) => {
            for path in passed {
                let path = printable(&path.display().to_string());
                note!("bailey: passed over `{path}`: neither a file, nor a folder, nor a link");
            }
            Ok(answer)
        }
    }
}

async fn send(
    client: &Client,
    remote: &TreePath,
    write: &WriteArgs,
    format: &str,
    body: Upload,
) -> Result<ExtractAnswer, VerbError> {
    let mut query = write.query();
    query.push(("extract", format.to_owned()));
    let path = tree_path("tree", remote);
    Ok(client.write(Method::PUT, &path, &query, write.if_match.as_deref(), body).await?)
}

fn extracted(answer: &ExtractAnswer, common: &Common) -> Result<ExitCode, VerbError> {
    terminal::warn(&answer.warnings);
    let path = printable(answer.path.as_str());
    let (members, bytes) = (answer.members, terminal::size(answer.bytes));
    say(common, answer, || {
        format!("version {} {path} on {}: {members} entries, {bytes}", answer.version, answer.branch)
    })?;
    if common.json {
        return Ok(ExitCode::SUCCESS);
    }
    for notice in &answer.notices {
        let reason = serde_json::to_value(notice.reason).ok();
        let reason = reason.as_ref().and_then(|value| value.as_str()).unwrap_or("left out").replace('_', " ");
        note!("bailey: `{}`: {reason}", printable(&notice.path));
    }
    if answer.more_notices > 0 {
        note!("bailey: … and {} more", answer.more_notices);
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands an answer's body to `work` on a thread of its own, a few pieces ahead.
async fn receive<T: Send + 'static>(
    mut response: Response,
    work: impl FnOnce(Incoming) -> Result<T, VerbError> + Send + 'static,
) -> Result<T, VerbError> {
    let (tx, rx) = mpsc::channel::<Bytes>(WAITING);
    let working = tokio::task::spawn_blocking(move || work(Incoming { rx, piece: Bytes::new(), over: false }));
    let mut meter = Meter::new("receiving");
    let mut sent = Ok(());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                meter.add(chunk.len());
                // Who stopped reading says why.
                if !chunk.is_empty() && tx.send(chunk).await.is_err() {
                    break;
                }
            }
            Ok(None) => {
                let _gone = tx.send(Bytes::new()).await.is_err();
                break;
            }
            Err(error) => {
                sent = Err(VerbError::Client(broken(error)));
                break;
            }
        }
    }
    drop(tx);
    let worked = working.await.map_err(|error| VerbError::Runtime(io::Error::other(error)))?;
    sent.and(worked)
}

/// The reading end; an answer that breaks off is an error, never an end.
struct Incoming {
    rx: mpsc::Receiver<Bytes>,
    piece: Bytes,
    over: bool,
}

impl Read for Incoming {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.over {
            match self.rx.blocking_recv() {
                Some(piece) if piece.is_empty() => self.over = true,
                Some(piece) => self.piece = piece,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let count = out.len().min(self.piece.len());
        let piece = self.piece.split_to(count);
        if let Some(to) = out.get_mut(..count) {
            to.copy_from_slice(&piece);
        }
        Ok(count)
    }
}

/// The writing end of an upload.
struct Pieces {
    tx: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        if piece.is_empty() {
            return Ok(());
        }
        self.tx.blocking_send(Ok(piece.into())).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
    }
}
