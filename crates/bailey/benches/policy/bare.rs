//! The baseline: Cedar, with the same policies, and everything else made before.

use std::hint::black_box;

use anyhow::Context as _;
use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicyId, PolicySet, Request, Schema};
use serde_json::json;

use crate::world::{operator, own, path, tenant};

const SCHEMA: &str = include_str!("../../../policy/src/schema.cedarschema");
const BASE: &str = include_str!("../../../policy/src/base.cedar");
/// Tenants whose sets are made. Cedar's answer takes as long for any of them.
const PREPARED: usize = 64;

pub(crate) struct Bare {
    authorizer: Authorizer,
    prepared: Vec<(PolicySet, Request, Entities)>,
}

impl Bare {
    pub(crate) fn of_some_tenants() -> anyhow::Result<Self> {
        let (schema, _warnings) = Schema::from_cedarschema_str(SCHEMA)?;
        let mut platform = PolicySet::new();
        add(&mut platform, "base", BASE)?;
        for (name, text) in operator()? {
            add(&mut platform, &name, &text)?;
        }
        let prepared = (0..PREPARED).map(|n| prepare(&schema, &platform, n)).collect::<anyhow::Result<_>>()?;
        Ok(Self { authorizer: Authorizer::new(), prepared })
    }

    pub(crate) fn allows(&self, turn: usize) -> bool {
        let Some((set, request, entities)) = self.prepared.get(turn % self.prepared.len()) else { return false };
        let answer = black_box(self.authorizer.is_authorized(black_box(request), set, entities));
        answer.decision() == Decision::Allow
    }
}

fn add(set: &mut PolicySet, file: &str, text: &str) -> anyhow::Result<()> {
    let parsed: PolicySet = text.parse().with_context(|| file.to_owned())?;
    for policy in parsed.policies() {
        set.add(policy.new_id(PolicyId::new(format!("{file}/{}", policy.id()))))?;
    }
    Ok(())
}

fn prepare(schema: &Schema, platform: &PolicySet, n: usize) -> anyhow::Result<(PolicySet, Request, Entities)> {
    let mut set = platform.clone();
    for (name, text) in own(n) {
        add(&mut set, &name, &text)?;
    }
    let (tenant, path) = (tenant(n), path(n));
    let uid = |kind: &str, id: &str| format!("{kind}::{id:?}").parse::<EntityUid>();
    let link = |kind: &str, id: &str| json!({ "__entity": { "type": kind, "id": id } });
    let who = format!("{tenant}/ana");
    let entitlements: Vec<&str> = bailey_policy::Entitlement::ALL.iter().map(|one| one.as_str()).collect();
    let labels: &[&str] = if n.is_multiple_of(4) { &["internal"] } else { &[] };
    let plan = ["free", "team", "regulated"].get(n % 3).copied().unwrap_or("free");
    let entities = json!([
        { "uid": { "type": "User", "id": who }, "parents": [{ "type": "Tenant", "id": tenant }], "attrs": {
            "tenant": link("Tenant", &tenant), "name": "ana", "roles": ["member", format!("team-{}", n % 20)],
            "entitlements": entitlements, "region": "eu" } },
        { "uid": { "type": "Tenant", "id": tenant }, "parents": [], "attrs": {
            "tenant": link("Tenant", &tenant), "region": "eu", "plan": plan } },
        { "uid": { "type": "Path", "id": path }, "parents": [], "attrs": {
            "tenant": link("Tenant", &tenant), "path": path, "labels": labels, "protected": false } },
    ]);
    let entities = Entities::from_json_value(entities, Some(schema))?;
    let action = uid("Action", "tree_read")?;
    let time = json!({ "__extn": { "fn": "datetime", "arg": "2026-06-01T12:00:00Z" } });
    let context = json!({ "time": time, "credential": "token", "branch": "main" });
    let context = Context::from_json_value(context, Some((schema, &action)))?;
    let request = Request::new(uid("User", &who)?, action, uid("Path", &path)?, context, Some(schema))?;
    Ok((set, request, entities))
}
