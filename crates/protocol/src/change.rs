//! The change stream: what a run changed below one mount, as one self-delimiting byte stream.
//!
//! Layout: [`MAGIC`], then records, then exactly one `End` (or `Failed`). A record is one tag byte, then its fields;
//! a path or a target is a big-endian `u16` length and that many bytes; sizes are big-endian `u64`. A `File` header
//! is followed by exactly `size` content bytes. Paths are relative to the mount, `/`-separated, never empty except
//! in `Failed`. Records come in the order in which they must be applied. A stream that stops before `End` is an
//! error. The reader (`tree`) treats every byte as hostile; this module only writes.

use crate::path::MAX_PATH_BYTES;

/// First bytes of a stream: the format's name and its version.
pub const MAGIC: &[u8; 8] = b"BLYCHG\0\x01";

/// Tag bytes of the records.
pub mod tag {
    /// A folder exists (made, or kept with new content below). Fields: path.
    pub const DIRECTORY: u8 = b'D';
    /// A regular file's whole content. Fields: path, flags (`u8`: 1 = executable), size, then the content.
    pub const FILE: u8 = b'F';
    /// A symbolic link. Fields: path, target.
    pub const SYMLINK: u8 = b'L';
    /// The path and all below it are gone. A replaced folder is a delete followed by its new content. Fields: path.
    pub const DELETE: u8 = b'X';
    /// Something that a tree cannot hold was dropped. Fields: path, reason (`u8`, see [`super::NoticeReason`]).
    pub const NOTICE: u8 = b'N';
    /// The stream is complete. Fields: number of records before this one (`u64`).
    pub const END: u8 = b'E';
    /// The collector could not finish. Fields: message (as a path field, UTF-8).
    pub const FAILED: u8 = b'Z';
}

/// Why something is not in the new version, or not as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum NoticeReason {
    /// A device node: dropped.
    Device = 1,
    /// A socket: dropped.
    Socket = 2,
    /// A named pipe: dropped.
    Fifo = 3,
    /// Setuid, setgid or sticky bits: the file is kept without them.
    SpecialBits = 4,
    /// A second name of one file: kept as a copy.
    HardLink = 5,
    /// Extended attributes: the file is kept without them.
    Xattr = 6,
    /// Larger than a tree may hold (a sparse file of exabytes, say): dropped.
    TooLarge = 7,
    /// A path longer or deeper than a tree may hold: dropped.
    PathTooLong = 8,
    /// A name that the tree keeps for itself (`users` at a tenant's root, where users' own trees are), or a folder or link
    /// with a name that only a file can have (`.gitmodules`, `.gitattributes`): dropped.
    Reserved = 9,
    /// It holds what is shaped like a credential: kept as it is. The server finds this; no stream says it.
    CredentialShaped = 10,
}

impl NoticeReason {
    /// The reason behind a byte of a stream.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Device,
            2 => Self::Socket,
            3 => Self::Fifo,
            4 => Self::SpecialBits,
            5 => Self::HardLink,
            6 => Self::Xattr,
            7 => Self::TooLarge,
            8 => Self::PathTooLong,
            9 => Self::Reserved,
            _ => return None,
        })
    }
}

/// One record's header, to be written. Content of a `File` follows from the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header<'a> {
    /// See [`tag::DIRECTORY`].
    Directory { path: &'a [u8] },
    /// See [`tag::FILE`].
    File { path: &'a [u8], executable: bool, size: u64 },
    /// See [`tag::SYMLINK`].
    Symlink { path: &'a [u8], target: &'a [u8] },
    /// See [`tag::DELETE`].
    Delete { path: &'a [u8] },
    /// See [`tag::NOTICE`].
    Notice { path: &'a [u8], reason: NoticeReason },
    /// See [`tag::END`].
    End { records: u64 },
    /// See [`tag::FAILED`].
    Failed { message: &'a str },
}

/// A path or target is too long for the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a path of {0} bytes does not fit the change stream (at most 4096)")]
pub struct FieldTooLong(pub usize);

impl Header<'_> {
    /// Appends the record's bytes to `out`.
    ///
    /// # Errors
    /// When a field is longer than 4096 bytes; `out` may then hold a partial record and must be dropped.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FieldTooLong> {
        match *self {
            Self::Directory { path } => {
                out.push(tag::DIRECTORY);
                field(out, path)
            }
            Self::File { path, executable, size } => {
                out.push(tag::FILE);
                field(out, path)?;
                out.push(u8::from(executable));
                out.extend_from_slice(&size.to_be_bytes());
                Ok(())
            }
            Self::Symlink { path, target } => {
                out.push(tag::SYMLINK);
                field(out, path)?;
                field(out, target)
            }
            Self::Delete { path } => {
                out.push(tag::DELETE);
                field(out, path)
            }
            Self::Notice { path, reason } => {
                out.push(tag::NOTICE);
                field(out, path)?;
                out.push(reason as u8);
                Ok(())
            }
            Self::End { records } => {
                out.push(tag::END);
                out.extend_from_slice(&records.to_be_bytes());
                Ok(())
            }
            Self::Failed { message } => {
                out.push(tag::FAILED);
                field(out, message.as_bytes())
            }
        }
    }
}

fn field(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), FieldTooLong> {
    let length = u16::try_from(bytes.len()).ok().filter(|n| usize::from(*n) <= MAX_PATH_BYTES);
    let length = length.ok_or(FieldTooLong(bytes.len()))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_frozen() {
        let mut out = MAGIC.to_vec();
        let headers = [
            Header::Delete { path: b"old" },
            Header::Directory { path: b"d" },
            Header::File { path: b"d/f", executable: true, size: 2 },
        ];
        for header in headers {
            header.encode(&mut out).unwrap();
        }
        out.extend_from_slice(b"hi");
        Header::Symlink { path: b"l", target: b"d/f" }.encode(&mut out).unwrap();
        Header::Notice { path: b"p", reason: NoticeReason::Fifo }.encode(&mut out).unwrap();
        Header::End { records: 5 }.encode(&mut out).unwrap();
        let frozen = b"BLYCHG\0\x01X\0\x03oldD\0\x01dF\0\x03d/f\x01\0\0\0\0\0\0\0\x02hiL\0\x01l\0\x03d/fN\0\x01p\x03E\0\0\0\0\0\0\0\x05";
        assert_eq!(out, frozen);
    }

    #[test]
    fn a_field_over_the_limit_is_refused() {
        let long = vec![b'x'; 4097];
        assert!(Header::Delete { path: &long }.encode(&mut Vec::new()).is_err());
    }
}
