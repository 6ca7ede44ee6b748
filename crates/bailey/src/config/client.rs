//! Which server, and the token for it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{ConfigError, environment};
use crate::cli::Common;

/// The flag that names the server.
pub(crate) const SERVER_FLAG: &str = "--server";
/// The flag that is the token.
pub(crate) const TOKEN_FLAG: &str = "--token";
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
    /// The flag, the variable or the file that named the token.
    pub(crate) token_from: String,
}

impl ClientConfig {
    /// Flags win over the environment, and that over the file, which is not read where nothing is left to it.
    pub(crate) fn read(flags: &Common) -> Result<Self, ConfigError> {
        let path = file_path()?;
        let server = named(&flags.server, SERVER_FLAG, "BAILEY_URL")?;
        let token = named(&flags.token, TOKEN_FLAG, "BAILEY_TOKEN")?;
        let file = if server.is_some() && token.is_some() { File::default() } else { read_file(&path)? };
        let of_file = |value: Option<String>| value.map(|value| (value, format!("`{}`", path.display())));
        let (server, server_from) = server
            .or_else(|| of_file(file.server))
            .unwrap_or_else(|| (DEFAULT_SERVER.to_owned(), "the default".to_owned()));
        let is_url = reqwest::Url::parse(&server).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_url {
            return Err(ConfigError::Server { given: server, from: server_from });
        }
        let (token, token_from) = token.or_else(|| of_file(file.token)).ok_or(ConfigError::NoToken { path })?;
        let token = token.trim().to_owned();
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::Token { from: token_from });
        }
        Ok(Self { server: server.trim_end_matches('/').to_owned(), token, token_from })
    }
}

/// A value of a flag or of the environment, and which.
fn named(flag: &Option<String>, option: &str, variable: &'static str) -> Result<Option<(String, String)>, ConfigError> {
    Ok(match flag {
        Some(value) => Some((value.clone(), option.to_owned())),
        None => environment(variable)?.map(|value| (value, variable.to_owned())),
    })
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
