//! Questions written by people, with the answer that they expect: an operator's own tests of its policies.

use std::collections::BTreeSet;

use bailey_protocol::id::{RunId, TemplateName, TenantId, UserId};
use bailey_protocol::label::Label;
use bailey_protocol::limits::Limits;
use bailey_protocol::path::TreePath;
use bailey_protocol::wall::WallKind;
use serde::Deserialize;

use crate::action::Action;
use crate::facts::{PathFacts, RunFacts, RunPlan, TenantFacts};
use crate::policies::Policies;
use crate::principal::CredentialId;
use crate::principal::{CredentialKind, Entitlement, Operator, Principal, ServedTenants, ServiceAccount};
use crate::request::{Request, Subject, Value};
use crate::subjects::{self, text};

/// A file of cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// The cases.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One question and its expected answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// Who asks.
    pub principal: CasePrincipal,
    /// For what.
    pub action: Action,
    /// On what.
    pub resource: CaseResource,
    /// What the operator noted of the user's tenant.
    #[serde(default)]
    pub tenant: CaseTenant,
    /// What else is known.
    #[serde(default)]
    pub context: CaseContext,
    /// What is expected.
    pub expect: Expected,
    /// Ids of the policies that are expected to decide, where that matters.
    #[serde(default)]
    pub by: Option<BTreeSet<String>>,
}

/// An expected answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
}

/// Who asks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub enum CasePrincipal {
    /// A user of a tenant.
    User(CaseUser),
    /// An operator.
    Operator {
        /// Its name.
        operator: String,
        /// Its roles.
        #[serde(default)]
        roles: BTreeSet<String>,
    },
    /// A service account.
    Service {
        /// Its name.
        service: String,
        /// Its roles.
        #[serde(default)]
        roles: BTreeSet<String>,
        /// For whom it acts; all, where none are said.
        tenants: Option<BTreeSet<TenantId>>,
    },
}

/// A user of a tenant. Every entitlement, where none are said.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseUser {
    tenant: TenantId,
    user: UserId,
    #[serde(default)]
    roles: BTreeSet<String>,
    entitlements: Option<BTreeSet<Entitlement>>,
    region: Option<String>,
    project: Option<String>,
}

/// What is asked about.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum CaseResource {
    /// A path.
    Path(CasePath),
    /// A sandbox.
    Sandbox(CaseSandbox),
    /// A run of some user.
    Run {
        /// Whose.
        tenant: TenantId,
        /// Of whom.
        user: UserId,
    },
    /// A tenant.
    Tenant(TenantId),
    /// The server: `true`.
    System(bool),
}

/// A path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CasePath {
    at: TreePath,
    #[serde(default)]
    labels: BTreeSet<Label>,
    #[serde(default)]
    protected: bool,
}

/// A sandbox. What is not said is as a run without limits of its own gets it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseSandbox {
    wall: Option<WallKind>,
    template: Option<TemplateName>,
    cpu_millis: Option<u32>,
    memory_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    timeout_ms: Option<u64>,
}

/// What the operator noted of a tenant.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseTenant {
    region: Option<String>,
    plan: Option<String>,
}

/// What else is known of a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseContext {
    branch: Option<String>,
    from: Option<String>,
    /// Whether a run asks as its user.
    run: bool,
    /// Seconds since midnight, UTC, of the first of January 2026.
    second_of_day: u64,
    credential: Option<CredentialKind>,
    subject: Option<UserId>,
    /// What the content that would enter is shaped like.
    credential_shaped: BTreeSet<String>,
    /// Of the run that mounts; a container without it.
    wall: Option<WallKind>,
}

/// Why a case does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseError {
    /// The case cannot be put.
    #[error("it cannot be asked: {reason}")]
    Unaskable {
        /// Why.
        reason: String,
    },
    /// The answer is another.
    #[error("it is {answer} by `{}`{}", by.join("`, `"), if reason.is_empty() { String::new() } else { format!(": {reason}") })]
    Other {
        /// `allowed` or `denied`.
        answer: &'static str,
        /// By which policies.
        by: Vec<String>,
        /// Why.
        reason: String,
    },
}

/// 2026-01-01T00:00:00Z.
const DAY: u64 = 1_767_225_600_000;

impl Case {
    /// Puts the question to `policies`.
    ///
    /// # Errors
    /// When the answer is not the expected one.
    pub fn check(&self, policies: &Policies) -> Result<(), CaseError> {
        let answer = policies.ask(&self.request()?);
        if answer.broken {
            return Err(CaseError::Unaskable { reason: answer.reason });
        }
        let fits = answer.allowed == (self.expect == Expected::Allow)
            && self.by.as_ref().is_none_or(|by| answer.policies.iter().eq(by));
        if fits {
            return Ok(());
        }
        let word = if answer.allowed { "allowed" } else { "denied" };
        Err(CaseError::Other { answer: word, by: answer.policies, reason: answer.reason })
    }

    /// The question.
    ///
    /// # Errors
    /// When it cannot be put.
    pub fn request(&self) -> Result<Request, CaseError> {
        let credential =
            CredentialId { kind: self.context.credential.unwrap_or(CredentialKind::Token), id: String::new() };
        let tenant = TenantFacts { region: self.tenant.region.clone(), plan: self.tenant.plan.clone() };
        let user = self.user(credential.clone());
        let principal = match &self.principal {
            CasePrincipal::User(_) => user.as_ref().map(subjects::user),
            CasePrincipal::Operator { operator, roles } => {
                let (name, roles) = (operator.clone(), roles.clone());
                Some(subjects::operator(&Operator {
                    name,
                    roles,
                    valid_until_ms: u64::MAX,
                    credential: credential.clone(),
                }))
            }
            CasePrincipal::Service { service, roles, tenants } => {
                let tenants = tenants.clone().map_or(ServedTenants::All, ServedTenants::Only);
                let (name, roles) = (service.clone(), roles.clone());
                let entitlements = BTreeSet::new();
                let service = ServiceAccount {
                    name,
                    roles,
                    entitlements,
                    tenants,
                    valid_until_ms: u64::MAX,
                    credential: credential.clone(),
                };
                Some(subjects::service(&service))
            }
        };
        let unaskable = |reason: &str| CaseError::Unaskable { reason: reason.to_owned() };
        let principal = principal.ok_or_else(|| unaskable("nobody asks"))?;
        let resource =
            self.target(user.as_ref(), &tenant).ok_or_else(|| unaskable("only a user asks for a sandbox"))?;
        let own = user.as_ref().map(|user| subjects::tenant(&user.tenant, &tenant));
        let context = self.context(user.as_ref(), &credential);
        Ok(Request { principal, action: self.action, resource, tenant: own, context })
    }

    fn user(&self, credential: CredentialId) -> Option<Principal> {
        let CasePrincipal::User(user) = &self.principal else { return None };
        let CaseUser { tenant, user, roles, entitlements, region, project } = user.clone();
        let entitlements = entitlements.unwrap_or_else(|| Entitlement::ALL.into());
        Some(Principal { roles, entitlements, region, project, credential, ..Principal::new(tenant, user) })
    }

    fn target(&self, user: Option<&Principal>, known: &TenantFacts) -> Option<Subject> {
        let run = RunId::mint(0, [0; 10]);
        Some(match &self.resource {
            CaseResource::Path(CasePath { at, labels, protected }) => {
                subjects::path(&PathFacts { path: at.clone(), labels: labels.clone(), protected: *protected })
            }
            CaseResource::Sandbox(asked) => {
                let default = Limits::default();
                let limits = Limits {
                    cpu_millis: asked.cpu_millis.unwrap_or(default.cpu_millis),
                    memory_bytes: asked.memory_bytes.unwrap_or(default.memory_bytes),
                    disk_bytes: asked.disk_bytes.unwrap_or(default.disk_bytes),
                    timeout_ms: asked.timeout_ms.unwrap_or(default.timeout_ms),
                    ..default
                };
                let template = asked.template.clone().or_else(|| "base".parse().ok())?;
                let wall = asked.wall.unwrap_or(WallKind::Container);
                subjects::sandbox(user?, &RunPlan { wall, template, root: false, limits })
            }
            CaseResource::Run { tenant, user } => subjects::run(&RunFacts::plain(run, tenant.clone(), user.clone())),
            CaseResource::Tenant(tenant) => subjects::tenant(tenant, known),
            CaseResource::System(_) => subjects::system(),
        })
    }

    fn context(&self, user: Option<&Principal>, credential: &CredentialId) -> crate::request::Attributes {
        let CaseContext { branch, from, run, second_of_day, subject, wall, .. } = &self.context;
        let mounts = matches!(self.action, Action::MountRead | Action::MountWrite);
        let own = run.then(|| ("run", subjects::run_link(RunId::mint(0, [0; 10]).as_str())));
        let subject = user.zip(subject.as_ref()).map(|(user, subject)| subjects::user_link(&user.tenant, subject));
        let enters = [Action::TreeWrite, Action::MountWrite, Action::TreePush, Action::RunCreate];
        let shaped = self.context.credential_shaped.iter().map(|rule| text(rule)).collect();
        let pairs = [
            enters.contains(&self.action).then_some(("credential_shaped", Value::Set(shaped))),
            mounts.then(|| ("wall", text(wall.unwrap_or(WallKind::Container).as_str()))),
            Some(("time", Value::Time(DAY.saturating_add(second_of_day.saturating_mul(1000))))),
            Some(("credential", text(credential.kind.as_str()))),
            branch.as_deref().map(|branch| ("branch", text(branch))),
            from.as_deref().map(|from| ("from", text(from))),
            own,
            subject.map(|subject| ("subject", subject)),
        ];
        pairs.into_iter().flatten().map(|(name, value)| (name.into(), value)).collect()
    }
}
