//! What `base` is made of. Any change here makes a new image on every host.

use sha2::{Digest, Sha256};

/// How runs name the template.
pub(crate) const NAME: &str = "base";
/// The Debian release.
pub(super) const SUITE: &str = "bookworm";
/// What a program in a sandbox finds beside Debian's minimal base.
pub(super) const PACKAGES: &[&str] = &[
    "bash",
    "bzip2",
    "ca-certificates",
    "coreutils",
    "curl",
    "file",
    "git",
    "iproute2",
    "jq",
    "less",
    "netbase",
    "nodejs",
    "patch",
    "procps",
    "psmisc",
    "python3",
    "python3-venv",
    "tzdata",
    "unzip",
    "xz-utils",
    "zip",
];
/// Turns the Debian root into the template.
pub(super) const CUSTOMISE: &str = include_str!("customise.sh");
/// Equal input gives an equal image: no extended attributes (so no file capability survives), one time, one id.
/// `lz4`: starts as fast as uncompressed once in the page cache, twice as fast before, and hashes in half the time.
pub(super) const IMAGE_FLAGS: &[&str] =
    &["--quiet", "-x-1", "-T0", "-U", "00000000-0000-0000-0000-000000000000", "-zlz4"];

/// SHA-256 over all of the above.
pub(super) fn hash() -> String {
    let mut hash = Sha256::new();
    let parts = [NAME, SUITE, std::env::consts::ARCH, CUSTOMISE];
    for part in parts.iter().chain(PACKAGES).chain(IMAGE_FLAGS) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    format!("{:x}", hash.finalize())
}
