//! The tables, and how a file of an earlier version becomes one of this.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::worker::storage;
use crate::db::DbError;

/// Marks the file as ours ("bail").
const APPLICATION_ID: i64 = 0x6261_696c;

/// One step for each schema version, in order. Never change one that was released: add another.
const MIGRATIONS: &[&str] = &[
    FIRST,
    super::audit::TABLES,
    include_str!("schema/identity.sql"),
    super::tree_meta::TABLES,
    super::usage::TABLES,
    super::policy::TABLES,
    include_str!("schema/accounts.sql"),
    super::tenants::TABLES,
    RUN_ORIGINS,
    super::usage::PURGED,
    super::forget::TABLES,
    ISSUED,
    super::policy::TOLD,
    LABELS,
];

const FIRST: &str = "
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    spec TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    outcome TEXT,
    CHECK ((ended_ms IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_owner ON runs (tenant, user, id);
CREATE INDEX runs_running ON runs (id) WHERE outcome IS NULL;

CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    request BLOB NOT NULL,
    run TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_ms);

-- user is '' for the tenant's own store
CREATE TABLE refs (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    branch TEXT NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (tenant, user, branch)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    request TEXT,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    acting_run TEXT,
    action TEXT NOT NULL,
    resource TEXT NOT NULL,
    decision TEXT NOT NULL,
    policies TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
";

/// What a run was asked for with, and given of the tree; absent of older ones.
const RUN_ORIGINS: &str = "ALTER TABLE runs ADD COLUMN origin TEXT;";

/// When the token was issued that said what is known of a subject. Of older rows it was so when it was seen, at the latest.
const ISSUED: &str = "
ALTER TABLE subjects ADD COLUMN issued_s INTEGER NOT NULL DEFAULT 0;
UPDATE subjects SET issued_s = last_ms / 1000;
";

/// What else of a subject policies may look at.
const LABELS: &str = "
ALTER TABLE subjects ADD COLUMN region TEXT;
ALTER TABLE subjects ADD COLUMN project TEXT;
";

const OPEN: &str = "open the database";

/// The writing connection, with the schema in place.
pub(super) fn open(file: &Path) -> Result<Connection, DbError> {
    let touch = OpenOptions::new().create(true).append(true).mode(0o600).open(file);
    touch.and_then(|file| file.sync_all()).map_err(io)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut db = connect(file, flags)?;
    let set = |name, value: &str| db.pragma_update(None, name, value);
    set("journal_mode", "WAL")
        .and_then(|()| set("synchronous", "FULL"))
        .and_then(|()| set("journal_size_limit", "67108864"))
        // What is purged leaves no copy in the file.
        .and_then(|()| set("secure_delete", "ON"))
        // Nor one beside the file.
        .and_then(|()| set("temp_store", "MEMORY"))
        .map_err(|error| storage(OPEN, error))?;
    migrate(&mut db)?;
    if let Some(folder) = file.parent() {
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    }
    Ok(db)
}

/// A connection that can only read.
pub(super) fn open_reader(file: &Path) -> Result<Connection, DbError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = connect(file, flags)?;
    db.pragma_update(None, "query_only", "ON").map_err(|error| storage(OPEN, error))?;
    Ok(db)
}

fn connect(file: &Path, flags: OpenFlags) -> Result<Connection, DbError> {
    let db = Connection::open_with_flags(file, flags).map_err(|error| storage(OPEN, error))?;
    db.busy_timeout(Duration::from_secs(5))
        .and_then(|()| db.pragma_update(None, "trusted_schema", "OFF"))
        .and_then(|()| db.pragma_update(None, "cell_size_check", "ON"))
        .map_err(|error| storage(OPEN, error))?;
    Ok(db)
}

fn migrate(db: &mut Connection) -> Result<(), DbError> {
    let failed = |error| storage(OPEN, error);
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let change = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let number = |name| change.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    let found = number("user_version")?;
    let owner = number("application_id")?;
    if found > known {
        return Err(DbError::TooNew { found, known });
    }
    if found > 0 && owner != APPLICATION_ID {
        return Err(DbError::Corrupt { operation: OPEN, detail: format!("application id {owner:#x} is not ours") });
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        change.execute_batch(step).map_err(failed)?;
    }
    change
        .pragma_update(None, "application_id", APPLICATION_ID)
        .and_then(|()| change.pragma_update(None, "user_version", known))
        .map_err(failed)?;
    change.commit().map_err(failed)
}

fn io(error: std::io::Error) -> DbError {
    DbError::Storage { operation: OPEN, source: Arc::new(error) }
}
