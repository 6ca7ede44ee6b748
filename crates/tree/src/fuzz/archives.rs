//! Archives, each input as every format, and as a tar whose headers have right sums, which no mutation would find.

use super::scratch::{Case, each, meta};
use crate::archive::{ExtractLimits, Format};
use crate::error::TreeError;

/// Where archives go.
const FOLDER: &str = "in";
/// Small enough to be reached.
const LIMITS: ExtractLimits = ExtractLimits { members: 64, file_bytes: 64 << 10, bytes: 128 << 10 };
const BLOCK: usize = 512;

/// What is extracted is within limits and below its folder, and comes out of an archive of it again.
pub fn archives(data: &[u8]) {
    extract(data, Format::Tar);
    extract(data, Format::Zip);
    let summed = with_sums(data);
    if summed != data {
        extract(&summed, Format::Tar);
    }
}

/// Whether the archive is taken in.
pub(super) fn extract(data: &[u8], format: Format) -> bool {
    let taken = each(|case| {
        let done = case.store.extract(Some(&case.base), FOLDER, format, &mut &*data, &LIMITS, &meta())?;
        assert!(done.members <= LIMITS.members && done.bytes <= LIMITS.bytes, "{done:?}");
        let version = done.version.as_ref().expect("there was a version before");
        case.stays(version, FOLDER);
        again(case, version)
    });
    taken.is_some()
}

/// What was extracted is the same after another way out and in.
fn again(case: &Case, version: &bailey_protocol::id::VersionId) -> Result<(), TreeError> {
    for format in [Format::Tar, Format::Zip] {
        let mut bytes = Vec::new();
        match case.store.archive(version, FOLDER, format, &mut bytes) {
            Ok(()) => {}
            // A zip has shorter names than a tar.
            Err(_too_long) if matches!(format, Format::Zip) => continue,
            Err(other) => unreachable!("{other:?}"),
        }
        let limits = ExtractLimits { members: 1 << 20, file_bytes: 1 << 30, bytes: 1 << 30 };
        let done = case.store.extract(Some(&case.base), FOLDER, format, &mut &*bytes, &limits, &meta());
        let other = done.expect("what comes out goes in").version;
        let folder = |version| case.store.subtree(Some(version), FOLDER);
        assert_eq!(folder(other.as_ref().unwrap_or(&case.base))?, folder(version)?, "{format:?}");
    }
    Ok(())
}

/// The same with the right sum in each block that looks like a tar's header.
pub(super) fn with_sums(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for block in data.chunks_exact_mut(BLOCK) {
        if block.get(257..262) != Some(b"ustar") {
            continue;
        }
        let place = 148..156;
        block.get_mut(place.clone()).expect("a block is longer").fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let text = format!("{sum:06o}\0 ");
        block.get_mut(place).expect("a block is longer").copy_from_slice(text.as_bytes());
    }
    data
}
