//! What `bailey serve` is told, and what it hands on to the server that bailey-jail starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailey_protocol::id::TemplateDigest;
use serde::{Deserialize, Serialize};

use super::{ConfigError, cache, data};
use crate::cli::ServeArgs;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8470);
const MAX_PARKED: u32 = 1000;

/// The configuration file. Flags win over it; no key is needed on a single machine.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    /// Address to listen on.
    listen: Option<SocketAddr>,
    /// Data folder.
    data: Option<PathBuf>,
    /// Template cache.
    cache: Option<PathBuf>,
    /// Folder with the operator's own policies, `*.cedar`.
    policies: Option<PathBuf>,
    /// Sandboxes that wait to be claimed.
    parked: Option<u32>,
    /// Seconds that runs have to end in when the server is told to stop.
    drain_seconds: Option<u32>,
    /// `error`, `warn`, `info` or `debug`.
    log: Option<LogLevel>,
    /// How many runs there may be at once.
    limits: LimitsFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsFile {
    runs: Option<u32>,
    runs_per_tenant: Option<u32>,
}

/// How much the server's log says.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl LogLevel {
    /// As the log's own crate names it.
    pub(crate) fn tracing(self) -> tracing::Level {
        match self {
            Self::Error => tracing::Level::ERROR,
            Self::Warn => tracing::Level::WARN,
            Self::Info => tracing::Level::INFO,
            Self::Debug => tracing::Level::DEBUG,
        }
    }
}

/// What the root half of `bailey serve` works with.
#[derive(Debug)]
pub(crate) struct ServeConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) data: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) drain: Duration,
    pub(crate) policies: Vec<(String, String)>,
    pub(crate) parked: u32,
    pub(crate) log: LogLevel,
    pub(crate) runs: Option<u32>,
    pub(crate) runs_per_tenant: Option<u32>,
}

/// What the supervised server is told: its part of the above, and what was found out on the way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerConfig {
    pub(crate) template: TemplateDigest,
    pub(crate) policies: Vec<(String, String)>,
    pub(crate) parked: u32,
    pub(crate) drain_ms: u64,
    pub(crate) log: LogLevel,
    pub(crate) runs: Option<u32>,
    pub(crate) runs_per_tenant: Option<u32>,
    pub(crate) json: bool,
}

impl ServeConfig {
    /// Reads and checks the file, if one is named, and lets flags win.
    pub(crate) fn read(args: ServeArgs) -> Result<Self, ConfigError> {
        let path = args.config.unwrap_or_default();
        let file = if path.as_os_str().is_empty() { File::default() } else { read_file(&path)? };
        let range = |key, given: u32, least: u32, most: u32, rule| match given {
            fine if (least..=most).contains(&fine) => Ok(fine),
            _ => Err(ConfigError::Value { path: path.clone(), key, given: given.to_string(), rule }),
        };
        let drain = range("drain_seconds", file.drain_seconds.unwrap_or(20), 0, 3600, "use 0 to 3600")?;
        for (key, given) in [("limits.runs", file.limits.runs), ("limits.runs_per_tenant", file.limits.runs_per_tenant)]
        {
            range(key, given.unwrap_or(1), 1, 100_000, "use 1 to 100000")?;
        }
        Ok(Self {
            listen: args.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN),
            data: data(args.data.or(file.data))?,
            cache: cache(args.cache.or(file.cache))?,
            drain: Duration::from_secs(drain.into()),
            policies: file.policies.map_or_else(|| Ok(Vec::new()), |folder| read_policies(&folder))?,
            parked: range("parked", file.parked.unwrap_or(4), 0, MAX_PARKED, "use 0 to 1000")?,
            log: file.log.unwrap_or_default(),
            runs: file.limits.runs,
            runs_per_tenant: file.limits.runs_per_tenant,
        })
    }
}

fn read_file(path: &Path) -> Result<File, ConfigError> {
    let text = read(path)?;
    toml::from_str(&text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
}

/// Every `*.cedar` in the folder, by name.
fn read_policies(folder: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let failed = |source| ConfigError::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            paths.push(path);
        }
    }
    paths.sort();
    let pair = |path: PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        read(&path).map(|text| (name, text))
    };
    paths.into_iter().map(pair).collect()
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ServeConfig, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let (data, listen, cache) = (None, None, Some(PathBuf::from("/cache")));
        ServeConfig::read(ServeArgs { config: Some(path), data, listen, cache, supervised: false })
    }

    #[test]
    fn no_key_is_needed_and_no_unknown_one_is_ignored() {
        let config = parse("").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8470");
        assert_eq!(config.data, Path::new("/var/lib/bailey"));
        let config = parse("listen = '0.0.0.0:1'\nparked = 0\nlog = 'debug'\n[limits]\nruns = 3").unwrap();
        assert_eq!((config.listen.port(), config.parked, config.runs), (1, 0, Some(3)));
        for bad in [
            "Parked = 1",
            "parked = -1",
            "parked = 1001",
            "listen = 'x'",
            "log = 'loud'",
            "[limits]\nrun = 1",
            "x",
            "drain_seconds = 9999",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
