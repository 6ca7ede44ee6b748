//! The table tenant_facts.

use bailey_policy::{OperatorPermit, TenantFacts};
use bailey_protocol::id::TenantId;
use rusqlite::params;

use super::Sqlite;
use super::worker::{DbFault, parse};
use crate::db::DbFuture;
use crate::db::tenants::TenantDb;

pub(super) const TABLES: &str = "
CREATE TABLE tenant_facts (
    tenant TEXT PRIMARY KEY,
    region TEXT,
    plan TEXT,
    set_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

impl TenantDb for Sqlite {
    fn tenant_facts(&self) -> DbFuture<'_, Vec<(TenantId, TenantFacts)>> {
        self.reader.call("read what is noted of tenants", |db| {
            let mut query = db.prepare_cached("SELECT tenant, region, plan FROM tenant_facts")?;
            let rows = query.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, TenantFacts { region: row.get(1)?, plan: row.get(2)? }))
            })?;
            rows.map(|row| {
                let (tenant, facts) = row?;
                Ok((parse(&tenant)?, facts))
            })
            .collect()
        })
    }

    fn set_tenant_facts<'a>(&'a self, permit: &'a OperatorPermit, facts: TenantFacts) -> DbFuture<'a, ()> {
        let (tenant, who) = (permit.tenant().cloned(), permit.grant().who().to_owned());
        self.writer.call("note something of a tenant", move |db| {
            let tenant = tenant.ok_or_else(|| DbFault::Corrupt("a permit for no tenant".to_owned()))?;
            db.prepare_cached(
                "INSERT INTO tenant_facts (tenant, region, plan, set_by) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (tenant) DO UPDATE
                 SET region = excluded.region, plan = excluded.plan, set_by = excluded.set_by",
            )?
            .execute(params![tenant.as_str(), facts.region, facts.plan, who])?;
            Ok(())
        })
    }
}
