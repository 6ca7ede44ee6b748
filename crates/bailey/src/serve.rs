//! `bailey serve`, in its two lives: as root it checks the host and becomes the jail; under the jail it is the server.

mod binaries;
pub(crate) mod handover;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod machines;
mod policies;
pub(crate) mod supervised;

pub(crate) use binaries::Binaries;

use crate::config::ConfigError;
use crate::template::TemplateError;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("this needs root: run it with sudo")]
    NotRoot,
    #[error("Linux {release} is too old: {least} or newer is needed")]
    Kernel { release: String, least: &'static str },
    #[error("`{path}` is missing beside `bailey`: `make build` puts it there ({source})")]
    Missing { path: String, source: std::io::Error },
    #[error(
        "`{name}` and `bailey` are not of one build: `{path}` has SHA-256 {actual}, `bailey` was built with {wanted}; run `make build`"
    )]
    Mismatch { name: &'static str, path: String, actual: String, wanted: &'static str },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("no machines on this host: its kernel does not say how fast the processor's counter is (/proc/cpuinfo)")]
    Processor,
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: std::io::Error },
}

impl ServeError {
    fn system(action: &'static str, source: impl Into<std::io::Error>) -> Self {
        Self::System { action, source: source.into() }
    }
}
