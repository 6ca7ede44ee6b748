//! What the jail is told at its start.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use bailey_protocol::jail::{JailFault, SupervisorConfig};

use crate::fault::{OrFault, invalid};

/// Largest configuration.
const MAX_CONFIG: u64 = 4 * 1024 * 1024;

/// Reads the configuration from the descriptor that the only argument numbers.
///
/// # Errors
/// When it is not there or not whole.
pub(crate) fn read(arguments: &[OsString]) -> Result<SupervisorConfig, JailFault> {
    let step = "read the configuration";
    let [number] = arguments else {
        return Err(invalid(step, "usage: bailey-jail FD (started by `bailey serve` and `bailey doctor`)"));
    };
    let number = number.to_str().and_then(|text| text.parse().ok());
    let number = number.ok_or_else(|| invalid(step, "the argument is not a descriptor's number"))?;
    let mut file = File::from(bailey_sys::descriptors::inherit(number).or_invalid(step)?);
    file.seek(SeekFrom::Start(0)).or_invalid(step)?;
    let mut text = Vec::new();
    file.take(MAX_CONFIG).read_to_end(&mut text).or_invalid(step)?;
    let config: SupervisorConfig = serde_json::from_slice(&text).or_invalid(step)?;
    for path in [&config.data, &config.guest_binary] {
        if !path.is_absolute() {
            return Err(invalid(step, format!("`{}` is not absolute", path.display())));
        }
    }
    Ok(config)
}
