//! Answers that go on for long: so many at once of each tenant, of each kind. Whoever follows something holds room for it
//! until its answer is over.

use std::time::Duration;

use bailey_protocol::id::TenantId;

use crate::admission::{Admission, AdmissionLimits, Slot};
use crate::api_error::{ApiError, ErrorKind};
use crate::config::ControlConfig;

/// Streams of the audit, of one tenant and in all: each asks the database again and again.
const AUDITS: (usize, usize) = (16, 256);

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The audit, as it grows or to its end.
    Audit,
    /// The events of a run.
    Run,
}

/// Room for streams.
#[derive(Debug)]
pub(crate) struct Streams {
    audits: Admission,
    runs: Admission,
}

impl Streams {
    pub(crate) fn new(config: &ControlConfig) -> Self {
        let room = |per_tenant, per_server| {
            let (launches_per_minute, queue, patience) = (None, 0, Duration::ZERO);
            Admission::new(AdmissionLimits { per_server, per_tenant, launches_per_minute, queue, patience })
        };
        // Connections bound those of all tenants together.
        let runs = room(config.runs.streams_per_tenant, config.http.max_connections);
        Self { audits: room(AUDITS.0, AUDITS.1), runs }
    }

    /// Room for one more of `tenant`, given back on drop.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn enter(&self, stream: Stream, tenant: &TenantId) -> Result<Slot, ApiError> {
        let (room, code, message, hint) = match stream {
            Stream::Audit => (
                &self.audits,
                "too_many_follow",
                "as many follow the audit as may at once",
                "End another stream, or read page by page.",
            ),
            Stream::Run => (
                &self.runs,
                "too_many_streams",
                "as many follow runs as may at once",
                "End another stream; or ask for the run with `detach`, and read its events later.",
            ),
        };
        room.try_enter(tenant).map_err(|full| ApiError::new(ErrorKind::Exhausted, code, message, hint).because(full))
    }
}
