//! Change streams: what a collector in a hostile cage may send.

use std::io::Read as _;

use bailey_protocol::change::{Header, MAGIC};

use super::scratch::{each, meta};
use crate::changes::{ChangeReader, Record};
use crate::error::TreeError;
use crate::store::MAX_NOTICES;

/// Where changes go.
const MOUNT: &str = "in";

/// What is read of a stream, written again, are its very bytes; what is applied of it is below its mount.
pub fn changes(data: &[u8]) {
    apply(data);
}

/// Whether the stream is applied.
pub(super) fn apply(data: &[u8]) -> bool {
    let read = written_again(data);
    if let Ok(again) = &read {
        assert!(data.starts_with(again), "it can be read in two ways");
    }
    let taken = each(|case| {
        let applied = case.store.apply_changes(Some(&case.base), MOUNT, &mut &*data, &meta())?;
        assert!(read.is_ok(), "what cannot be read is applied");
        assert!(applied.notices.len() <= MAX_NOTICES);
        case.stays(applied.version.as_ref().unwrap_or(&case.base), MOUNT);
        Ok(())
    });
    taken.is_some()
}

/// The stream up to its end, as a collector writes it.
fn written_again(data: &[u8]) -> Result<Vec<u8>, TreeError> {
    let mut source = data;
    let mut reader = ChangeReader::new(&mut source);
    let (mut again, mut records) = (MAGIC.to_vec(), 0);
    loop {
        let record = reader.next()?;
        let header = match &record {
            Record::Directory { path } => Header::Directory { path },
            Record::File { path, executable, size } => Header::File { path, executable: *executable, size: *size },
            Record::Symlink { path, target } => Header::Symlink { path, target },
            Record::Delete { path } => Header::Delete { path },
            Record::Notice { path, reason } => Header::Notice { path, reason: *reason },
            Record::End => Header::End { records },
        };
        header.encode(&mut again).expect("what was read can be written");
        match record {
            Record::End => return Ok(again),
            Record::File { size, .. } => {
                let read = reader.content().take(size).read_to_end(&mut again);
                if read.expect("memory does not fail") as u64 != size {
                    return Err(reader.fault("it ends before its end record"));
                }
            }
            _ => {}
        }
        records += 1;
    }
}
