//! From what we know to the entities of a request.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bailey_protocol::id::{TenantId, UserId};

use crate::facts::{PathFacts, RunFacts, RunPlan, TenantFacts};
use crate::principal::{Operator, Principal, ServedTenants, ServiceAccount};
use crate::request::{Kind, Link, Subject, Value};

pub(crate) fn user(principal: &Principal) -> Subject {
    let entitlements = principal.entitlements.iter().map(|entitlement| text(entitlement.as_str()));
    let attributes = [
        ("tenant", tenant_link(&principal.tenant)),
        ("name", text(principal.user.as_str())),
        ("roles", texts(&principal.roles)),
        ("entitlements", Value::Set(entitlements.collect())),
    ];
    let known = optional([("region", &principal.region), ("project", &principal.project)]);
    subject(user_name(&principal.tenant, &principal.user), attributes.into_iter().chain(known))
}

pub(crate) fn service(service: &ServiceAccount) -> Subject {
    let (any, tenants) = match &service.tenants {
        ServedTenants::All => (true, None),
        ServedTenants::Only(tenants) => (false, Some(tenants)),
    };
    let attributes = [
        ("name", text(&service.name)),
        ("roles", texts(&service.roles)),
        ("any_tenant", Value::Bool(any)),
        ("tenants", Value::Set(tenants.into_iter().flatten().map(tenant_link).collect())),
    ];
    subject(name(Kind::ServiceAccount, &service.name), attributes)
}

pub(crate) fn operator(operator: &Operator) -> Subject {
    let attributes = [("name", text(&operator.name)), ("roles", texts(&operator.roles))];
    subject(name(Kind::Operator, &operator.name), attributes)
}

pub(crate) fn tenant(tenant: &TenantId, known: &TenantFacts) -> Subject {
    let noted = optional([("region", &known.region), ("plan", &known.plan)]);
    subject(name(Kind::Tenant, tenant.as_str()), noted.chain([("tenant", tenant_link(tenant))]))
}

pub(crate) fn system() -> Subject {
    subject(name(Kind::System, "bailey"), [])
}

pub(crate) fn path(known: &PathFacts) -> Subject {
    let (path, repo) = (&known.path, known.path.repo());
    let owner = repo.user.as_ref().map(|user| ("owner", user_link(&repo.tenant, user)));
    let attributes = [
        ("tenant", tenant_link(&repo.tenant)),
        ("path", text(path.as_str())),
        ("labels", Value::Set(known.labels.iter().map(|label| text(label.as_str())).collect())),
        ("protected", Value::Bool(known.protected)),
    ];
    subject(name(Kind::Path, path.as_str()), attributes.into_iter().chain(owner))
}

pub(crate) fn run(run: &RunFacts) -> Subject {
    let attributes = [("tenant", tenant_link(&run.tenant)), ("owner", user_link(&run.tenant, &run.user))];
    subject(name(Kind::Run, run.run.as_str()), attributes)
}

pub(crate) fn sandbox(principal: &Principal, plan: &RunPlan) -> Subject {
    let attributes = [
        ("tenant", tenant_link(&principal.tenant)),
        ("owner", user_link(&principal.tenant, &principal.user)),
        ("wall", text(plan.wall.as_str())),
        ("template", Value::Link(name(Kind::Template, plan.template.as_str()))),
        ("cpu_millis", long(plan.limits.cpu_millis.into())),
        ("memory_bytes", long(plan.limits.memory_bytes)),
        ("disk_bytes", long(plan.limits.disk_bytes)),
        ("timeout_ms", long(plan.limits.timeout_ms)),
    ];
    subject(name(Kind::Sandbox, "new"), attributes)
}

pub(crate) fn run_link(run: &str) -> Value {
    Value::Link(name(Kind::Run, run))
}

pub(crate) fn user_link(tenant: &TenantId, user: &UserId) -> Value {
    Value::Link(user_name(tenant, user))
}

pub(crate) fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn tenant_link(tenant: &TenantId) -> Value {
    Value::Link(name(Kind::Tenant, tenant.as_str()))
}

fn user_name(tenant: &TenantId, user: &UserId) -> Link {
    name(Kind::User, &format!("{tenant}/{user}"))
}

fn name(kind: Kind, id: &str) -> Link {
    Link { kind, id: id.to_owned() }
}

/// What is more than Cedar's largest number is that number: no limit is met by being too large to say.
fn long(value: u64) -> Value {
    Value::Long(i64::try_from(value).unwrap_or(i64::MAX))
}

fn texts(values: &BTreeSet<String>) -> Value {
    Value::Set(values.iter().map(|value| text(value)).collect())
}

fn optional<'a, const N: usize>(
    values: [(&'static str, &'a Option<String>); N],
) -> impl Iterator<Item = (&'static str, Value)> + use<'a, N> {
    values.into_iter().filter_map(|(name, value)| Some((name, text(value.as_deref()?))))
}

fn subject(link: Link, attributes: impl IntoIterator<Item = (&'static str, Value)>) -> Subject {
    let attributes = attributes.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect();
    Subject { link, attributes }
}
