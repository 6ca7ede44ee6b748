//! What the jail is told at its start.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use bailey_protocol::jail::{JailFault, SupervisorConfig};

use crate::fault::{OrFault, invalid};

/// Largest configuration.
const MAX_CONFIG: u64 = 4 * 1024 * 1024;

/// Everything that the jail is told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) config: SupervisorConfig,
    /// Treat this kernel like one before 6.13, see `cage::layers`.
    pub(crate) layers_by_path: bool,
}

/// Reads the configuration from the descriptor that the first argument numbers.
///
/// # Errors
/// When it is not there or not whole.
pub(crate) fn read(arguments: &[OsString]) -> Result<Told, JailFault> {
    let step = "read the configuration";
    let (number, layers_by_path) = match arguments {
        [number] => (number, false),
        [number, flag] if flag == "--layers-by-path" => (number, true),
        #[cfg(debug_assertions)]
        [number, flag, name] if flag == "--have-fail" => {
            crate::fault::have_fail(name.to_string_lossy().into_owned());
            (number, false)
        }
        _ => return Err(invalid(step, "usage: bailey-jail FD (started by `bailey serve` and `bailey doctor`)")),
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
    Ok(Told { config, layers_by_path })
}
