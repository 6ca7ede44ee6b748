//! Policies through the API: a tenant's own, why something is allowed or denied, and what other policies would say.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{RunId, UserId};
use crate::path::{BranchName, TreePath};

/// Most files of an operator's folder of policies.
pub const MAX_FOLDER_FILES: usize = 256;
/// Most bytes of all of them.
pub const MAX_FOLDER_BYTES: usize = 4 * 1024 * 1024;

/// The body of `PUT /v1/policies/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyText {
    /// One whole `forbid` in Cedar.
    pub policy: String,
}

/// One of a tenant's own policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantPolicy {
    /// Its name; denials call it `tenant/NAME`.
    pub name: String,
    /// Its text.
    pub policy: String,
}

/// A tenant's own policies, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantPolicyList {
    /// All of them.
    pub policies: Vec<TenantPolicy>,
}

/// The body of `POST /v1/explain`: a request of the caller's own, on a path, a run, a sandbox or, with none of these, its
/// tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Such as `tree_read`.
    pub action: String,
    /// A path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<TreePath>,
    /// On which branch; `main` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
    /// A run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Whose request it would be, for admins; one's own without it. Roles and entitlements are those of its last token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
}

/// Why a request is answered as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainAnswer {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Of another user: when its roles and entitlements were seen, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_ms: Option<u64>,
    /// Of `run_create` and `run_as_root`: the sandbox that was asked about, which a run gets that names no other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub judged: BTreeMap<String, String>,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// Why it is denied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The smallest set of changes found that would turn the answer around.
    pub changes: Vec<ExplainChange>,
    /// How far it was looked: single changes known, most of them at once, questions put, and whether that was all.
    pub searched: ExplainSearched,
}

/// One attribute that would have to be another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainChange {
    /// Such as `principal.roles`.
    pub attribute: String,
    /// What it is, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// What it would be, if it were there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_be: Option<String>,
}

/// How far it was looked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainSearched {
    /// Single changes that policies suggest.
    pub candidates: u64,
    /// Most of them at once.
    pub at_once: u64,
    /// Questions put.
    pub asked: u64,
    /// Whether that was all there is to try.
    pub complete: bool,
}

/// Which policies are in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyState {
    /// How many, base rules included.
    pub policies: u64,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// `proven`, or why it is not known that tenants are apart.
    pub proof: String,
    /// Why the last change was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl PolicyState {
    /// What [`PolicyState::proof`] says of policies that are proven to keep tenants apart.
    pub const PROVEN: &str = "proven";

    /// Whether it is proven that tenants are apart.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.proof == Self::PROVEN
    }
}

/// The body of `POST /v1/operator/policies/dry-run`: an operator's folder as it would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRunRequest {
    /// Text by file name.
    pub files: BTreeMap<String, String>,
}

/// What other policies would have said in the last day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DryRunAnswer {
    /// Distinct requests that were put to them: the latest of each tenant, an equal share of 100,000.
    pub asked: u64,
    /// Allowed then, denied by them.
    pub newly_denied: Vec<DryRunRow>,
    /// Denied then, allowed by them.
    pub newly_allowed: Vec<DryRunRow>,
    /// Rows beyond those listed.
    pub more: u64,
}

/// Requests that would be answered otherwise, those of one kind together. Names of a tenant's users and what they asked
/// about are left out, as on the operator's audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DryRunRow {
    /// Whose users.
    pub principal: String,
    /// Do what.
    pub action: String,
    /// On what kind of thing.
    pub resource: String,
    /// How often, in that day, to the hour.
    pub count: u64,
    /// Last when, in milliseconds since 1970.
    pub last_ms: u64,
    /// By which policies it would be decided.
    pub by: Vec<String>,
}
