//! What the node's machines are made with.

use std::io;
use std::num::TryFromIntError;
use std::sync::Arc;

use bailey_control::clock::{Clock, Rng};
use bailey_node::wall::gvisor::GvisorConfig;
use bailey_node::wall::streamed::{Origin, Origins};
use bailey_protocol::id::TemplateDigest;

use crate::config::GvisorServed;

/// Origins by this host's clock and its kernel's generator.
pub(crate) fn origins(clock: &Clock, rng: &Rng) -> Origins {
    let (clock, rng) = (clock.clone(), rng.clone());
    Arc::new(move || {
        let random = rng.bytes().map_err(io::Error::other)?;
        Ok(Origin { now_ns: clock.now_ms().saturating_mul(1_000_000), random })
    })
}

/// gVisor for the one template.
pub(crate) fn gvisor(template: &TemplateDigest, served: &GvisorServed) -> Result<GvisorConfig, TryFromIntError> {
    Ok(GvisorConfig {
        images: [(template.clone(), served.image.clone())].into(),
        version: served.version.clone(),
        parked: usize::try_from(served.parked)?,
    })
}
