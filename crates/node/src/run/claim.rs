//! From a spec to a sandbox with its slices in place.

use std::sync::Arc;
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::limits::{MAX_ARGS, MAX_ARGS_BYTES, MAX_FILES, MAX_FILES_BYTES, MAX_MOUNTS, MAX_STDIN_BYTES};
use bailey_protocol::node::{NodeFault, RunSpec};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::fault;
use crate::machine::Machine;
use crate::node::Host;
use crate::pool::Pool;
use crate::share;
use crate::wall::{ClaimMount, ClaimOrder};

/// A sandbox that belongs to a run.
pub(super) struct Claimed {
    pub(super) machine: Machine,
    /// Whether it was parked before.
    pub(super) parked: bool,
    /// When the claim began.
    pub(super) at: Instant,
    /// When its time is up.
    pub(super) deadline: Instant,
}

/// Claims a sandbox in a task of its own. CANCEL: the sandbox is destroyed as soon as the claim is through.
pub(super) async fn claim(host: Arc<Host>, spec: Arc<RunSpec>) -> Result<Box<Claimed>, NodeFault> {
    let pool = check(&host, &spec)?;
    let within = host.deadlines.claim;
    let claimed = async {
        // Waited for here: who has left waits for no disk.
        let large = host.large_disk(&spec.limits).await?;
        let (give, take) = oneshot::channel();
        let tasks = host.tasks.clone();
        tasks.spawn(async move {
            drop(give.send(claim_whole(&host, &spec, &pool, large).await));
        });
        take.await.unwrap_or_else(|_dropped| Err(fault::unavailable()))
    };
    timeout(within, claimed).await.unwrap_or_else(|_elapsed| Err(fault::exhausted()))
}

async fn claim_whole(
    host: &Host,
    spec: &RunSpec,
    pool: &Pool,
    large: Option<OwnedSemaphorePermit>,
) -> Result<Box<Claimed>, NodeFault> {
    let mut mounts = Vec::with_capacity(spec.mounts.len());
    let mut slices = Vec::with_capacity(spec.mounts.len());
    for mount in &spec.mounts {
        let slice = host.checkouts.get(&mount.repo, &mount.tree).await.map_err(|cause| fault::of_checkout(&cause))?;
        let lower = Arc::clone(slice.fd());
        mounts.push(ClaimMount { at: mount.at.clone(), writable: mount.writable, lower });
        slices.push(slice);
    }
    bailey_crash::point(Point::CheckedOut);
    let (mut machine, parked) = match if large.is_some() { None } else { pool.take() } {
        Some(machine) => (machine, true),
        None => {
            // Parked ones have their disk in memory.
            let limits = if large.is_some() { spec.limits } else { pool.recipe().limits };
            (pool.recipe().make_with(limits).await.map_err(|cause| fault::of_machine(&cause))?, false)
        }
    };
    machine.hold_mut().keep_large(large);
    debug!(run = %spec.run, sandbox = %machine.sandbox(), parked, "sandbox claimed");
    machine.hold_mut().keep(slices);
    bailey_crash::point(Point::SandboxTaken);
    let at = Instant::now();
    let deadline = at + Duration::from_millis(spec.limits.timeout_ms);
    let order = ClaimOrder { share: share::of(&spec.tenant), limits: spec.limits, mounts };
    let live = machine.live();
    let claiming = machine.hold().wall().claim(&live, order);
    let fences = claiming.await.map_err(|cause| fault::of_wall(&cause, "mount the slices"))?;
    machine.add_fences(fences);
    bailey_crash::point(Point::SandboxClaimed);
    Ok(Box::new(Claimed { machine, parked, at, deadline }))
}

/// Refuses what cannot be carried out here, before anything is spent on it.
fn check(host: &Host, spec: &RunSpec) -> Result<Arc<Pool>, NodeFault> {
    let template = host
        .templates
        .get(&spec.template)
        .ok_or_else(|| fault::invalid(format!("template `{}` does not exist here", spec.template)))?;
    let pool = host
        .pools
        .get(&(spec.wall, template.clone()))
        .ok_or_else(|| fault::invalid(format!("wall `{}` is not available here", spec.wall)))?;
    spec.limits.check(&host.ceiling, host.large_disks.as_ref()).map_err(|cause| fault::of_limits(&cause))?;
    let env_bytes: usize = spec.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let arg_bytes: usize = spec.command.iter().map(|arg| arg.len() + 1).sum();
    if spec.command.first().is_none_or(String::is_empty) {
        return Err(fault::invalid("the command is empty"));
    }
    if spec.command.len() > MAX_ARGS || arg_bytes + env_bytes > MAX_ARGS_BYTES {
        return Err(fault::invalid(format!("the command and its environment exceed {MAX_ARGS_BYTES} bytes")));
    }
    if spec.stdin.len() > MAX_STDIN_BYTES {
        return Err(fault::invalid(format!("standard input exceeds {MAX_STDIN_BYTES} bytes")));
    }
    let file_bytes: usize = spec.files.iter().map(|file| file.content.len()).sum();
    if spec.files.len() > MAX_FILES || file_bytes > MAX_FILES_BYTES {
        return Err(fault::invalid(format!("more than {MAX_FILES} files, or {MAX_FILES_BYTES} bytes of them")));
    }
    if spec.mounts.len() > MAX_MOUNTS {
        return Err(fault::invalid(format!("more than {MAX_MOUNTS} mounts")));
    }
    Ok(Arc::clone(pool))
}
