//! What can be asked for. The names are those of the schema.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::request::Kind;

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What somebody wants to do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Action {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Action {
            /// Every action.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in the schema, in denials and in the audit.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

actions! {
    /// Read a file.
    TreeRead = "tree_read",
    /// List a folder.
    TreeList = "tree_list",
    /// List the versions of a path, or who wrote its lines.
    TreeHistory = "tree_history",
    /// Compare two versions of a path.
    TreeDiff = "tree_diff",
    /// Write a file or make a folder.
    TreeWrite = "tree_write",
    /// Delete a path.
    TreeDelete = "tree_delete",
    /// Make a branch.
    TreeFork = "tree_fork",
    /// Bring one branch's changes into another.
    TreePromote = "tree_promote",
    /// Protect a branch, or end that.
    TreeProtect = "tree_protect",
    /// Label a path, or take labels off.
    TreeLabel = "tree_label",
    /// Hand out a token for a part of the tree.
    TreeShare = "tree_share",
    /// See one's tokens for parts of the tree, and take them back.
    TreeUnshare = "tree_unshare",
    /// Fetch a whole store with git.
    TreeClone = "tree_clone",
    /// Send versions with git.
    TreePush = "tree_push",
    /// Take a path out of all history.
    TreePurge = "tree_purge",
    /// Give a slice to a run.
    MountRead = "mount_read",
    /// Commit what a run changed under a slice.
    MountWrite = "mount_write",
    /// Run code.
    RunCreate = "run_create",
    /// Let the code use `sudo` inside its sandbox.
    RunAsRoot = "run_as_root",
    /// See a run and its output.
    RunRead = "run_read",
    /// List runs.
    RunList = "run_list",
    /// Kill a run.
    RunCancel = "run_cancel",
    /// List the tenant's users.
    UserList = "user_list",
    /// Disable a user of the tenant.
    UserDisable = "user_disable",
    /// Forget a user.
    UserForget = "user_forget",
    /// Enable a user of the tenant again.
    UserEnable = "user_enable",
    /// Make an API key.
    KeyCreate = "key_create",
    /// List API keys.
    KeyList = "key_list",
    /// Revoke an API key.
    KeyRevoke = "key_revoke",
    /// Read the tenant's own policies.
    PolicyRead = "policy_read",
    /// Change the tenant's own policies.
    PolicyWrite = "policy_write",
    /// Ask why something is allowed or denied.
    PolicyExplain = "policy_explain",
    /// Read the tenant's audit.
    AuditRead = "audit_read",
    /// See what is known of the tenant.
    TenantRead = "tenant_read",
    /// Exchange a service account's token for a user's.
    TokenExchange = "token_exchange",
    /// List tenants.
    TenantList = "tenant_list",
    /// Disable a tenant.
    TenantDisable = "tenant_disable",
    /// Enable a tenant again.
    TenantEnable = "tenant_enable",
    /// List a tenant's users.
    TenantUserList = "tenant_user_list",
    /// Disable a user of a tenant.
    TenantUserDisable = "tenant_user_disable",
    /// Enable a user of a tenant again.
    TenantUserEnable = "tenant_user_enable",
    /// Forget a user of a tenant.
    TenantUserForget = "tenant_user_forget",
    /// See what a tenant may keep, and does.
    QuotaRead = "quota_read",
    /// Set what a tenant may keep.
    QuotaSet = "quota_set",
    /// Let a tenant keep what is usual.
    QuotaReset = "quota_reset",
    /// See what is noted of a tenant.
    FactsRead = "facts_read",
    /// Note a tenant's region and plan.
    FactsSet = "facts_set",
    /// Collect the garbage of a tenant's stores.
    GarbageCollect = "garbage_collect",
    /// Read a tenant's audit, without names and details.
    TenantAudit = "tenant_audit",
    /// List the service accounts and operators that are disabled.
    AccountList = "account_list",
    /// Disable a service account or an operator.
    AccountDisable = "account_disable",
    /// Enable a service account or an operator again.
    AccountEnable = "account_enable",
    /// Read the operators' own audit.
    OperatorAudit = "operator_audit",
    /// List what is published for every tenant to fork from.
    BaselineList = "baseline_list",
    /// Publish a folder that every tenant may fork from.
    BaselinePublish = "baseline_publish",
    /// See which policies are in force.
    PolicyStatus = "policy_status",
    /// Try other policies on what was asked.
    PolicyDryRun = "policy_dry_run",
    /// Read the server's figures.
    MetricsRead = "metrics_read",
}

/// Declares the actions that one kind of question is about.
macro_rules! kinds_of_action {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $action:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }

        impl From<$name> for Action {
            fn from(action: $name) -> Self {
                match action {
                    $($name::$variant => Self::$action,)*
                }
            }
        }
    };
}
pub(crate) use kinds_of_action;

impl Action {
    /// What a user asks it about; none for what is no user's to ask.
    #[must_use]
    pub fn about(self) -> Option<Kind> {
        Some(match self {
            Self::TreeRead
            | Self::TreeList
            | Self::TreeHistory
            | Self::TreeDiff
            | Self::TreeWrite
            | Self::TreeDelete
            | Self::TreeFork
            | Self::TreePromote
            | Self::TreeProtect
            | Self::TreeLabel
            | Self::TreeShare
            | Self::TreeUnshare
            | Self::TreeClone
            | Self::TreePush
            | Self::TreePurge
            | Self::MountRead
            | Self::MountWrite => Kind::Path,
            Self::RunCreate | Self::RunAsRoot => Kind::Sandbox,
            Self::RunRead | Self::RunCancel => Kind::Run,
            Self::RunList
            | Self::UserList
            | Self::UserDisable
            | Self::UserForget
            | Self::UserEnable
            | Self::KeyCreate
            | Self::KeyList
            | Self::KeyRevoke
            | Self::PolicyRead
            | Self::PolicyWrite
            | Self::PolicyExplain
            | Self::AuditRead
            | Self::TenantRead => Kind::Tenant,
            Self::TokenExchange
            | Self::TenantList
            | Self::TenantDisable
            | Self::TenantEnable
            | Self::TenantUserList
            | Self::TenantUserDisable
            | Self::TenantUserEnable
            | Self::TenantUserForget
            | Self::QuotaRead
            | Self::QuotaSet
            | Self::QuotaReset
            | Self::FactsRead
            | Self::FactsSet
            | Self::GarbageCollect
            | Self::TenantAudit
            | Self::AccountList
            | Self::AccountDisable
            | Self::AccountEnable
            | Self::OperatorAudit
            | Self::BaselineList
            | Self::BaselinePublish
            | Self::PolicyStatus
            | Self::PolicyDryRun
            | Self::MetricsRead => return None,
        })
    }

    /// Whether it is about a path or a run: what a credential for paths may be for. The rest is about a whole tenant, where
    /// paths would narrow nothing.
    #[must_use]
    pub fn fits_paths(self) -> bool {
        match self.about() {
            Some(Kind::Path | Kind::Sandbox | Kind::Run) => true,
            // It lists what the paths let be seen.
            Some(_) | None => self == Self::RunList,
        }
    }

    /// Whether it only looks: what a credential for reading may do.
    #[must_use]
    pub fn reads(self) -> bool {
        match self {
            Self::TreeRead
            | Self::TreeList
            | Self::TreeHistory
            | Self::TreeDiff
            | Self::TreeClone
            | Self::MountRead
            | Self::RunRead
            | Self::RunList
            | Self::UserList
            | Self::KeyList
            | Self::PolicyRead
            | Self::PolicyExplain
            | Self::AuditRead
            | Self::TenantRead
            | Self::TenantList
            | Self::TenantUserList
            | Self::QuotaRead
            | Self::FactsRead
            | Self::TenantAudit
            | Self::AccountList
            | Self::OperatorAudit
            | Self::BaselineList
            | Self::PolicyStatus
            | Self::PolicyDryRun
            | Self::MetricsRead => true,
            Self::TreeWrite
            | Self::TreeDelete
            | Self::TreeFork
            | Self::TreePromote
            | Self::TreeProtect
            | Self::TreeLabel
            | Self::TreeShare
            | Self::TreeUnshare
            | Self::TreePush
            | Self::TreePurge
            | Self::MountWrite
            | Self::RunCreate
            | Self::RunAsRoot
            | Self::RunCancel
            | Self::UserDisable
            | Self::UserForget
            | Self::UserEnable
            | Self::AccountDisable
            | Self::AccountEnable
            | Self::KeyCreate
            | Self::KeyRevoke
            | Self::PolicyWrite
            | Self::TokenExchange
            | Self::TenantDisable
            | Self::TenantEnable
            | Self::TenantUserDisable
            | Self::TenantUserEnable
            | Self::TenantUserForget
            | Self::QuotaSet
            | Self::QuotaReset
            | Self::FactsSet
            | Self::GarbageCollect
            | Self::BaselinePublish => false,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is not an action, and the one that is most like it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not an action{}", nearest.map(|nearest| format!(": the nearest is `{nearest}`")).unwrap_or_default())]
pub struct UnknownAction {
    name: String,
    nearest: Option<&'static str>,
}

impl UnknownAction {
    /// That `name` is none of `known`.
    #[must_use]
    pub fn among(name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        let name: String = name.chars().take(64).collect();
        let near = known.into_iter().map(|known| (edits(&name, known), known)).min();
        let nearest = near.filter(|(edits, known)| edits * 3 <= known.len()).map(|(_, known)| known);
        Self { name: name.escape_default().collect(), nearest }
    }
}

/// How many letters have to be put in, taken out or replaced to make one of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, letter) in (1..).zip(one.chars()) {
        let mut next = vec![above];
        for (wanted, costs) in other.chars().zip(row.windows(2)) {
            let ([replaced, out], Some(put_in)) = (costs, next.last()) else { continue };
            next.push((replaced + usize::from(letter != wanted)).min(out + 1).min(put_in + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

impl std::str::FromStr for Action {
    type Err = UnknownAction;

    fn from_str(name: &str) -> Result<Self, UnknownAction> {
        let known = Self::ALL.iter().copied().find(|action| action.as_str() == name);
        known.ok_or_else(|| UnknownAction::among(name, Self::ALL.iter().map(|action| action.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_every_action() {
        let document = include_str!("../../../docs/policy.md");
        let missing: Vec<_> = Action::ALL.iter().filter(|action| !document.contains(&format!("`{action}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_is_no_action_is_told_with_the_nearest_that_is() {
        for (name, nearest) in [
            ("tree_raed", Some("tree_read")),
            ("treewrite", Some("tree_write")),
            ("Run_Create", Some("run_create")),
            ("audit", None),
            ("", None),
            ("\u{1f600}\n", None),
        ] {
            let error = name.parse::<Action>().unwrap_err();
            assert_eq!(error.nearest, nearest, "{name}");
            assert_eq!(error.to_string().contains("nearest"), nearest.is_some(), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert_eq!((edits("", "abc"), edits("abc", ""), edits("abc", "abc"), edits("kitten", "sitting")), (3, 3, 0, 3));
    }
}
