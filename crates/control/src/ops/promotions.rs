//! Promoting: a reviewed branch's changes go into another, by compare-and-swap, all of them or none.
//!
//! ```text
//! lock store ─▶ read both heads ─▶ bring ─nothing new──▶ unchanged
//!                                   │  │└─conflict─────▶ refused: both branches stay as they are
//!                                   ▼  ▼
//!                             forward  merged ─▶ reviewed by another? ─▶ each path permitted? ─▶ move ─▶ publish
//! ```

use std::collections::BTreeSet;
use std::sync::PoisonError;

use bailey_policy::{At, PromotePermit, ReadAction};
use bailey_protocol::api::{Promoted, PromotionOutcome, PromotionRequest};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision};
use bailey_tree::{Brought, CommitMeta, Hides, Store};

use super::below::Below;
use super::crossing::Crossing;
use super::unseen::Unseen;
use super::{branches, landing};
use crate::api_error::{ApiError, Details, ErrorKind};
use crate::control::{Caller, Control};
use crate::db::{DbError, RefMove};

/// Rounds after which a branch that keeps moving is left alone.
const MAX_ROUNDS: usize = 8;

/// Brings what one branch changed into another.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, both sides changed the same paths, a branch is not there, or the target wants another's review.
pub async fn promote(control: &Control, caller: &Caller, request: PromotionRequest) -> Result<Promoted, ApiError> {
    let PromotionRequest { path, from, into } = request;
    let facts = control.path_facts(caller, &path, Some(&into));
    let permit = control.permit(caller, control.judge(caller).await?.promote(&facts, &from, &into)).await?;
    let read = control.may_read(caller, ReadAction::Read, &path, &Revision::Branch(from)).await;
    let read = control.failure_audited(caller, [permit.grant()], read).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let store = store_of(&owner, &permit);
        let store = owner.failure_audited(&caller, [permit.grant(), read.grant()], store).await?;
        let result = async {
            let below = Below::writes_and_deletes(&caller, vec![permit.path().clone()]);
            let promotion = Promotion { control: owner.clone(), store, permit, below };
            owner
                .changes()
                .make(&caller.principal.tenant, move || {
                    let result = promotion.carry_out();
                    Ok((promotion.permit, result))
                })
                .await
        };
        match result.await {
            Ok((permit, result)) => owner.audited(&caller, [permit.grant(), read.grant()], result).await,
            Err(error) => Err(error),
        }
    };
    control.own(task).await.map_err(ApiError::internal)?
}

fn store_of(control: &Control, permit: &PromotePermit) -> Result<Store, ApiError> {
    branches::check_root(permit.path())?;
    if permit.source() == permit.target() {
        let hint = "Name two branches.";
        return Err(ApiError::invalid("invalid_branch", "a branch is not promoted into itself", hint));
    }
    Ok(control.trees().store(permit.scope()?.repo())?)
}

struct Promotion {
    control: Control,
    store: Store,
    permit: PromotePermit,
    below: Below,
}

impl Promotion {
    /// Blocks.
    fn carry_out(&self) -> Result<Promoted, ApiError> {
        let control = &self.control;
        let (target, source) = (self.permit.scope()?, self.permit.source_scope()?);
        let lock = control.locks().of(target.repo());
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        for _round in 0..MAX_ROUNDS {
            control.still_stands(self.below.caller())?;
            let theirs = control.wait(control.db().resolve(&source))?;
            let theirs = theirs.ok_or_else(|| branches::missing(self.permit.source()))?;
            let ours = control.wait(control.db().resolve(&target))?;
            if ours.is_none() && *self.permit.target() != BranchName::main() {
                return Err(branches::missing(self.permit.target()));
            }
            self.check_again(&theirs)?;
            let (brought, authors) = self.bring(ours.as_ref(), &theirs)?;
            let (version, outcome) = match (brought, &ours) {
                (Brought::Nothing, Some(ours)) => return Ok(self.promoted(ours.clone(), PromotionOutcome::Unchanged)),
                (Brought::Conflict(paths), _) => return Err(self.conflict(paths)),
                (Brought::Parted, _) => return Err(self.parted()),
                (Brought::Merged(version), _) => (version, PromotionOutcome::Merged),
                (Brought::Forward | Brought::Nothing, _) => (theirs, PromotionOutcome::Forwarded),
            };
            self.check_review(authors)?;
            let into = self.permit.target();
            if let Some(refusal) = self.below.refusal(control, into, &self.store, ours.as_ref(), &version)? {
                return Err(refusal.denied.into());
            }
            let source = landing::unreviewed(control, target.repo(), [self.permit.source().clone(), into.clone()]);
            let source = source.into_iter().filter(|branch| branch != into).collect();
            let step = RefMove::promotion(&self.permit, ours, version.clone())?.with_movers_of(source);
            match control.wait(control.db().move_refs(vec![step])) {
                Ok(()) => {
                    landing::publish_store(control, &target, &self.store);
                    return Ok(self.promoted(version, outcome));
                }
                Err(DbError::RefMoved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = format!("branch `{}` kept moving", self.permit.target());
        Err(ApiError::new(ErrorKind::Conflict, "branch_moved", message, "Promote again."))
    }

    /// Both sides' changes. Where the caller may not read the target, also a path of which both made the same is in conflict.
    fn bring(&self, ours: Option<&VersionId>, theirs: &VersionId) -> Result<(Brought, BTreeSet<String>), ApiError> {
        let unseen = Unseen::of(&self.control, self.below.caller(), self.store.id(), self.permit.target())?;
        let hides = |inner: &[u8]| unseen.as_ref().is_some_and(|unseen| unseen.hides(inner));
        let hidden = unseen.as_ref().map(|_| &hides as &Hides<'_>);
        Ok(self.store.bring_unseen(ours, theirs, hidden, &self.meta())?)
    }

    /// That it is still allowed, and that the target comes to show nothing which may not be seen on the source.
    fn check_again(&self, theirs: &VersionId) -> Result<(), ApiError> {
        let (control, caller) = (&self.control, self.below.caller());
        let judge = control.wait(control.judge(caller))?;
        let (root, to, from) = (self.permit.path(), self.permit.target(), self.permit.source().clone());
        let facts = control.path_facts(caller, root, Some(to));
        control.wait(control.permit(caller, judge.promote(&facts, &from, to)))?;
        let from = Revision::Branch(from);
        let crossing = Crossing { control, caller, judge: &judge, root, from: At::from(&from), to };
        match crossing.shown(&self.store, theirs)? {
            Some(denied) => control.wait(control.permit(caller, Err(denied))),
            None => Ok(()),
        }
    }

    /// Where the target wants it: who promotes has neither written nor moved what is promoted, nor has who made the key
    /// that promotes. What a version says of its author can be made up by whoever pushed it, so who moved the branch counts
    /// as well: with a key, its maker too.
    fn check_review(&self, authors: BTreeSet<String>) -> Result<(), ApiError> {
        let target = self.permit.scope()?;
        let protection = self.control.tree_meta().protection(target.repo(), self.permit.target());
        if !protection.is_some_and(|protection| protection.review) {
            return Ok(());
        }
        let movers = self.control.wait(self.control.db().movers(&target, self.permit.source()))?;
        let persons = self.permit.grant().persons();
        if let Some(user) = persons.iter().find(|user| movers.contains(user) || authors.contains(user.as_str())) {
            let message = format!(
                "`{}` takes only what somebody else has made: `{user}` worked on `{}`",
                self.permit.target(),
                self.permit.source()
            );
            return Err(ApiError::new(
                ErrorKind::Denied,
                "review_required",
                message,
                "Ask somebody else to promote it.",
            ));
        }
        Ok(())
    }

    fn meta(&self) -> CommitMeta {
        CommitMeta {
            author: self.permit.user().clone(),
            time_ms: self.control.now_ms(),
            message: format!("Promote {} into {}", self.permit.source(), self.permit.target()),
            run: None,
        }
    }

    fn promoted(&self, version: VersionId, outcome: PromotionOutcome) -> Promoted {
        Promoted { branch: self.permit.target().clone(), version, outcome }
    }

    fn parted(&self) -> ApiError {
        let (from, into) = (self.permit.source(), self.permit.target());
        let message = format!("what `{from}` and `{into}` have in common is older than what is kept of their history");
        let hint = format!("Fork `{into}` again, and write there what is wanted of `{from}`.");
        ApiError::new(ErrorKind::Conflict, "history_cut", message, hint)
    }

    fn conflict(&self, paths: Vec<String>) -> ApiError {
        let (from, into) = (self.permit.source(), self.permit.target());
        let message = format!("`{from}` and `{into}` both changed {} paths, each differently", paths.len());
        let hint = format!(
            "On a fork of `{from}`: write those paths as they are on `{into}`, promote `{into}` into it, write them as they shall be, and promote that."
        );
        let paths = paths.iter().map(|path| self.store.id().below(path)).collect();
        let mut error = ApiError::new(ErrorKind::Conflict, "promotion_conflict", message, hint);
        error.details = Some(Box::new(Details { paths, purge: None }));
        error
    }
}
