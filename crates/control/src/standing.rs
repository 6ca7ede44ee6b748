//! Whose rights hold at this moment: kept in memory, so that a request asks no disk and no cache can be stale.
//!
//! The database is written first, then this, then whoever asked for the change is answered. Everything that lives long
//! watches [`Standing::end_of`], which is over as soon as the rights behind it are.

mod keys;
mod rights;
mod seen;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bailey_policy::{CredentialId, CredentialKind, Principal};
use bailey_protocol::api::identity::AccountKind;
use bailey_protocol::id::{TenantId, UserId};
use tokio::sync::watch;

use crate::auth::Identity;
use crate::clock::Clock;
use crate::db::{ForgottenNames, StandingRows};
use crate::turns::Turns;

pub(crate) use keys::KEY_PREFIX;
pub(crate) use keys::Keys;
pub(crate) use rights::Followed;
pub use rights::Rights;
pub(crate) use seen::Seen;

/// Longest sleep until a time is looked at again: a clock that jumps is noticed within it.
const LOOK: Duration = Duration::from_millis(500);

/// Why somebody's rights do not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The tenant is disabled.
    #[error("the tenant is disabled")]
    Tenant,
    /// The user is disabled.
    #[error("the user is disabled")]
    User,
    /// The service account or operator is disabled.
    #[error("the account is disabled")]
    Account,
    /// The credential was revoked.
    #[error("the credential is revoked")]
    Revoked,
    /// The credential's time is over.
    #[error("the credential is expired")]
    Expired,
}

/// How long past its end a revoked credential is remembered: longer than what it started goes on.
const REMEMBERED_MS: u64 = 24 * 3600 * 1000;

/// Who is disabled and which keys hold.
#[derive(Debug)]
pub(crate) struct Standing {
    disabled: RwLock<Names>,
    /// API keys.
    pub(crate) keys: Keys,
    /// What those have now who made a key or a tree token.
    pub(crate) followed: Followed,
    /// Who was seen, until it is written down.
    pub(crate) seen: Seen,
    /// Held by whoever changes the database and then this: one of them, of a tenant or of an operator's.
    pub(crate) turn: Turns<Option<TenantId>>,
    /// Held by whoever writes down who was seen.
    pub(crate) notes_turn: tokio::sync::Mutex<()>,
    /// Counts changes, for those who watch.
    changes: watch::Sender<u64>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Names {
    tenants: HashSet<TenantId>,
    users: HashSet<(TenantId, UserId)>,
    /// Of a tenant those who are disabled and forgotten.
    forgotten: HashMap<TenantId, ForgottenNames>,
    accounts: HashSet<(AccountKind, String)>,
    /// Credentials other than keys that were revoked in this life of the server, and until when that matters.
    credentials: HashMap<CredentialId, u64>,
}

impl Standing {
    pub(crate) fn new(rows: StandingRows, clock: Clock) -> Self {
        let (tenants, users) = (rows.tenants.into_iter().collect(), rows.users.into_iter().collect());
        let forgotten = rows.forgotten.into_iter().map(|names| (names.tenant.clone(), names)).collect();
        let accounts = rows.accounts.into_iter().map(|account| (account.kind, account.name.to_string())).collect();
        let followed = Followed::default();
        for ((tenant, user), known) in rows.makers {
            followed.follow(&tenant, &user, known);
        }
        Self {
            disabled: RwLock::new(Names { tenants, users, forgotten, accounts, credentials: HashMap::new() }),
            keys: Keys::new(rows.keys),
            followed,
            seen: Seen::default(),
            turn: Turns::new(1, 1),
            notes_turn: tokio::sync::Mutex::default(),
            changes: watch::channel(0).0,
            clock,
        }
    }

    /// Whether whoever asks may, now.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn check(&self, identity: &Identity) -> Result<(), Ended> {
        self.check_identity(identity)?;
        if self.clock.now_ms() >= valid_until_ms(identity) { Err(Ended::Expired) } else { Ok(()) }
    }

    /// As [`Standing::check`], the credential's time aside.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn check_identity(&self, identity: &Identity) -> Result<(), Ended> {
        match identity {
            Identity::User(principal) => self.check_rights(principal),
            Identity::Service(service) => self.check_account(AccountKind::Service, &service.name),
            Identity::Operator(operator) => self.check_account(AccountKind::Operator, &operator.name),
        }
    }

    /// Whether a user's rights hold, the credential's time aside.
    ///
    /// # Errors
    /// When they do not.
    pub(crate) fn check_rights(&self, principal: &Principal) -> Result<(), Ended> {
        self.check_user(&principal.tenant, &principal.user)?;
        match principal.credential.kind {
            CredentialKind::ApiKey => {
                let creator = self.keys.creator(&principal.credential.id).ok_or(Ended::Revoked)?;
                self.check_user(&principal.tenant, &creator)
            }
            CredentialKind::Token | CredentialKind::TreeToken | CredentialKind::Exchanged => {
                if let Some(actor) = &principal.actor {
                    self.check_account(AccountKind::Service, actor)?;
                }
                let names = self.disabled.read().unwrap_or_else(PoisonError::into_inner);
                if names.credentials.contains_key(&principal.credential) { Err(Ended::Revoked) } else { Ok(()) }
            }
        }
    }

    /// Who asks by what is known now: a key or a tree token that does something long has no more, while it does, than its
    /// maker.
    pub(crate) fn narrowed<'a>(&self, principal: &'a Principal) -> Cow<'a, Principal> {
        match principal.credential.kind {
            CredentialKind::ApiKey => match self.keys.creator(&principal.credential.id) {
                Some(creator) => self.followed.narrowed(principal, &creator),
                // Revoked: whoever asks is refused for that.
                None => Cow::Borrowed(principal),
            },
            CredentialKind::TreeToken => self.followed.narrowed(principal, &principal.user),
            CredentialKind::Token | CredentialKind::Exchanged => Cow::Borrowed(principal),
        }
    }

    /// Whether a user may ask at all.
    ///
    /// # Errors
    /// When it, or its tenant, is disabled.
    pub(crate) fn check_user(&self, tenant: &TenantId, user: &UserId) -> Result<(), Ended> {
        let names = self.disabled.read().unwrap_or_else(PoisonError::into_inner);
        if names.tenants.contains(tenant) {
            return Err(Ended::Tenant);
        }
        // A pair has to be owned to be looked up; most servers have nobody disabled.
        if !names.users.is_empty() && names.users.contains(&(tenant.clone(), user.clone())) {
            return Err(Ended::User);
        }
        if !names.forgotten.is_empty() && names.forgotten.get(tenant).is_some_and(|names| names.holds(user)) {
            return Err(Ended::User);
        }
        Ok(())
    }

    /// Whether a service account or an operator may ask at all.
    ///
    /// # Errors
    /// When it is disabled.
    fn check_account(&self, kind: AccountKind, name: &str) -> Result<(), Ended> {
        let names = self.disabled.read().unwrap_or_else(PoisonError::into_inner);
        let disabled = !names.accounts.is_empty() && names.accounts.contains(&(kind, name.to_owned()));
        if disabled { Err(Ended::Account) } else { Ok(()) }
    }

    /// Takes over what the database says of a service account or an operator.
    pub(crate) fn set_account_disabled(&self, kind: AccountKind, name: &UserId, disabled: bool) {
        {
            let mut names = self.disabled.write().unwrap_or_else(PoisonError::into_inner);
            let account = (kind, name.to_string());
            if disabled {
                names.accounts.insert(account)
            } else {
                names.accounts.remove(&account)
            };
        }
        self.changed();
    }

    /// Takes over what the database says of a tenant (`user` is `None`) or a user.
    pub(crate) fn set_disabled(&self, tenant: &TenantId, user: Option<&UserId>, disabled: bool) {
        {
            let mut names = self.disabled.write().unwrap_or_else(PoisonError::into_inner);
            match (user, disabled) {
                (None, true) => names.tenants.insert(tenant.clone()),
                (None, false) => names.tenants.remove(tenant),
                (Some(user), true) => names.users.insert((tenant.clone(), user.clone())),
                (Some(user), false) => {
                    if let Some(forgotten) = names.forgotten.get_mut(tenant) {
                        forgotten.hashes.remove(&ForgottenNames::hash(&forgotten.salt, user));
                    }
                    names.users.remove(&(tenant.clone(), user.clone()))
                }
            };
        }
        self.changed();
    }

    /// Takes over which of a tenant's users are disabled and forgotten, of whom `user` is one now.
    pub(crate) fn set_forgotten(&self, user: &UserId, forgotten: ForgottenNames) {
        {
            let mut names = self.disabled.write().unwrap_or_else(PoisonError::into_inner);
            let tenant = forgotten.tenant.clone();
            names.forgotten.insert(tenant.clone(), forgotten);
            names.users.remove(&(tenant, user.clone()));
        }
        self.changed();
    }

    /// Ends everything that a credential other than an API key started. Whoever checks such a credential has to refuse
    /// it from now on; this is for what is under way. That is remembered until nothing is any more that began before
    /// `expires_ms`.
    pub(crate) fn revoke(&self, credential: CredentialId, expires_ms: u64) {
        let now_ms = self.clock.now_ms();
        let mut names = self.disabled.write().unwrap_or_else(PoisonError::into_inner);
        names.credentials.retain(|_, until_ms| *until_ms > now_ms);
        names.credentials.insert(credential, expires_ms.saturating_add(REMEMBERED_MS));
        drop(names);
        self.changed();
    }

    /// Has everybody who watches look again.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Over as soon as the rights of whoever asks are, at `patience_ms` past the credential's time for that.
    ///
    /// CANCEL: it only watches.
    pub(crate) async fn end_of(&self, identity: &Identity, patience_ms: u64) -> Ended {
        let mut changes = self.changes.subscribe();
        let end_ms = valid_until_ms(identity).saturating_add(patience_ms);
        loop {
            changes.borrow_and_update();
            if let Err(ended) = self.check_identity(identity) {
                return ended;
            }
            let left = end_ms.saturating_sub(self.clock.now_ms());
            if left == 0 {
                return Ended::Expired;
            }
            let look =
                if end_ms == u64::MAX { Duration::from_secs(3600) } else { LOOK.min(Duration::from_millis(left)) };
            // The sender lives in `self`: an error cannot be.
            drop(tokio::time::timeout(look, changes.changed()).await);
        }
    }
}

fn valid_until_ms(identity: &Identity) -> u64 {
    match identity {
        Identity::User(principal) => principal.valid_until_ms,
        Identity::Service(service) => service.valid_until_ms,
        Identity::Operator(operator) => operator.valid_until_ms,
    }
}
