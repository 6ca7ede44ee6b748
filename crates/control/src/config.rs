//! What control is told once, at start.

use std::time::Duration;

use bailey_protocol::id::TemplateName;
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;

/// Everything that has a default.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// What runs get.
    pub runs: RunConfig,
    /// Largest file that can be written into a tree, in bytes.
    pub max_file_bytes: u64,
    /// How the HTTP front treats its clients.
    pub http: HttpConfig,
}

/// What runs get and how many there may be.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// What isolates a run that does not say.
    pub default_wall: WallKind,
    /// What a run starts from that does not say.
    pub default_template: TemplateName,
    /// What a run may use that does not say.
    pub default_limits: Limits,
    /// The most that a run may ask for.
    pub ceiling: Limits,
    /// Runs at once, on the whole server.
    pub per_server: usize,
    /// Runs at once, of one tenant.
    pub per_tenant: usize,
    /// Bytes that the event logs of runs that are over may hold together; beyond it the oldest go.
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
        Self { runs: RunConfig::new(default_template), max_file_bytes: 4 * GIB, http: HttpConfig::default() }
    }
}

const GIB: u64 = 1024 * 1024 * 1024;

impl RunConfig {
    fn new(default_template: TemplateName) -> Self {
        Self {
            default_wall: WallKind::Container,
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
            per_server: 256,
            per_tenant: 64,
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
