//! Taking a path out of all history, for good.
//!
//! ```text
//! rewrite ─▶ lock the store ─▶ what was added ─▶ move all branches, record ─▶ refuse the old versions ─▶ unlock ─▶ collect garbage
//! (others write)                                 (one short transaction)   │                            (again until it is done)
//!                                                 a crash before: nothing ─┴─ a crash after: taken up at the next start
//! ```
//!
//! What a purge covers: every version of every branch of the path's store, its packs, and the node's cached checkouts of
//! that store, save those that a run still has mounted: they go with the run. Of the database: labels at and below the
//! path, what the audit says about it, requests kept for dry runs that name it. What it does not is in docs/storage.md.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bailey_policy::{Action, Denied, PurgePermit, WriteAction};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId, TreePath};
use bailey_protocol::purge::{PurgeId, PurgeReceipt};
use bailey_tree::{Purge, Store, Thoroughness};
use sha2::{Digest as _, Sha256};

use super::{below, upkeep};
use crate::api_error::ApiError;
use crate::audit::STORE;
use crate::control::{Caller, Control};
use crate::db::{AuditEntry, Audited, DbError, NewPurge, PendingPurge};
use crate::policy_handle::Generation;
use crate::threads::blocking;

/// Times that a request tries to get the bytes off the disk before it leaves that to upkeep.
const TRIES: usize = 20;
/// Time between two of them: those at work with the old versions are done in a moment, as a rule.
const PAUSE: Duration = Duration::from_millis(50);
/// Most paths that policy is asked about for one purge. Where there are more, it is denied.
const MAX_JUDGED: usize = 20_000;
/// Looks at what the branches lead to before the store is locked for the last.
const ROUNDS: usize = 4;
/// Versions that are noted at once.
const BATCH: usize = 2_000;

/// Takes a path out of all history of its store.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, the path is a root, or no version has it.
pub async fn purge(control: &Control, caller: &Caller, path: TreePath) -> Result<PurgeReceipt, ApiError> {
    let facts = control.path_facts(caller, &path, None);
    let asked = control.judge(caller).await?.purge(&facts);
    let permit = Arc::new(control.permit(caller, asked).await?);
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let made = carry_out(&owner, &caller, &permit).await;
        let outcome = match &made {
            Ok((done, _)) => done.as_str(),
            Err(error) => error.code,
        };
        // INVARIANT: the audit keeps that something was purged and how that came out, never what.
        let entry = AuditEntry::allowed(permit.grant(), outcome, Some(&caller.request), owner.now_ms());
        owner.db().audit(entry.unnamed()).await?;
        let (id, salt) = made?;
        let receipt = owner.db().purge(&caller.principal, &id).await?;
        let receipt = receipt.ok_or_else(|| ApiError::internal("a purge without a record"))?;
        Ok(PurgeReceipt { salt: Some(salt), ..receipt })
    };
    control.own(task).await.map_err(ApiError::internal)?
}

/// The receipt of a purge of a store of the caller's.
///
/// # Errors
/// When there is no such purge of its tenant, or the caller may not purge in that store.
pub async fn receipt(control: &Control, caller: &Caller, id: &PurgeId) -> Result<PurgeReceipt, ApiError> {
    let receipt = control.db().purge(&caller.principal, id).await?.ok_or_else(ApiError::purge_not_found)?;
    let facts = control.path_facts(caller, &receipt.store, None);
    let asked = control.judge(caller).await?.purge(&facts);
    let permit = control.permit(caller, asked).await?;
    control.audited(caller, [permit.grant()], Ok(receipt)).await
}

async fn carry_out(
    control: &Control,
    caller: &Caller,
    permit: &Arc<PurgePermit>,
) -> Result<(PurgeId, String), ApiError> {
    let now = control.now_ms();
    let id = PurgeId::mint(now, control.random()?);
    // What was decided until now names the path: once it is written, the purge forgets it.
    control.write_decisions().await;
    let receipt = AuditEntry::allowed(permit.grant(), "", Some(&caller.request), now);
    // INVARIANT: it goes into the answer and nowhere else.
    let salt = hex(&control.salt()?);
    let (owner, asker, permit) = (control.clone(), caller.clone(), Arc::clone(permit));
    let (purge, salted) = (id.clone(), salt.clone());
    let work = move || rewrite(&owner, &asker, &permit, (purge, &salted), receipt);
    let pending = control.changes().make(&caller.principal.tenant, work).await?;
    control.forget_checkouts(&pending.repo);
    for _ in 0..TRIES {
        if remove(control, &pending).await? {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok((id, salt))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Everything up to where no version leads to the path any more. Blocks.
fn rewrite(
    control: &Control,
    caller: &Caller,
    permit: &PurgePermit,
    (id, salt): (PurgeId, &str),
    receipt: AuditEntry,
) -> Result<PendingPurge, ApiError> {
    let scope = permit.scope()?;
    let (path, repo) = (permit.path(), scope.repo());
    let one_at_a_time = control.purging().of(repo);
    let _turn = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
    let mut work = Rewriting::new(control, caller, permit, repo, id.clone())?;
    // While others write: what they add is looked at again, and the rest of it under the lock.
    for _ in 0..ROUNDS {
        if !work.look()? {
            break;
        }
    }
    // INVARIANT: nobody lands anything on a branch of this store between the look at the heads and the refusal.
    let lock = control.locks().of(repo);
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    work.look()?;
    control.still_stands(caller)?;
    let Rewriting { store, made, branches, staged, audited, .. } = work;
    let hash = |text: &str| hex(&Sha256::digest(format!("{salt}\n{text}")));
    let record = NewPurge {
        path_sha256: hash(path.as_str()),
        asked_by_sha256: hash(permit.user().as_str()),
        asked_ms: receipt.time_ms,
        moves: branches.into_iter().map(|(branch, head)| (branch, head.clone(), made.now(&head))).collect(),
        versions: staged.len(),
        audited,
        id: id.clone(),
        receipt,
    };
    let refs: Vec<(BranchName, _)> = record.moves.iter().map(|(branch, _, to)| (branch.clone(), to.clone())).collect();
    let turn = control.wait(control.meta_turn());
    control.wait(control.db().begin_purge(permit, record))?;
    store.seal_purge(made)?;
    // Not before nobody reads it any more: until then they hold.
    control.tree_meta().forget_labels(path);
    drop(turn);
    store.publish_refs(&refs)?;
    Ok(PendingPurge { id, repo: repo.clone(), versions: staged.into_iter().collect() })
}

/// A purge that has not begun.
struct Rewriting<'a> {
    control: &'a Control,
    caller: &'a Caller,
    permit: &'a PurgePermit,
    id: PurgeId,
    store: Store,
    made: Purge,
    /// As they were looked at, with what policy was asked about them.
    branches: Vec<(BranchName, VersionId)>,
    judged_by: Option<(Generation, u64)>,
    /// Versions that the database knows the new ones of.
    staged: HashSet<VersionId>,
    audited: Audited,
}

impl<'a> Rewriting<'a> {
    fn new(
        control: &'a Control,
        caller: &'a Caller,
        permit: &'a PurgePermit,
        repo: &RepoId,
        id: PurgeId,
    ) -> Result<Self, ApiError> {
        let store = control.trees().store(repo)?;
        let made = store.prepare_purge(permit.path().inner(), &[]).map_err(|error| error.in_store(store.id()))?;
        let (branches, staged, audited) = (Vec::new(), HashSet::new(), Audited::default());
        Ok(Self { control, caller, permit, id, store, made, branches, judged_by: None, staged, audited })
    }

    /// Judges and rewrites what the branches lead to now; `false` when that was done already.
    fn look(&mut self) -> Result<bool, ApiError> {
        let (control, path) = (self.control, self.permit.path());
        let generation = control.policies().generation(Some(self.permit.tenant()));
        let now = (generation, control.tree_meta().generation(self.store.id()));
        let branches = upkeep::branches(control, self.store.id())?;
        if self.judged_by == Some(now) && branches == self.branches {
            return Ok(false);
        }
        let heads: Vec<_> = branches.iter().map(|(_, head)| head.clone()).collect();
        control.still_stands(self.caller)?;
        self.store.extend_purge(&mut self.made, &heads)?;
        if self.made.is_empty() {
            let message = format!("no version has `{path}`");
            return Err(ApiError::not_found(message, "See GET /v1/tree-history for the path."));
        }
        let had = branches.iter().filter(|(_, head)| self.made.now(head) != *head);
        let had: Vec<BranchName> = had.map(|(branch, _)| branch.clone()).collect();
        if let Some(denied) = denied_below(control, self.caller, path, &self.store, &heads, &had)? {
            below::record(control, self.caller, std::slice::from_ref(&denied));
            return Err(denied.into());
        }
        let fresh: Vec<_> = self.made.became().filter(|(old, _)| self.staged.insert(old.clone())).collect();
        for batch in fresh.chunks(BATCH) {
            control.wait(control.db().stage_purge(self.permit, &self.id, batch.to_vec()))?;
        }
        self.audited.more = true;
        while self.audited.more {
            let found = control.wait(control.db().audited(self.permit, self.audited.from))?;
            self.audited.rows.extend(found.rows);
            (self.audited.from, self.audited.more) = (found.from, found.more);
        }
        (self.branches, self.judged_by) = (branches, Some(now));
        Ok(true)
    }
}

/// Why a path below may not be purged, or deleted as the branches lose it that `had` it: each that any version has is asked
/// about on each of them, by the policies in force now.
fn denied_below(
    control: &Control,
    caller: &Caller,
    path: &TreePath,
    store: &Store,
    heads: &[VersionId],
    had: &[BranchName],
) -> Result<Option<Denied>, ApiError> {
    let judge = control.wait(control.judge(caller))?;
    if !judge.decides_below(Action::TreePurge) && !judge.decides_below(Action::TreeDelete) {
        return Ok(None);
    }
    let unasked = |shown: &str, reason: &str| Some(Denied::unasked(Action::TreePurge, shown, reason));
    let (mut denied, mut count, pace) = (None, 0, control.pace(caller));
    let whole = store.every_path(heads, &mut |inner| {
        let below = inner.strip_prefix(&*path.inner_bytes());
        if !below.is_some_and(|below| below.is_empty() || below.starts_with(b"/")) {
            return ControlFlow::Continue(());
        }
        count += had.len().max(1);
        denied = match below::named(path, inner) {
            _ if count > MAX_JUDGED => unasked(path.as_str(), "it has too many paths to ask policy about each"),
            Err(shown) => Some(below::unnamed(Action::TreePurge, &shown)),
            Ok(one) => {
                pace.next();
                let purged = judge.purge(&control.path_facts(caller, &one, None)).map(drop);
                purged.err().or_else(|| {
                    had.iter().find_map(|branch| {
                        pace.next();
                        let deleted = control.path_facts(caller, &one, Some(branch));
                        judge.write_path(WriteAction::Delete, &deleted, branch).err()
                    })
                })
            }
        };
        if denied.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if !whole && denied.is_none() {
        denied = unasked(path.as_str(), "the store's history is too long to ask policy about each path");
    }
    Ok(denied)
}

/// Collects garbage until the purged versions are off the disk; `false` when somebody is still at work with them.
async fn remove(control: &Control, purge: &PendingPurge) -> Result<bool, ApiError> {
    let (owner, purge) = (control.clone(), purge.clone());
    blocking(control.threads(), move || {
        owner.trees().store(&purge.repo)?.refuse_purged(&purge.versions)?;
        for _ in 0..2 {
            upkeep::collect(&owner, &purge.repo, Thoroughness::Thorough)?;
        }
        if owner.trees().store(&purge.repo)?.count_present(&purge.versions)? > 0 {
            return Ok(false);
        }
        match owner.wait(owner.db().scrub()) {
            Err(DbError::Busy { .. }) => return Ok(false),
            scrubbed => scrubbed?,
        }
        owner.wait(owner.db().finish_purge(&purge.id, owner.now_ms()))?;
        tracing::info!(tenant = %purge.repo.tenant, purge = %purge.id, "a purged path is off the disk");
        Ok(true)
    })
    .await
}

/// Goes on with the purges that are not done. One that fails keeps no other from going on; says how many did.
///
/// # Errors
/// When the database cannot say which.
pub(super) async fn remove_pending(control: &Control) -> Result<u64, ApiError> {
    let mut failures = 0;
    let pending = control.db().pending_purges().await?;
    open_again(control, &pending).await?;
    for purge in pending {
        if let Err(error) = remove(control, &purge).await {
            failures += 1;
            let (tenant, id) = (&purge.repo.tenant, &purge.id);
            tracing::error!(%tenant, purge = %id, %error, cause = error.cause_chain(), "a purge could not go on");
        }
    }
    Ok(failures)
}

/// At start, before anybody asks: refuses again what a crash may have left unrefused. A store in which that cannot be done
/// is shut, and keeps no other from being served.
pub(super) async fn take_up(control: &Control) -> Result<(), ApiError> {
    control.db().forget_staged().await?;
    for purge in control.db().pending_purges().await? {
        if let Err(error) = refuse(control, &purge).await {
            let (tenant, id) = (&purge.repo.tenant, &purge.id);
            tracing::error!(%tenant, purge = %id, %error, cause = error.cause_chain(), "a store is shut: it cannot be read");
            control.trees().shut(&purge.repo);
            tell(control, &purge.repo, "shut").await?;
        }
    }
    Ok(())
}

async fn refuse(control: &Control, purge: &PendingPurge) -> Result<(), ApiError> {
    let (owner, purge) = (control.clone(), purge.clone());
    blocking(control.threads(), move || {
        Ok(owner.trees().store_even_shut(&purge.repo)?.refuse_purged(&purge.versions)?)
    })
    .await
}

/// Puts on the operator's chain that a store was shut, or opened again.
async fn tell(control: &Control, repo: &RepoId, outcome: &str) -> Result<(), ApiError> {
    let entry = AuditEntry::by_server(STORE, outcome.to_owned(), control.now_ms());
    Ok(control.db().audit(AuditEntry { resource: repo.root(), ..entry }).await?)
}

/// Opens the stores again in which all can be refused by now that was purged.
async fn open_again(control: &Control, pending: &[PendingPurge]) -> Result<(), ApiError> {
    for repo in control.trees().all_shut() {
        let mut refused = true;
        for purge in pending.iter().filter(|purge| purge.repo == repo) {
            refused &= refuse(control, purge).await.is_ok();
        }
        if refused && control.trees().unshut(&repo) {
            tracing::info!(tenant = %repo.tenant, "a store that was shut is open again");
            tell(control, &repo, "opened").await?;
        }
    }
    Ok(())
}
