CREATE TABLE quotas (
    tenant TEXT PRIMARY KEY,
    quota TEXT NOT NULL,
    set_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- versions that are kept no more; purge is NULL for those that were too old
CREATE TABLE gone_versions (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    version TEXT NOT NULL,
    purge TEXT,
    became TEXT,
    PRIMARY KEY (tenant, user, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX gone_by_purge ON gone_versions (purge) WHERE purge IS NOT NULL;

CREATE TABLE purges (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    path_sha256 TEXT NOT NULL,
    asked_by_sha256 TEXT NOT NULL,
    asked_ms INTEGER NOT NULL,
    done_ms INTEGER,
    versions INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX purges_pending ON purges (id) WHERE done_ms IS NULL;
