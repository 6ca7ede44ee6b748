//! Everything that comes from outside the command line: files and the environment, read once, unknown keys refused.

mod client;
mod identity;
pub(crate) mod policies;
mod serve;
mod storage;
mod walls;

use std::path::PathBuf;

pub(crate) use self::serve::{ServeConfig, ServerConfig};
pub(crate) use self::walls::{GvisorServed, MicrovmServed};
pub(crate) use client::{ClientConfig, SERVER_FLAG, TOKEN_FLAG};

const DEFAULT_DATA: &str = "/var/lib/bailey";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{path}` is not a valid configuration: {source}")]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    #[error("`{path}` holds a secret and can be read by others: run `chmod 600 {path}`")]
    Exposed { path: PathBuf },
    #[error("`{key}` in `{path}` is {given}: {rule}")]
    Value { path: PathBuf, key: &'static str, given: String, rule: &'static str },
    #[error("`large_disks` in `{path}`: {source}")]
    LargeDisks { path: PathBuf, source: bailey_protocol::limits::LimitsError },
    #[error("in `{path}`: {source}")]
    Issuer { path: PathBuf, source: bailey_control::auth::IssuerConfigError },
    #[error(transparent)]
    Policies(#[from] policies::PolicyFolderError),
    #[error("`{name}` in the environment is not UTF-8")]
    Environment { name: &'static str },
    #[error("`{given}`, from {from}, is no server: use one such as `http://127.0.0.1:8470`")]
    Server { given: String, from: String },
    #[error(
        "the token from {from} has a character in it that is in no token: look whether it is whole, and on one line"
    )]
    Token { from: String },
    #[error(
        "there is no token: `bailey token` on the server's machine prints one; name it with --token, BAILEY_TOKEN, or `token` in `{path}`"
    )]
    NoToken { path: PathBuf },
}

/// The template cache: the flag, else `BAILEY_CACHE`, else the host's.
pub(crate) fn cache(flag: Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    let named = match flag {
        Some(path) => Some(path),
        None => environment("BAILEY_CACHE")?.map(PathBuf::from),
    };
    absolute(named.unwrap_or_else(|| PathBuf::from(crate::template::DEFAULT_CACHE)))
}

/// The kernel of machines: what `BAILEY_GUEST_KERNEL` says, `IMAGE` or `IMAGE:FOLDER` with the folder of its modules.
pub(crate) fn guest_kernel() -> Result<Option<String>, ConfigError> {
    environment("BAILEY_GUEST_KERNEL")
}

/// The data folder: what was named, else the host's.
pub(crate) fn data(named: Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    absolute(named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA)))
}

fn absolute(path: PathBuf) -> Result<PathBuf, ConfigError> {
    std::path::absolute(&path).map_err(|source| ConfigError::Read { path, source })
}

/// The solver that proves policies, where there is one.
pub(crate) fn prover() -> Option<bailey_policy::prove::Prover> {
    let search = std::env::var_os("PATH");
    bailey_policy::prove::Prover::find(std::env::var_os("CVC5"), search.as_deref())
}

/// Whether colour is unwanted even on a terminal (<https://no-color.org>).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn environment(name: &'static str) -> Result<Option<String>, ConfigError> {
    match std::env::var_os(name) {
        None => Ok(None),
        Some(value) if value.is_empty() => Ok(None),
        Some(value) => value.into_string().map(Some).map_err(|_bytes| ConfigError::Environment { name }),
    }
}
