//! Which server, and the token for it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{ConfigError, environment};
use crate::cli::Common;

const DEFAULT_SERVER: &str = "http://127.0.0.1:8470";

/// `~/.config/bailey/config.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: Option<String>,
    token: Option<String>,
}

/// Where requests go and what they carry.
pub(crate) struct ClientConfig {
    pub(crate) server: String,
    pub(crate) token: String,
}

impl ClientConfig {
    /// Flags win over the environment, and that over the file.
    pub(crate) fn read(flags: &Common) -> Result<Self, ConfigError> {
        let path = file_path()?;
        let mut file = None;
        let mut of_file = |pick: fn(&File) -> Option<String>| -> Result<Option<String>, ConfigError> {
            if file.is_none() {
                file = Some(read_file(&path)?);
            }
            Ok(file.as_ref().and_then(pick))
        };
        let server = match flags.server.clone().or(environment("BAILEY_URL")?) {
            Some(server) => server,
            None => of_file(|file| file.server.clone())?.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        };
        let token = match flags.token.clone().or(environment("BAILEY_TOKEN")?) {
            Some(token) => Some(token),
            None => of_file(|file| file.token.clone())?,
        };
        let token = token.ok_or(ConfigError::NoToken { path })?;
        Ok(Self { server: server.trim_end_matches('/').to_owned(), token: token.trim().to_owned() })
    }
}

fn file_path() -> Result<PathBuf, ConfigError> {
    let base = match environment("XDG_CONFIG_HOME")? {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(environment("HOME")?.unwrap_or_else(|| "/root".to_owned())).join(".config"),
    };
    Ok(base.join("bailey").join("config.toml"))
}

fn read_file(path: &Path) -> Result<File, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => return Err(failed(error)),
    };
    let parsed = toml::from_str(&text);
    let file: File = parsed.map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
    let mode = std::fs::metadata(path).map_err(failed)?.mode();
    if file.token.is_some() && mode & 0o077 != 0 {
        return Err(ConfigError::Exposed { path: path.to_owned() });
    }
    Ok(file)
}
