//! Walls beside the cages, which an operator names to have them.

use std::path::{Path, PathBuf};

use bailey_protocol::id::TemplateDigest;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Most sandboxes that wait.
pub(super) const MAX_PARKED: u32 = 1000;
/// Those of gVisor and machines where nothing is said: each is a kernel with its memory.
const PARKED: u32 = 2;
/// Memory of a machine where nothing is said: what runs get by default, and its kernel.
const MACHINE_BYTES: u64 = 1152 << 20;
/// Least and most.
const MACHINE_RANGE: (u64, u64) = (256 << 20, 64 << 30);

/// The file's table `[walls]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WallsFile {
    gvisor: Option<GvisorFile>,
    microvm: Option<MicrovmFile>,
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

/// Its table `microvm`, which may be empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MicrovmFile {
    /// Machines that wait to be claimed.
    parked: Option<u32>,
    /// Memory of each, its kernel's included.
    memory_bytes: Option<u64>,
}

/// What the root half makes machines from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Microvm {
    pub(crate) parked: u32,
    pub(crate) memory_bytes: u64,
}

/// What the server is told of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MicrovmServed {
    pub(crate) image: TemplateDigest,
    pub(crate) kernel: String,
    pub(crate) vmm: String,
    pub(crate) parked: u32,
    pub(crate) memory_bytes: u64,
    /// What the host's processor calls itself, and ticks of its counter in a millisecond.
    pub(crate) processor: String,
    pub(crate) khz: u32,
    /// What names the host, and must be in no machine.
    pub(crate) names: Vec<String>,
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
pub(super) fn read(path: &Path, walls: WallsFile) -> Result<(Option<Gvisor>, Option<Microvm>), ConfigError> {
    let WallsFile { gvisor: named, microvm: machines } = walls;
    Ok((gvisor(path, named)?, microvm(path, machines)?))
}

fn microvm(path: &Path, named: Option<MicrovmFile>) -> Result<Option<Microvm>, ConfigError> {
    let wrong = |key, given, rule| ConfigError::Value { path: path.to_owned(), key, given, rule };
    let Some(MicrovmFile { parked, memory_bytes }) = named else { return Ok(None) };
    let (parked, memory_bytes) = (parked.unwrap_or(PARKED), memory_bytes.unwrap_or(MACHINE_BYTES));
    if parked > MAX_PARKED {
        return Err(wrong("walls.microvm.parked", parked.to_string(), "use 0 to 1000"));
    }
    if memory_bytes < MACHINE_RANGE.0 || memory_bytes > MACHINE_RANGE.1 || memory_bytes % (1 << 20) != 0 {
        let rule = "use whole MiB, 268435456 to 68719476736";
        return Err(wrong("walls.microvm.memory_bytes", memory_bytes.to_string(), rule));
    }
    Ok(Some(Microvm { parked, memory_bytes }))
}

fn gvisor(path: &Path, named: Option<GvisorFile>) -> Result<Option<Gvisor>, ConfigError> {
    let wrong = |key, given, rule| ConfigError::Value { path: path.to_owned(), key, given, rule };
    let Some(GvisorFile { parked, runsc }) = named else { return Ok(None) };
    let parked = parked.unwrap_or(PARKED);
    if parked > MAX_PARKED {
        return Err(wrong("walls.gvisor.parked", parked.to_string(), "use 0 to 1000"));
    }
    if let Some(relative) = runsc.as_ref().filter(|runsc| !runsc.is_absolute()) {
        return Err(wrong("walls.gvisor.runsc", relative.display().to_string(), "use an absolute path"));
    }
    Ok(Some(Gvisor { parked, runsc }))
}
