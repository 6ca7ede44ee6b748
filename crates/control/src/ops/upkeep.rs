//! What the server does for every store by itself: old versions and side branches go, packs are merged, garbage is removed.
//!
//! One store at a time, with a pause between two, so that upkeep never takes more than a part of one disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::id::{TenantId, VersionId};
use bailey_protocol::path::{BranchName, RepoId};
use bailey_protocol::quota::GcSummary;
use bailey_tree::{GcReport, Keep, Store, Thoroughness};
use tokio_util::sync::CancellationToken;

use super::purges;
use crate::api_error::ApiError;
use crate::control::Control;
use crate::threads::blocking;

/// Packs of a store in use beyond which they are merged without waiting for the next round.
const MANY_PACKS: usize = 200;
/// Rest between two stores.
const PAUSE: Duration = Duration::from_millis(20);
/// Versions that are written down as expired at once.
const BATCH: usize = 2000;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// A store in which nothing has changed is looked at again after this time, for what has grown old.
const STALE_MS: u64 = DAY_MS;

/// What upkeep remembers.
#[derive(Debug, Default)]
pub(crate) struct UpkeepState {
    seen: Mutex<HashMap<RepoId, Seen>>,
    /// Held while a quota is set.
    pub(super) quotas: tokio::sync::Mutex<()>,
    totals: Totals,
}

/// A store when it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    heads: Vec<(BranchName, VersionId)>,
    packs: usize,
    at_ms: u64,
}

/// What was done since the start.
#[derive(Debug, Default)]
struct Totals {
    cycles: AtomicU64,
    failures: AtomicU64,
    removed: AtomicU64,
    freed_bytes: AtomicU64,
    expired: AtomicU64,
}

/// What upkeep has done since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpkeepTotals {
    /// Cycles of garbage collection.
    pub cycles: u64,
    /// Cycles that failed: the log says why.
    pub failures: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// Bytes that became free.
    pub freed_bytes: u64,
    /// Versions that went beyond what is kept.
    pub expired: u64,
}

impl Control {
    /// What upkeep has done since the server started.
    #[must_use]
    pub fn upkeep_totals(&self) -> UpkeepTotals {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Totals { cycles, failures, removed, freed_bytes, expired } = &self.upkeep().totals;
        UpkeepTotals {
            cycles: read(cycles),
            failures: read(failures),
            removed: read(removed),
            freed_bytes: read(freed_bytes),
            expired: read(expired),
        }
    }
}

/// Takes over what an earlier life of the server left: what tenants may keep, and purges that were not done.
///
/// # Errors
/// When the database cannot be read, or a purged version cannot be refused.
pub(crate) async fn begin(control: &Control) -> Result<(), ApiError> {
    control.trees().set_usual_quota(control.config().storage.quota);
    for (tenant, quota) in control.db().quotas().await? {
        control.trees().set_quota(&tenant, Some(quota));
    }
    purges::take_up(control).await
}

/// Looks after the stores until it is told to stop.
pub(crate) async fn keep(control: Control, stop: CancellationToken) {
    let config = control.config().storage;
    if let Err(error) = clear(&control, &stop).await {
        tracing::warn!(%error, cause = error.cause_chain(), "what an earlier life left in the stores goes with their first use");
    }
    let mut next_round = tokio::time::Instant::now() + config.tick;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(config.tick) => {}
        }
        let whole = tokio::time::Instant::now() >= next_round;
        if whole {
            next_round = tokio::time::Instant::now() + config.round;
        }
        if let Err(error) = look(&control, whole, &stop).await {
            tracing::warn!(%error, cause = error.cause_chain(), "upkeep could not look after the stores");
        }
    }
}

/// Takes away what an earlier life left unfinished in the stores: whoever opens one does, and nobody may for long.
async fn clear(control: &Control, stop: &CancellationToken) -> Result<(), ApiError> {
    let (trees, stop) = (control.trees().clone(), stop.clone());
    blocking(control.threads(), move || {
        for repo in trees.all()?.into_iter().take_while(|_| !stop.is_cancelled()) {
            if let Err(error) = trees.store_even_shut(&repo) {
                let error = ApiError::from(error);
                tracing::warn!(tenant = %repo.tenant, %error, cause = error.cause_chain(), "a store cannot be opened");
            }
        }
        Ok(())
    })
    .await
}

async fn look(control: &Control, whole: bool, stop: &CancellationToken) -> Result<(), ApiError> {
    // What fails for one store, or for the database, keeps no other store from being looked after.
    let failures = purges::remove_pending(control).await.unwrap_or_else(|error| {
        tracing::error!(%error, cause = error.cause_chain(), "purges could not go on");
        1
    });
    control.upkeep().totals.failures.fetch_add(failures, Ordering::Relaxed);
    let trees = control.trees().clone();
    let stores = if whole {
        blocking(control.threads(), move || Ok(trees.all()?)).await?
    } else {
        control.trees().in_use(MANY_PACKS)
    };
    for repo in stores {
        if stop.is_cancelled() {
            return Ok(());
        }
        let (owner, id) = (control.clone(), repo.clone());
        let done =
            blocking(control.threads(), move || if whole { round(&owner, &id) } else { merge(&owner, &id) }).await;
        if let Err(error) = done {
            control.upkeep().totals.failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(tenant = %repo.tenant, %error, cause = error.cause_chain(), "a store could not be looked after");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn merge(control: &Control, repo: &RepoId) -> Result<(), ApiError> {
    collect(control, repo, Thoroughness::Merge).map(drop)
}

/// All of it for one store, unless nothing has changed since the last time.
fn round(control: &Control, repo: &RepoId) -> Result<(), ApiError> {
    let now = look_at(control, repo)?;
    let before = lock(&control.upkeep().seen).get(repo).cloned();
    let same = before.is_some_and(|seen| {
        (&seen.heads, seen.packs) == (&now.heads, now.packs) && now.at_ms.saturating_sub(seen.at_ms) < STALE_MS
    });
    if same {
        return Ok(());
    }
    retire(control, repo)?;
    let report = collect(control, repo, Thoroughness::Usual)?;
    if report.condemned == 0 && !report.held {
        let now = look_at(control, repo)?;
        lock(&control.upkeep().seen).insert(repo.clone(), now);
    }
    Ok(())
}

fn look_at(control: &Control, repo: &RepoId) -> Result<Seen, ApiError> {
    let heads = branches(control, repo)?;
    let store = control.trees().store(repo)?;
    Ok(Seen { heads, packs: store.packs(), at_ms: control.now_ms() })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One cycle over every store of a tenant, all garbage included. Blocks.
pub(super) fn collect_tenant(control: &Control, tenant: &TenantId) -> Result<GcSummary, ApiError> {
    let mut summary = GcSummary::default();
    for repo in control.trees().all()?.into_iter().filter(|repo| repo.tenant == *tenant) {
        summary.expired += retire(control, &repo)?;
        let report = collect(control, &repo, Thoroughness::Thorough)?;
        summary.stores += 1;
        summary.live += report.live;
        summary.condemned += report.condemned;
        summary.removed += report.removed;
        summary.freed_bytes += report.freed_bytes;
        summary.held += u64::from(report.held);
    }
    Ok(summary)
}

/// One cycle over one store. Blocks.
pub(super) fn collect(control: &Control, repo: &RepoId, how: Thoroughness) -> Result<GcReport, ApiError> {
    let heads = || Ok::<_, ApiError>(branches(control, repo)?.into_iter().map(|(_, head)| head).collect());
    let report = control.trees().store(repo)?.collect_garbage(heads, how)?;
    let totals = &control.upkeep().totals;
    totals.cycles.fetch_add(1, Ordering::Relaxed);
    totals.removed.fetch_add(report.removed, Ordering::Relaxed);
    totals.freed_bytes.fetch_add(report.freed_bytes, Ordering::Relaxed);
    if report.removed > 0 || report.condemned > 0 {
        let GcReport { live, condemned, removed, freed_bytes, packs, held } = report;
        tracing::info!(tenant = %repo.tenant, live, condemned, removed, freed_bytes, packs, held, "garbage collected");
    }
    Ok(report)
}

/// Lets side branches and versions go that are older than their tenant keeps; says how many versions.
fn retire(control: &Control, repo: &RepoId) -> Result<u64, ApiError> {
    let quota = control.trees().quota(&repo.tenant);
    let now = control.now_ms();
    let store = control.trees().store(repo)?;
    let oldest = now.saturating_sub(quota.side_branch_days.saturating_mul(DAY_MS));
    drop_side_branches(control, &store, oldest)?;
    let since_ms = match quota.version_days {
        0 => 0,
        days => now.saturating_sub(days.saturating_mul(DAY_MS)),
    };
    let heads: Vec<VersionId> = branches(control, repo)?.into_iter().map(|(_, head)| head).collect();
    let Some(cut) = store.plan_cut(&heads, Keep { versions: quota.versions, since_ms })? else {
        return Ok(0);
    };
    bailey_crash::point(Point::VersionsCounted);
    for batch in cut.expired.chunks(BATCH) {
        control.wait(control.db().expire_versions(repo, batch.to_vec()))?;
    }
    bailey_crash::point(Point::VersionsRefused);
    store.cut(&cut)?;
    bailey_crash::point(Point::VersionsCut);
    let expired = cut.expired.len() as u64;
    control.upkeep().totals.expired.fetch_add(expired, Ordering::Relaxed);
    tracing::info!(tenant = %repo.tenant, expired, "versions beyond what is kept are let go");
    Ok(expired)
}

fn drop_side_branches(control: &Control, store: &Store, oldest_ms: u64) -> Result<(), ApiError> {
    let lock = control.locks().of(store.id());
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let mut gone = 0_u64;
    for (branch, head) in branches(control, store.id())? {
        if !branch.as_str().starts_with("runs/") {
            continue;
        }
        let (newest, _) = store.history(&head, "", 1, None)?;
        if newest.first().is_some_and(|version| version.time_ms < oldest_ms)
            && control.wait(control.db().drop_side_branch(store.id(), &branch, &head))?
        {
            gone += 1;
        }
    }
    if gone > 0 {
        store.publish_refs(&branches(control, store.id())?)?;
        tracing::info!(tenant = %store.id().tenant, gone, "side branches of runs are let go");
    }
    Ok(())
}

/// Every branch of a store. Blocks.
pub(super) fn branches(control: &Control, repo: &RepoId) -> Result<Vec<(BranchName, VersionId)>, ApiError> {
    Ok(control.wait(control.db().branches_of(repo))?)
}
