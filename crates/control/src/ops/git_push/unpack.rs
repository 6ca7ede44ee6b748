//! Getting what a client sends through git, which unpacks it in a sandbox, into the tree, which believes neither.

use std::io::{self, Read};

use bailey_protocol::git::{GitJob, GitUpdate};
use bailey_protocol::id::VersionId;
use bailey_protocol::node::{Ending, NodeFault, NodeFaultKind};
use bailey_tree::{PushLimits, Pushed, TreeErrorKind};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::Source;
use super::refusals::{broken_off, why};
use crate::api_error::ApiError;
use crate::control::Control;
use crate::ops::git::{self, Access};
use crate::pipe::{PipeWriter, pipe};
use crate::threads::{blocking, reading};

/// Has git unpack what the client sends, and the tree take in what comes of it; or says why the push is refused.
pub(super) async fn unpack(
    control: &Control,
    access: &Access,
    tips: Vec<VersionId>,
    source: Source,
) -> Result<Result<Pushed, String>, ApiError> {
    let config = control.config().git;
    let job = GitJob::Unpack { tips: tips.clone(), max_bytes: config.max_push_bytes };
    let (to_git, updates) = git::start(control, access, job, git::limits(control, config.max_push_bytes)).await?;
    let limits = PushLimits {
        file_bytes: control.config().max_file_bytes,
        total_bytes: config.max_pushed_bytes,
        objects: config.max_push_objects,
    };
    let (writer, reader) = pipe();
    let store = access.store.clone();
    let feeding = blocking(control.threads(), move || Ok(feed(source, &to_git, config.max_push_bytes)));
    let taking = reading(control.threads(), reader, move |mut reader| Ok(store.take_in(&mut reader, &tips, &limits)));
    let (fed, ended, taken) = tokio::join!(feeding, forward(updates, writer), taking);
    match fed? {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Ok(Err(format!("the push has more than {} bytes: push in parts", config.max_push_bytes)));
        }
        Err(error) => return Err(broken_off(error)),
    }
    let taken = taken?;
    match (ended, taken) {
        (_, Err(error)) if is_the_pushers(error.kind()) => Ok(Err(error.to_string())),
        (Err(fault), _) => Err(git::failed(fault)),
        (Ok(Some(reason)), _) => Ok(Err(reason)),
        (Ok(None), Ok(pushed)) => Ok(Ok(pushed)),
        (Ok(None), Err(error)) => Err(error.into()),
    }
}

/// Whether another push can do something about it.
fn is_the_pushers(kind: TreeErrorKind) -> bool {
    use TreeErrorKind::{Expired, Invalid, QuotaExceeded, TooLarge};
    matches!(kind, Invalid | TooLarge | QuotaExceeded | Expired)
}

/// Moves the client's pack to git. What git does not take any more is read all the same: only then does the client listen.
fn feed(mut source: Source, to_git: &mpsc::Sender<Bytes>, most: u64) -> io::Result<()> {
    let mut left = most;
    let mut taken = true;
    loop {
        let mut piece = vec![0; 64 * 1024];
        let count = match source.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        left = left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        piece.truncate(count);
        taken = taken && to_git.blocking_send(Bytes::from(piece)).is_ok();
    }
}

/// Moves git's output to the tree; says why git refused the pack, if it did.
async fn forward(mut updates: mpsc::Receiver<GitUpdate>, writer: PipeWriter) -> Result<Option<String>, NodeFault> {
    loop {
        match updates.recv().await {
            Some(GitUpdate::Output { data }) => {
                if writer.send(data).await.is_err() {
                    // The tree has seen enough, and says itself why.
                    return Ok(None);
                }
            }
            Some(GitUpdate::Ended { ending: Ending::Exited { code: 0 }, .. }) => {
                let _reader_gone = writer.finish().await.is_err();
                return Ok(None);
            }
            Some(GitUpdate::Ended { ending, said }) => return Ok(Some(why(&ending, &said))),
            Some(GitUpdate::Failed { fault }) => return Err(fault),
            None => {
                let message = "the node dropped a git exchange".to_owned();
                return Err(NodeFault { kind: NodeFaultKind::Internal, message });
            }
        }
    }
}

/// Reads the rest of a push that is refused anyway.
pub(super) async fn drain(control: &Control, mut source: Source) -> Result<(), ApiError> {
    let most = control.config().git.max_push_bytes;
    let drained = move || io::copy(&mut source.by_ref().take(most), &mut io::sink()).map(drop).map_err(broken_off);
    blocking(control.threads(), drained).await
}
