//! Walls beside the cages, which an operator names to have them.

use std::path::{Path, PathBuf};

use bailey_protocol::id::TemplateDigest;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Most sandboxes that wait.
pub(super) const MAX_PARKED: u32 = 1000;
/// Those of gVisor where nothing is said: each is a kernel with its memory.
const PARKED: u32 = 2;

/// The file's table `[walls]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WallsFile {
    gvisor: Option<GvisorFile>,
}

/// Its table `gvisor`, which may be empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GvisorFile {
    /// Sandboxes that wait to be claimed.
    parked: Option<u32>,
    /// The program, where it is not one of the host's usual places.
    runsc: Option<PathBuf>,
}

/// What the root half makes the wall from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gvisor {
    pub(crate) parked: u32,
    pub(crate) runsc: Option<PathBuf>,
}

/// What the server is told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GvisorServed {
    pub(crate) image: TemplateDigest,
    pub(crate) version: String,
    pub(crate) parked: u32,
}

/// Checks what the file at `path` says.
pub(super) fn gvisor(path: &Path, walls: WallsFile) -> Result<Option<Gvisor>, ConfigError> {
    let wrong = |key, given, rule| ConfigError::Value { path: path.to_owned(), key, given, rule };
    let Some(GvisorFile { parked, runsc }) = walls.gvisor else { return Ok(None) };
    let parked = parked.unwrap_or(PARKED);
    if parked > MAX_PARKED {
        return Err(wrong("walls.gvisor.parked", parked.to_string(), "use 0 to 1000"));
    }
    if let Some(relative) = runsc.as_ref().filter(|runsc| !runsc.is_absolute()) {
        return Err(wrong("walls.gvisor.runsc", relative.display().to_string(), "use an absolute path"));
    }
    Ok(Some(Gvisor { parked, runsc }))
}
