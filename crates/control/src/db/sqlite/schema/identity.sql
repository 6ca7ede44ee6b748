-- Who was seen, and what the last credential said.
CREATE TABLE subjects (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    roles TEXT NOT NULL,
    entitlements TEXT NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    valid_until_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) STRICT, WITHOUT ROWID;

-- user is '' for the whole tenant
CREATE TABLE disabled (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    authority TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, authority)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    creator TEXT NOT NULL,
    grants TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    revoked_ms INTEGER,
    last_used_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);
