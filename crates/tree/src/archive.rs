//! Archives: folders as tar or zip, and tar or zip as folders.
//!
//! What goes out is the same, byte for byte, for the same version and path. What comes in is hostile. Two rules decide
//! about a member, and no third: what a tree cannot hold (devices, pipes, special bits, extended attributes, second
//! names) is left out or kept as a plain copy, **with a notice**, as with what a run changed; and **everything else that
//! is not one plain reading of the format refuses the whole archive**, with the member's name, before anything changed:
//! paths that lead out, the same name twice, something below a link, two sizes or names for one member, sparse maps,
//! encryption, bytes that belong to no member. Where readers of archives disagree, so that one tool sees what another
//! does not, there is nothing to be read.
//!
//! Limits come before parsing: members, bytes of each and of all, and how many times its size an archive unpacks to.

mod dos_time;
mod entry;
mod intake;
mod out;
mod ratio;
mod tar_header;
mod tar_reader;
mod tar_writer;
mod zip_directory;
mod zip_reader;
mod zip_writer;

pub use entry::{Member, MemberKind};
pub use intake::{ExtractLimits, Extracted};
pub use tar_reader::TarReader;
pub use tar_writer::TarWriter;

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tar (GNU's on the way out; ustar, GNU and PAX on the way in, gzipped or not).
    Tar,
    /// Zip.
    Zip,
}
