-- Service accounts and operators whose tokens do not hold.
CREATE TABLE disabled_accounts (
    kind TEXT NOT NULL CHECK (kind IN ('service', 'operator')),
    name TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
