//! `slice:N`: the content of a mount comes as a change stream, and becomes the mount's lower layer.
//!
//! A folder, file or link is made where its stream says, beneath the layer's descriptor, following nothing and replacing
//! nothing: a stream that says otherwise is refused, whoever sent it.

use std::rc::Rc;

use bailey_protocol::guest::{SLICE_FAILED, SLICE_TAKEN};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWriteExt, BufReader};

use super::Phase;
use super::mounts::{Content, Slice};
use crate::agent::Agent;
use crate::agent::stream::Stream;
use reader::{Record, SliceReader};
use writer::Writer;

mod reader;
mod writer;

/// Bytes of a stream that are read at once.
const BUFFER: usize = 128 * 1024;
/// Longest reason that is told.
const MAX_REASON: usize = 500;

/// Why a slice is not taken.
#[derive(Debug, thiserror::Error)]
enum SliceError {
    #[error("the machine is not waiting for slice {0}")]
    NotAwaited(u32),
    #[error("the stream ends early, or breaks: {0}")]
    Broken(std::io::Error),
    #[error("the stream is not valid: {0}")]
    Invalid(&'static str),
    #[error("write `{}`: {errno}", String::from_utf8_lossy(path))]
    Write { path: Vec<u8>, errno: rustix::io::Errno },
}

/// Takes a slice and answers with one line.
pub(crate) async fn receive(agent: &Rc<Agent>, number: u32, mut stream: Stream) {
    let answer = match take(agent, number, &mut stream).await {
        Ok(()) => format!("{SLICE_TAKEN}\n"),
        Err(error) => {
            let reason: String = error.to_string().chars().take(MAX_REASON).flat_map(char::escape_default).collect();
            format!("{SLICE_FAILED}{reason}\n")
        }
    };
    // The node may be gone; then nobody waits for the answer.
    let _unheard = stream.write_all(answer.as_bytes()).await;
    let _closed = stream.shutdown().await;
}

async fn take(agent: &Agent, number: u32, stream: &mut Stream) -> Result<(), SliceError> {
    let machine = agent.machine.as_ref().filter(|machine| machine.phase.get() == Phase::Claimed);
    let claimed = machine.and_then(|machine| machine.claimed.get());
    let slice = claimed.zip(usize::try_from(number).ok()).and_then(|(claimed, place)| claimed.slices.get(place));
    let slice = slice.filter(|slice| slice.content.get() == Content::Missing).ok_or(SliceError::NotAwaited(number))?;
    slice.content.set(Content::Coming);
    fill(slice, stream).await?;
    slice.content.set(Content::Whole);
    Ok(())
}

async fn fill(slice: &Slice, stream: impl AsyncRead + Unpin) -> Result<(), SliceError> {
    let mut reader = SliceReader::new(BufReader::with_capacity(BUFFER, stream));
    fill_from(&mut reader, &mut Writer::new(&slice.lower)).await
}

async fn fill_from<R: AsyncBufRead + Unpin>(
    reader: &mut SliceReader<R>,
    writer: &mut Writer<'_>,
) -> Result<(), SliceError> {
    while let Some(record) = reader.next().await? {
        match record {
            Record::Directory { path } => writer.folder(&path)?,
            Record::Symlink { path, target } => writer.link(&path, &target)?,
            Record::File { path, executable, mut left } => {
                let file = writer.file(&path, executable)?;
                while left > 0 {
                    left -= writer.append(&file, &path, reader.content(left).await?)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
