//! What an allow opens. No permit can be made outside this crate, and none names another tenant's store.

mod store;
mod system;

use std::collections::BTreeSet;

use bailey_protocol::id::{RunId, TemplateName, TenantId, UserId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, RepoId, Revision, TreePath};
use bailey_protocol::wall::WallKind;

use crate::action::Action;
use crate::facts::{RunFacts, RunPlan};
use crate::judge::AdminAction;
use crate::principal::{CredentialId, Principal};
use crate::scope::Scope;

pub use store::{
    ClonePermit, ForkPermit, LabelPermit, PromotePermit, ProtectPermit, PurgePermit, PushPermit, SharePermit,
    UnsharePermit,
};
pub use system::{ExchangePermit, OperatorPermit, SystemGrant};

/// What every permit knows: who was allowed what, and by which policies.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    tenant: TenantId,
    user: UserId,
    made_by: Option<UserId>,
    run: Option<RunId>,
    actor: Option<String>,
    credential: CredentialId,
    action: Action,
    resource: String,
    policies: Vec<String>,
}

impl Grant {
    pub(crate) fn new(principal: &Principal, action: Action, resource: String, policies: Vec<String>) -> Self {
        let Principal { tenant, user, made_by, run, actor, credential, .. } = principal.clone();
        Self { tenant, user, made_by, run, actor, credential, action, resource, policies }
    }

    /// The principal's tenant.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The principal's user.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }

    /// Everybody whose doing it is: the user, and who made the key that acts as that user.
    #[must_use]
    pub fn persons(&self) -> BTreeSet<UserId> {
        [&self.user].into_iter().chain(&self.made_by).cloned().collect()
    }

    /// The run that asked as its user.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref()
    }

    /// What asked on the user's behalf.
    #[must_use]
    pub fn actor(&self) -> Option<&str> {
        self.actor.as_deref()
    }

    /// Which credential it asked with.
    #[must_use]
    pub fn credential(&self) -> &CredentialId {
        &self.credential
    }

    /// What was allowed.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action
    }

    /// On what, for the audit.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Ids of the policies that allowed it, sorted.
    #[must_use]
    pub fn policies(&self) -> &[String] {
        &self.policies
    }
}

/// A permit whose path lies in a store that is not the principal's. Base rules deny it first; this is the second
/// barrier, which holds even with every rule gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not in a store of tenant `{tenant}` or of its user who asks")]
pub struct ForeignStore {
    /// The path that the permit was made for.
    pub path: String,
    /// The principal's tenant.
    pub tenant: TenantId,
}

/// The one store, at the one revision, that a path permit opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreScope {
    repo: RepoId,
    revision: Revision,
}

impl StoreScope {
    /// The store: of the principal's tenant, shared or of the principal's user.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The branch or version that the decision was about.
    #[must_use]
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    fn open(grant: &Grant, path: &TreePath, revision: Revision) -> Result<Self, ForeignStore> {
        // INVARIANT: the store is named by the principal; the path only chooses between the two that it owns.
        let user = path.repo().user.as_ref().map(|_| grant.user.clone());
        let repo = RepoId { tenant: grant.tenant.clone(), user };
        if repo == *path.repo() {
            Ok(Self { repo, revision })
        } else {
            Err(ForeignStore { path: path.to_string(), tenant: grant.tenant.clone() })
        }
    }
}

macro_rules! permit {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, PartialEq, Eq)]
        pub struct $name {
            pub(crate) grant: Grant,
            $(pub(crate) $field: $kind,)*
        }

        impl $name {
            /// Who was allowed what.
            #[must_use]
            pub fn grant(&self) -> &Grant {
                &self.grant
            }

            /// The principal's tenant.
            #[must_use]
            pub fn tenant(&self) -> &TenantId {
                &self.grant.tenant
            }

            /// The principal's user.
            #[must_use]
            pub fn user(&self) -> &UserId {
                &self.grant.user
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(&self) -> &$kind {
                    &self.$field
                }
            )*
        }
    };
}

use permit;

permit!(
    /// Opens a path for reading.
    PathReadPermit {
        /// The path that was decided on.
        path: TreePath,
        /// The branch or version that was decided on.
        revision: Revision,
        /// The labels of the path that were decided with.
        labels: BTreeSet<Label>,
    }
);

permit!(
    /// Opens a path for writing, on one branch.
    PathWritePermit {
        /// The path that was decided on.
        path: TreePath,
        /// The branch that was decided on.
        branch: BranchName,
    }
);

permit!(
    /// Opens one run's creation, and everything its creator has to record about it.
    RunCreatePermit {
        /// The sandbox that was decided on.
        plan: RunPlan,
        /// What allowed `sudo` inside it, where the plan wants that.
        as_root: Option<Grant>,
    }
);

permit!(
    /// Opens one run's record and output.
    RunReadPermit {
        /// The run that was decided on.
        facts: RunFacts,
    }
);

permit!(
    /// Opens one run's end.
    RunCancelPermit {
        /// The run that was decided on.
        facts: RunFacts,
    }
);

permit!(
    /// Opens the list of the user's runs.
    RunListPermit {
        /// What the credential is narrowed to.
        scope: Option<Scope>,
    }
);

permit!(
    /// Opens why a user's requests are allowed or denied, and what is known of that user.
    ExplainPermit {
        /// The user, of the principal's tenant.
        subject: UserId,
    }
);

permit!(
    /// Opens what an admin may of its own tenant.
    AdminPermit {
        /// What was decided on.
        action: AdminAction,
    }
);

impl PathReadPermit {
    /// The store to open.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, self.revision.clone())
    }
}

impl PathWritePermit {
    /// The store to open.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(self.branch.clone()))
    }
}

impl RunListPermit {
    /// Whether a run of the user's belongs on its list.
    #[must_use]
    pub fn shows(&self, run: &RunFacts) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.shows(&self.grant.credential, run))
    }
}

impl RunCreatePermit {
    /// The wall that was decided on.
    #[must_use]
    pub fn wall(&self) -> WallKind {
        self.plan.wall
    }

    /// The template that was decided on.
    #[must_use]
    pub fn template(&self) -> &TemplateName {
        &self.plan.template
    }
}
