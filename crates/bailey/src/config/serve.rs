//! What `bailey serve` is told, and what it hands on to the server that bailey-jail starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailey_control::auth::IssuerConfig;
use bailey_control::config::RunConfig;
use bailey_protocol::id::TemplateDigest;
use bailey_protocol::limits::LargeDisks;
use bailey_protocol::quota::TenantQuota;
use serde::{Deserialize, Serialize};

use super::identity::{IdentityFile, ServerIdentity};
use super::storage::{self, QuotaFile, RetentionFile};
use super::walls::{self, Gvisor, GvisorServed, MAX_PARKED, Microvm, MicrovmServed, WallsFile};
use super::{ConfigError, cache, data};
use crate::cli::ServeArgs;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8470);

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
    /// MiB of memory for tenants' own policies that are kept at hand.
    policy_cache_mib: Option<u32>,
    /// Sandboxes that wait to be claimed.
    parked: Option<u32>,
    /// Walls beside the cages; none unless it is named here.
    walls: WallsFile,
    /// Seconds that runs have to end in when the server is told to stop.
    drain_seconds: Option<u32>,
    /// `error`, `warn`, `info` or `debug`.
    log: Option<LogLevel>,
    /// How many runs there may be at once.
    limits: RunLimits,
    /// Room on the host's disk for runs that write more than their memory holds; none unless it is set aside here.
    large_disks: Option<LargeDisks>,
    /// How much a tenant may keep that has no quota of its own.
    quota: QuotaFile,
    /// How long.
    retention: RetentionFile,
    /// How long rights last.
    identity: IdentityFile,
    /// Issuers that are trusted beside the embedded one.
    issuers: Vec<IssuerConfig>,
}

/// How many runs there may be; what is not said has control's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunLimits {
    pub(crate) runs: Option<u32>,
    pub(crate) runs_per_tenant: Option<u32>,
    pub(crate) launches_per_minute: Option<u32>,
    pub(crate) queued_per_tenant: Option<u32>,
    pub(crate) queued_seconds: Option<u32>,
    pub(crate) streams_per_tenant: Option<u32>,
    pub(crate) large_disks_per_tenant: Option<u32>,
}

impl RunLimits {
    /// Sets what is said.
    pub(crate) fn apply(&self, to: &mut RunConfig) -> Result<(), std::num::TryFromIntError> {
        let Self {
            runs,
            runs_per_tenant,
            launches_per_minute,
            queued_per_tenant,
            queued_seconds,
            streams_per_tenant,
            large_disks_per_tenant,
        } = *self;
        to.per_server = runs.map_or(Ok(to.per_server), usize::try_from)?;
        to.per_tenant = runs_per_tenant.map_or(Ok(to.per_tenant), usize::try_from)?;
        to.launches_per_minute = launches_per_minute.or(to.launches_per_minute);
        to.streams_per_tenant = streams_per_tenant.map_or(Ok(to.streams_per_tenant), usize::try_from)?;
        to.queued_per_tenant = queued_per_tenant.map_or(Ok(to.queued_per_tenant), usize::try_from)?;
        to.large_disks_per_tenant = large_disks_per_tenant.map(usize::try_from).transpose()?;
        to.queued_for = queued_seconds.map_or(to.queued_for, |seconds| Duration::from_secs(seconds.into()));
        Ok(())
    }
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
    pub(crate) policy_folder: Option<PathBuf>,
    pub(crate) policy_cache_mib: u32,
    pub(crate) parked: u32,
    pub(crate) gvisor: Option<Gvisor>,
    pub(crate) microvm: Option<Microvm>,
    pub(crate) log: LogLevel,
    pub(crate) limits: RunLimits,
    pub(crate) large_disks: Option<LargeDisks>,
    pub(crate) quota: TenantQuota,
    pub(crate) identity: ServerIdentity,
}

/// What the supervised server is told: its part of the above, and what was found out on the way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerConfig {
    pub(crate) template: TemplateDigest,
    pub(crate) policies: Vec<(String, String)>,
    /// Whether the folder that they come from is in the server's root.
    pub(crate) follow_policies: bool,
    pub(crate) policy_cache_mib: u32,
    pub(crate) parked: u32,
    pub(crate) gvisor: Option<GvisorServed>,
    pub(crate) microvm: Option<MicrovmServed>,
    pub(crate) drain_ms: u64,
    pub(crate) log: LogLevel,
    pub(crate) limits: RunLimits,
    pub(crate) large_disks: Option<LargeDisks>,
    pub(crate) quota: TenantQuota,
    pub(crate) identity: ServerIdentity,
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
        let RunLimits {
            runs,
            runs_per_tenant,
            launches_per_minute,
            queued_per_tenant,
            queued_seconds,
            streams_per_tenant,
            large_disks_per_tenant,
        } = file.limits;
        let at_least_one = [
            ("limits.runs", runs),
            ("limits.runs_per_tenant", runs_per_tenant),
            ("limits.launches_per_minute", launches_per_minute),
            ("limits.streams_per_tenant", streams_per_tenant),
            ("limits.large_disks_per_tenant", large_disks_per_tenant),
        ];
        for (key, given) in at_least_one {
            range(key, given.unwrap_or(1), 1, 100_000, "use 1 to 100000")?;
        }
        range("limits.queued_per_tenant", queued_per_tenant.unwrap_or(0), 0, 100_000, "use 0 to 100000")?;
        range("limits.queued_seconds", queued_seconds.unwrap_or(0), 0, 600, "use 0 to 600")?;
        if let Some(disks) = &file.large_disks {
            disks.check().map_err(|source| ConfigError::LargeDisks { path: path.clone(), source })?;
        }
        let cache_mib = file.policy_cache_mib.unwrap_or(512);
        let (gvisor, microvm) = walls::read(&path, file.walls)?;
        Ok(Self {
            policy_cache_mib: range("policy_cache_mib", cache_mib, 1, 65_536, "use 1 to 65536")?,
            listen: args.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN),
            data: data(args.data.or(file.data))?,
            cache: cache(args.cache.or(file.cache))?,
            drain: Duration::from_secs(drain.into()),
            policies: file.policies.as_deref().map(super::policies::read).transpose()?.unwrap_or_default(),
            policy_folder: file.policies.map(super::absolute).transpose()?,
            parked: range("parked", file.parked.unwrap_or(4), 0, MAX_PARKED, "use 0 to 1000")?,
            gvisor,
            microvm,
            log: file.log.unwrap_or_default(),
            limits: file.limits,
            large_disks: file.large_disks,
            quota: storage::read(&path, file.quota, file.retention)?,
            identity: ServerIdentity::read(&path, file.identity, file.issuers)?,
        })
    }
}

fn read_file(path: &Path) -> Result<File, ConfigError> {
    let text = read(path)?;
    toml::from_str(&text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
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
        assert_eq!((config.listen.port(), config.parked, config.limits.runs), (1, 0, Some(3)));
        let config = parse(
            "[[issuers]]\nissuer = 'https://id.example.com'\naudiences = ['x']\n[issuers.claims]\ntenant_claim = 'a.b'\ntenants = ['*']\n\
             [[issuers.services]]\nclaim = 'client_id'\nvalue = 'v'\nname = 'n'\ntenants = ['acme']\n\
             [identity]\nmax_run_age_past_expiry = 60",
        );
        assert_eq!(config.unwrap().identity.issuers.len(), 1);
        assert_eq!(parse("").unwrap().quota, TenantQuota::default());
        let config = parse(
            "[quota]\nbytes = 1\nfiles = 2\nfile_bytes = 3\n\
             [retention]\nversions = 4\nversion_days = 5\nside_branch_days = 6",
        );
        let quota =
            TenantQuota { bytes: 1, files: 2, file_bytes: 3, versions: 4, version_days: 5, side_branch_days: 6 };
        assert_eq!(config.unwrap().quota, quota);
        let config = parse("[retention]\nversion_days = 90");
        assert_eq!(config.unwrap().quota, TenantQuota { version_days: 90, ..TenantQuota::default() });
        let config = parse("[large_disks]\ncount = 2\nbytes = 1073741824\ninodes = 262144").unwrap();
        assert_eq!(config.large_disks, Some(LargeDisks { count: 2, bytes: 1 << 30, inodes: 1 << 18 }));
        assert!(parse("").unwrap().gvisor.is_none());
        let gvisor = parse("[walls.gvisor]\nparked = 3\nrunsc = '/opt/runsc'").unwrap().gvisor.unwrap();
        assert_eq!((gvisor.parked, gvisor.runsc.as_deref()), (3, Some(Path::new("/opt/runsc"))));
        assert_eq!(parse("[walls.gvisor]").unwrap().gvisor.unwrap().parked, 2);
        assert!(parse("").unwrap().microvm.is_none());
        let microvm = parse("[walls.microvm]\nparked = 1\nmemory_bytes = 536870912").unwrap().microvm.unwrap();
        assert_eq!((microvm.parked, microvm.memory_bytes), (1, 512 << 20));
        for bad in [
            "[large_disks]\ncount = 2",
            "[large_disks]\ncount = 0\nbytes = 1073741824\ninodes = 262144",
            "[large_disks]\ncount = 2\nbytes = 1073741824\ninodes = 262145",
            "Parked = 1",
            "[walls.gvisor]\nparked = 1001",
            "[walls.gvisor]\nrunsc = 'runsc'",
            "[walls.microvm]\nmemory_bytes = 1",
            "[walls.microvm]\nmemory_bytes = 536870913",
            "[walls.microvm]\nparked = 1001",
            "[walls.gvizor]",
            "[walls]\ngvisor = true",
            "parked = -1",
            "parked = 1001",
            "listen = 'x'",
            "log = 'loud'",
            "[limits]\nrun = 1",
            "x",
            "drain_seconds = 9999",
            "[quota]\nbytes = 0",
            "[quota]\nfile_bytes = 17179869185",
            "[quota]\nversions = 4",
            "[retention]\nversions = 0",
            "[retention]\nside_branch_days = 0",
            "[retention]\nversion_days = 36501",
            "[identity]\nmax_run_age = 1",
            "[identity]\nexchanged_token_seconds = 1",
            "[identity]\nwebhook_secret = '/nowhere'",
            "[[issuers]]\nissuer = 'http://id.example.com'\naudiences = ['x']\nclaims = { tenant = 'acme' }",
            "[[issuers]]\nissuer = 'https://id.example.com'\naudiences = ['x']\nclaims = { tenants = ['*'] }",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
