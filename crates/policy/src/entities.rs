//! Facts as Cedar sees them: entities and context, checked against the schema before any policy runs.

use std::collections::{HashMap, HashSet};

use bailey_protocol::id::{TenantId, UserId};
use bailey_protocol::path::TreePath;
use cedar_policy::{Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};

use crate::policies::{PolicyError, RunFacts, RunPlan};
use crate::principal::Principal;

/// One entity and whatever else a policy may look at through it.
pub(crate) struct Facts {
    pub(crate) uid: EntityUid,
    pub(crate) entity: Entity,
}

/// The schema's type names, parsed once.
#[derive(Debug)]
pub(crate) struct Words {
    tenant: EntityTypeName,
    user: EntityTypeName,
    path: EntityTypeName,
    run: EntityTypeName,
    template: EntityTypeName,
    sandbox: EntityTypeName,
}

impl Words {
    pub(crate) fn new() -> Result<Self, PolicyError> {
        let word =
            |name: &'static str| name.parse().map_err(|source| PolicyError::Word { name, source: Box::new(source) });
        Ok(Self {
            tenant: word("Tenant")?,
            user: word("User")?,
            path: word("Path")?,
            run: word("Run")?,
            template: word("Template")?,
            sandbox: word("Sandbox")?,
        })
    }

    pub(crate) fn run_uid(&self, run: &str) -> EntityUid {
        uid(&self.run, run)
    }

    pub(crate) fn principal(&self, principal: &Principal) -> Result<Facts, PolicyError> {
        let texts = |values: &mut dyn Iterator<Item = &str>| {
            RestrictedExpression::new_set(values.map(text).collect::<Vec<_>>())
        };
        let attributes = [
            ("tenant", self.tenant_link(&principal.tenant)),
            ("name", text(principal.user.as_str())),
            ("roles", texts(&mut principal.roles.iter().map(String::as_str))),
            ("entitlements", texts(&mut principal.entitlements.iter().map(|entitlement| entitlement.as_str()))),
        ];
        facts(self.user_uid(&principal.tenant, &principal.user), attributes, [self.tenant_uid(&principal.tenant)])
    }

    pub(crate) fn tenant(&self, tenant: &TenantId) -> Result<Facts, PolicyError> {
        facts(self.tenant_uid(tenant), [("tenant", self.tenant_link(tenant))], [])
    }

    pub(crate) fn path(&self, path: &TreePath) -> Result<Facts, PolicyError> {
        let repo = path.repo();
        let owner = repo.user.as_ref().map(|user| ("owner", self.user_link(&repo.tenant, user)));
        let attributes = [("tenant", self.tenant_link(&repo.tenant)), ("path", text(path.as_str()))];
        facts(uid(&self.path, path.as_str()), attributes.into_iter().chain(owner), [])
    }

    pub(crate) fn run(&self, run: &RunFacts) -> Result<Facts, PolicyError> {
        let attributes = [("tenant", self.tenant_link(&run.tenant)), ("owner", self.user_link(&run.tenant, &run.user))];
        facts(self.run_uid(run.run.as_str()), attributes, [])
    }

    pub(crate) fn sandbox(&self, principal: &Principal, plan: &RunPlan) -> Result<Facts, PolicyError> {
        let template = RestrictedExpression::new_entity_uid(uid(&self.template, plan.template.as_str()));
        let attributes = [
            ("tenant", self.tenant_link(&principal.tenant)),
            ("owner", self.user_link(&principal.tenant, &principal.user)),
            ("wall", text(plan.wall.as_str())),
            ("template", template),
        ];
        facts(uid(&self.sandbox, "new"), attributes, [])
    }

    fn tenant_uid(&self, tenant: &TenantId) -> EntityUid {
        uid(&self.tenant, tenant.as_str())
    }

    fn user_uid(&self, tenant: &TenantId, user: &UserId) -> EntityUid {
        uid(&self.user, &format!("{tenant}/{user}"))
    }

    fn tenant_link(&self, tenant: &TenantId) -> RestrictedExpression {
        RestrictedExpression::new_entity_uid(self.tenant_uid(tenant))
    }

    fn user_link(&self, tenant: &TenantId, user: &UserId) -> RestrictedExpression {
        RestrictedExpression::new_entity_uid(self.user_uid(tenant, user))
    }
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

fn facts<P: IntoIterator<Item = EntityUid>>(
    uid: EntityUid,
    attributes: impl IntoIterator<Item = (&'static str, RestrictedExpression)>,
    parents: P,
) -> Result<Facts, PolicyError> {
    let attributes: HashMap<_, _> = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let parents: HashSet<_> = parents.into_iter().collect();
    let entity = Entity::new(uid.clone(), attributes, parents)
        .map_err(|source| PolicyError::Facts { source: Box::new(source) })?;
    Ok(Facts { uid, entity })
}
