//! What control is told once, at start.

use std::time::Duration;

use bailey_protocol::id::TemplateName;
use bailey_protocol::limits::{LargeDisks, Limits};
use bailey_protocol::quota::TenantQuota;

use crate::admission::AdmissionLimits;
use crate::choosing::Host;

/// Everything that has a default.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// What runs get.
    pub runs: RunConfig,
    /// Largest file that can be written into a tree, in bytes.
    pub max_file_bytes: u64,
    /// Largest archive that can be put into a tree, packed or not, in bytes.
    pub max_archive_bytes: u64,
    /// How the HTTP front treats its clients.
    pub http: HttpConfig,
    /// How long rights last.
    pub identity: IdentityConfig,
    /// What git clients get.
    pub git: GitConfig,
    /// How the trees are kept.
    pub storage: StorageConfig,
    /// Requests that ask policy about many paths.
    pub checks: CheckConfig,
    /// Most memory that tenants' own policies take which are kept at hand, in bytes. A tenant with three small ones takes
    /// some 30 KiB; what is not at hand is read anew.
    pub policy_cache_bytes: usize,
}

/// How long rights last.
#[derive(Debug, Clone)]
pub struct IdentityConfig {
    /// How long a run may go on after the token that asked for it is expired.
    pub max_run_age_past_expiry: Duration,
    /// Longest life of a token that a service account gets for a user.
    pub max_exchanged: Duration,
    /// What identity providers sign their messages with; without it there is no such webhook.
    pub webhook: Option<WebhookSecret>,
}

/// A secret shared with an identity provider: at least 32 bytes. `Debug` does not show it.
#[derive(Clone)]
pub struct WebhookSecret(zeroize::Zeroizing<Vec<u8>>);

impl WebhookSecret {
    /// `None` where it is too short to be one.
    #[must_use]
    pub fn new(secret: Vec<u8>) -> Option<Self> {
        let secret = zeroize::Zeroizing::new(secret);
        (secret.len() >= 32).then_some(Self(secret))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret([redacted])")
    }
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            max_run_age_past_expiry: Duration::from_secs(3600),
            max_exchanged: Duration::from_secs(900),
            webhook: None,
        }
    }
}

/// What git clients get.
#[derive(Debug, Clone, Copy)]
pub struct GitConfig {
    /// Exchanges at once that need a sandbox, on the whole server.
    pub per_server: usize,
    /// The same, of one tenant.
    pub per_tenant: usize,
    /// Largest pack of one push, in bytes. The sandbox holds it in memory.
    pub max_push_bytes: u64,
    /// Bytes of all files of one push together.
    pub max_pushed_bytes: u64,
    /// Objects of one push.
    pub max_push_objects: u32,
    /// Memory of git, beside the pack of a push.
    pub memory_bytes: u64,
    /// Time of one exchange.
    pub timeout: Duration,
}

/// Requests that ask policy about many paths. Each holds a thread; those that upload or use git have limits of their own.
#[derive(Debug, Clone, Copy)]
pub struct CheckConfig {
    /// At once, on the whole server.
    pub per_server: usize,
    /// At once, of one tenant; of one user half as many.
    pub per_tenant: usize,
    /// How long one more waits before it is refused.
    pub patience: Duration,
}

/// How the trees are kept.
#[derive(Debug, Clone, Copy)]
pub struct StorageConfig {
    /// What a tenant may keep for which nothing else is set.
    pub quota: TenantQuota,
    /// Time between two looks at the stores in use, for those with many packs.
    pub tick: Duration,
    /// Time between two looks at every store, for what is too old and for garbage.
    pub round: Duration,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self { quota: TenantQuota::default(), tick: Duration::from_secs(5), round: Duration::from_secs(600) }
    }
}

/// What runs get and how many there may be.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// What walls are chosen from.
    pub host: Host,
    /// What a run starts from that does not say.
    pub default_template: TemplateName,
    /// What a run may use that does not say.
    pub default_limits: Limits,
    /// The most that a run may ask for.
    pub ceiling: Limits,
    /// Disks that do not fit in memory, if the server has any.
    pub large_disks: Option<LargeDisks>,
    /// How many of them one tenant may have at once; `None` for half of them.
    pub large_disks_per_tenant: Option<usize>,
    /// Runs at once, on the whole server.
    pub per_server: usize,
    /// Runs at once, of one tenant.
    pub per_tenant: usize,
    /// Runs that one tenant launches in any minute; `None` for as many as there is room for.
    pub launches_per_minute: Option<u32>,
    /// Runs of one tenant that wait when the server is full.
    pub queued_per_tenant: usize,
    /// For how long they wait.
    pub queued_for: Duration,
    /// Answers with a run's events that one tenant may read at once.
    pub streams_per_tenant: usize,
    /// Bytes that the event logs of runs that are over may hold together; beyond it those go of the tenants that hold most, the oldest first.
    pub log_bytes: u64,
}

/// How the HTTP front treats its clients.
#[derive(Debug, Clone, Copy)]
pub struct HttpConfig {
    /// Connections at once.
    pub max_connections: usize,
    /// Time for a whole request head, idle time of a kept-alive connection included.
    pub header_timeout: Duration,
    /// Time for a whole JSON body, and between two pieces of a file's.
    pub body_timeout: Duration,
    /// Time for which a client may leave everything unread.
    pub write_timeout: Duration,
    /// Time between two comments on a quiet server-sent event stream.
    pub keep_alive: Duration,
}

impl ControlConfig {
    /// Sane values around the template that runs start from.
    #[must_use]
    pub fn new(default_template: TemplateName) -> Self {
        Self {
            runs: RunConfig::new(default_template),
            max_file_bytes: 16 * GIB,
            max_archive_bytes: 16 * GIB,
            http: HttpConfig::default(),
            identity: IdentityConfig::default(),
            git: GitConfig::default(),
            checks: CheckConfig::default(),
            storage: StorageConfig::default(),
            policy_cache_bytes: 512 * 1024 * 1024,
        }
    }
}

impl RunConfig {
    pub(crate) fn admission(&self) -> AdmissionLimits {
        AdmissionLimits {
            per_server: self.per_server,
            per_tenant: self.per_tenant,
            launches_per_minute: self.launches_per_minute,
            queue: self.queued_per_tenant,
            patience: self.queued_for,
        }
    }

    /// Has no run be granted more than its host has: `cpu_millis` in thousandths of a core, `memory_bytes` of all memory.
    pub fn fit_host(&mut self, cpu_millis: u64, memory_bytes: u64) {
        (self.host.cpu_millis, self.host.memory_bytes) = (cpu_millis, memory_bytes);
        let cpu = u32::try_from(cpu_millis).unwrap_or(u32::MAX);
        self.ceiling.cpu_millis = self.ceiling.cpu_millis.min(cpu);
        self.ceiling.memory_bytes = self.ceiling.memory_bytes.min(memory_bytes);
        self.default_limits.cpu_millis = self.default_limits.cpu_millis.min(cpu);
        self.default_limits.memory_bytes = self.default_limits.memory_bytes.min(memory_bytes);
    }

    /// Tenants take turns at large disks as they do at runs.
    pub(crate) fn disk_admission(&self) -> AdmissionLimits {
        let count = self.large_disks.map_or(0, |large| usize::try_from(large.count).unwrap_or(usize::MAX));
        AdmissionLimits {
            per_server: count,
            per_tenant: self.large_disks_per_tenant.unwrap_or(count.div_ceil(2)),
            launches_per_minute: None,
            ..self.admission()
        }
    }
}

impl GitConfig {
    /// Nobody waits: git's clients say at once that the server is busy.
    pub(crate) fn admission(&self) -> AdmissionLimits {
        let Self { per_server, per_tenant, .. } = *self;
        let (launches_per_minute, queue, patience) = (None, 0, Duration::ZERO);
        AdmissionLimits { per_server, per_tenant, launches_per_minute, queue, patience }
    }
}

impl Default for CheckConfig {
    fn default() -> Self {
        Self { per_server: 192, per_tenant: 6, patience: Duration::from_secs(10) }
    }
}

impl Default for GitConfig {
    fn default() -> Self {
        Self {
            per_server: 32,
            per_tenant: 8,
            max_push_bytes: GIB,
            max_pushed_bytes: 8 * GIB,
            max_push_objects: 2_000_000,
            memory_bytes: GIB,
            timeout: Duration::from_secs(30 * 60),
        }
    }
}

const GIB: u64 = 1024 * 1024 * 1024;

impl RunConfig {
    fn new(default_template: TemplateName) -> Self {
        Self {
            host: Host::with_cages(),
            default_template,
            default_limits: Limits::default(),
            ceiling: Limits {
                cpu_millis: 64_000,
                memory_bytes: 16 * GIB,
                pids: 4096,
                disk_bytes: 8 * GIB,
                disk_inodes: 1024 * 1024,
                open_files: 65_536,
                timeout_ms: 60 * 60 * 1000,
                output_bytes: 64 * 1024 * 1024,
            },
            large_disks: None,
            large_disks_per_tenant: None,
            per_server: 256,
            per_tenant: 64,
            launches_per_minute: None,
            queued_per_tenant: 16,
            queued_for: Duration::from_secs(10),
            streams_per_tenant: 256,
            log_bytes: 2 * GIB,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
        }
    }
}
