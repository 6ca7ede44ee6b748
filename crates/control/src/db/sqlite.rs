//! SQLite: one file, WAL, synchronous FULL.
//!
//! One thread owns the writing connection and commits whatever waits for it together, so that many writers share one
//! fsync; another owns the reading connection. A write is answered after its commit.

mod audit;
mod forget;
mod identity;
mod policy;
mod refs;
mod runs;
mod schema;
mod tenants;
mod tree_meta;
mod usage;
mod worker;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use bailey_policy::{Principal, RunCreatePermit, RunFacts, RunListPermit, RunOrigin, RunReadPermit, StoreScope};
use bailey_protocol::id::{RunId, TenantId, VersionId};
use bailey_protocol::path::{BranchName, Revision};

use super::{
    AuditEntry, Db, DbError, DbFuture, Idempotency, MAX_PAGE, NewRun, RefMove, RunCreated, RunEnd, RunRecord,
    SpecSummary,
};
use crate::clock::Rng;
use audit::{Appended, Salts};
use worker::Worker;

pub use audit::verify_audit;
pub use policy::tenant_policies;

/// The embedded database. Dropping it waits for the writes that were accepted.
#[derive(Debug)]
pub struct Sqlite {
    writer: Worker,
    reader: Worker,
    /// Draws the audit's salts.
    rng: Rng,
    /// Rows of the audit.
    appended: Arc<Appended>,
}

impl Sqlite {
    /// Opens the file, making it (readable by its owner alone) and bringing its schema up to date where needed.
    ///
    /// # Errors
    /// When the file cannot be opened or was written by a newer version.
    pub fn open(file: &Path) -> Result<Self, DbError> {
        let writer = schema::open(file)?;
        let reader = schema::open_reader(file)?;
        let (writer, reader) = (Worker::writer(writer)?, Worker::reader(reader)?);
        Ok(Self { writer, reader, rng: Rng::system(), appended: Arc::default() })
    }

    /// The same with no thread of its own, and salts from `rng`: for simulations.
    ///
    /// # Errors
    /// As [`Sqlite::open`].
    pub fn open_here(file: &Path, rng: Rng) -> Result<Self, DbError> {
        let writer = Worker::here(schema::open(file)?, true);
        let reader = Worker::here(schema::open_reader(file)?, false);
        Ok(Self { writer, reader, rng, appended: Arc::default() })
    }

    fn salts(&self) -> Salts {
        Salts::counted(self.rng.clone(), Arc::clone(&self.appended))
    }
}

impl Db for Sqlite {
    fn create_run<'a>(&'a self, permit: &'a RunCreatePermit, run: NewRun) -> DbFuture<'a, RunCreated> {
        let origin = RunOrigin { credential: permit.grant().credential().clone(), mounts: run.mounts.clone() };
        let facts = RunFacts::plain(run.run.clone(), permit.tenant().clone(), permit.user().clone());
        let facts = RunFacts { origin: Some(origin), ..facts };
        let spec = SpecSummary {
            command: runs::cut(&run.command).to_owned(),
            wall: permit.wall(),
            template: permit.template().clone(),
            root: permit.plan().root,
        };
        let salts = self.salts();
        self.writer.call("create a run", move |db| {
            let created = runs::create(db, &facts, &spec, &run)?;
            let answered = match &created {
                RunCreated::New => &run.run,
                RunCreated::Replayed(first) => first,
            };
            for entry in run.audit {
                audit::append(db, &salts, &AuditEntry { outcome: answered.to_string(), ..entry })?;
            }
            Ok(created)
        })
    }

    fn earlier_run<'a>(
        &'a self,
        permit: &'a RunCreatePermit,
        idempotency: &'a Idempotency,
        now_ms: u64,
    ) -> DbFuture<'a, Option<RunId>> {
        let (tenant, user, idempotency) = (permit.tenant().clone(), permit.user().clone(), idempotency.clone());
        self.reader.call("find an earlier run", move |db| runs::earlier(db, &tenant, &user, &idempotency, now_ms))
    }

    fn end_run<'a>(
        &'a self,
        permit: &'a RunCreatePermit,
        run: &'a RunId,
        end: RunEnd,
        moves: Vec<RefMove>,
        now_ms: u64,
    ) -> DbFuture<'a, ()> {
        let facts = RunFacts::plain(run.clone(), permit.tenant().clone(), permit.user().clone());
        let (told, salts) = (AuditEntry::of_end(permit.grant(), run, &end, now_ms), self.salts());
        self.writer.call("end a run", move |db| {
            refs::apply(db, &moves)?;
            runs::end(db, &facts, &end, now_ms)?;
            told.iter().try_for_each(|entry| audit::append(db, &salts, entry).map(drop))
        })
    }

    fn run_facts<'a>(&'a self, principal: &'a Principal, run: &'a RunId) -> DbFuture<'a, Option<RunFacts>> {
        let (tenant, run) = (principal.tenant.clone(), run.clone());
        self.reader.call("find a run", move |db| runs::facts(db, &tenant, &run))
    }

    fn run<'a>(&'a self, permit: &'a RunReadPermit) -> DbFuture<'a, Option<RunRecord>> {
        let (tenant, run) = (permit.tenant().clone(), permit.facts().run.clone());
        self.reader.call("read a run", move |db| runs::read(db, &tenant, &run))
    }

    fn runs<'a>(
        &'a self,
        permit: &'a RunListPermit,
        limit: u32,
        after: Option<&'a RunId>,
    ) -> DbFuture<'a, Vec<RunRecord>> {
        let (tenant, user, after) = (permit.tenant().clone(), permit.user().clone(), after.cloned());
        self.reader.call("list runs", move |db| runs::list(db, &tenant, &user, limit.min(MAX_PAGE), after.as_ref()))
    }

    fn abandon_running(&self, now_ms: u64) -> DbFuture<'_, Vec<(TenantId, RunId)>> {
        let salts = self.salts();
        self.writer.call("end abandoned runs", move |db| {
            let lost = runs::abandon(db, now_ms)?;
            for (tenant, run) in &lost {
                audit::append(db, &salts, &AuditEntry::of_lost_run(tenant, run, now_ms))?;
            }
            Ok(lost)
        })
    }

    fn resolve<'a>(&'a self, scope: &'a StoreScope) -> DbFuture<'a, Option<VersionId>> {
        match scope.revision() {
            Revision::Version(version) => Box::pin(std::future::ready(Ok(Some(version.clone())))),
            Revision::Branch(branch) => {
                let (repo, branch) = (scope.repo().clone(), branch.clone());
                self.reader.call("read a ref", move |db| refs::head(db, &repo, &branch))
            }
        }
    }

    fn heads<'a>(&'a self, scope: &'a StoreScope) -> DbFuture<'a, Vec<(BranchName, VersionId)>> {
        let repo = scope.repo().clone();
        self.reader.call("list refs", move |db| refs::heads(db, &repo))
    }

    fn move_refs(&self, moves: Vec<RefMove>) -> DbFuture<'_, ()> {
        self.writer.call("move refs", move |db| refs::apply(db, &moves))
    }
}
