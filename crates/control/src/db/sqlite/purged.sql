-- What purges made of versions. Rows of a purge that is not in `purges` are of one that has not begun.
CREATE TABLE purged_versions (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    version TEXT NOT NULL,
    purge TEXT NOT NULL,
    became TEXT,
    PRIMARY KEY (tenant, user, version, purge)
) STRICT, WITHOUT ROWID;
CREATE INDEX purged_versions_by_purge ON purged_versions (purge);
INSERT INTO purged_versions SELECT tenant, user, version, purge, became FROM gone_versions WHERE purge IS NOT NULL;
DELETE FROM gone_versions WHERE purge IS NOT NULL;
DROP INDEX gone_by_purge;
