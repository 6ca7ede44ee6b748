//! What users have, as their newest tokens say. It moves forward by `iat` only: a token that was issued before another
//! brings nothing back that the other lacks, whichever is seen last and whichever issuer it is from. What two tokens of one
//! second say differently nobody can put in order: then what both say holds, until a later one is seen.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};

use bailey_policy::{Entitlement, Principal};
use bailey_protocol::id::{TenantId, UserId};

/// What the newest token of a user's own said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Its `iat`, in seconds since 1970.
    pub issued_s: u64,
    /// Until when it holds, in milliseconds since 1970.
    pub valid_until_ms: u64,
    /// Roles.
    pub roles: BTreeSet<String>,
    /// Entitlements.
    pub entitlements: BTreeSet<Entitlement>,
    /// Where it is at home.
    pub region: Option<String>,
    /// What it works on.
    pub project: Option<String>,
}

impl Rights {
    pub(crate) fn of(principal: &Principal) -> Self {
        Self {
            issued_s: principal.issued_s,
            valid_until_ms: principal.valid_until_ms,
            roles: principal.roles.clone(),
            entitlements: principal.entitlements.clone(),
            region: principal.region.clone(),
            project: principal.project.clone(),
        }
    }

    /// Whether [`Rights::learn`] could change anything: what most requests ask.
    pub(super) fn may_learn(&self, principal: &Principal) -> bool {
        let rights = || self.roles == principal.roles && self.entitlements == principal.entitlements;
        let labels = || self.region == principal.region && self.project == principal.project;
        principal.issued_s > self.issued_s || principal.issued_s == self.issued_s && !(rights() && labels())
    }

    /// Takes in what another token said, in whichever order the two come; whether that changed anything.
    pub(crate) fn learn(&mut self, other: &Self) -> bool {
        match other.issued_s.cmp(&self.issued_s) {
            Ordering::Less => false,
            Ordering::Greater => {
                self.clone_from(other);
                true
            }
            Ordering::Equal => {
                let before = self.clone();
                self.roles.retain(|role| other.roles.contains(role));
                self.entitlements.retain(|entitlement| other.entitlements.contains(entitlement));
                self.region = self.region.take().filter(|region| other.region.as_ref() == Some(region));
                self.project = self.project.take().filter(|project| other.project.as_ref() == Some(project));
                let changed = *self != before;
                self.valid_until_ms = self.valid_until_ms.min(other.valid_until_ms);
                changed
            }
        }
    }

    fn lacks_some_of(&self, before: &Self) -> bool {
        !before.roles.is_subset(&self.roles) || !before.entitlements.is_subset(&self.entitlements)
    }
}

/// The rights of everybody who made a key or a tree token: neither has more than its maker.
#[derive(Debug, Default)]
pub(crate) struct Followed(RwLock<HashMap<(TenantId, UserId), Option<Rights>>>);

impl Followed {
    /// Follows a user from now on, of whom this much is known.
    pub(crate) fn follow(&self, tenant: &TenantId, user: &UserId, known: Option<Rights>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let held = all.entry((tenant.clone(), user.clone())).or_default();
        match (held, known) {
            (Some(held), Some(known)) => {
                held.learn(&known);
            }
            (held @ None, known) => *held = known,
            (Some(_), None) => {}
        }
    }

    /// Takes note of what a user's token says, where the user is followed; whether it may have lost something.
    pub(crate) fn learn(&self, principal: &Principal) -> bool {
        let user = (principal.tenant.clone(), principal.user.clone());
        match self.0.read().unwrap_or_else(PoisonError::into_inner).get(&user) {
            None => return false,
            Some(Some(known)) if !known.may_learn(principal) => return false,
            Some(Some(_) | None) => {}
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(&user) {
            None => false,
            Some(Some(known)) => {
                let before = known.clone();
                known.learn(&Rights::of(principal)) && known.lacks_some_of(&before)
            }
            Some(unknown @ None) => {
                *unknown = Some(Rights::of(principal));
                true
            }
        }
    }

    /// The principal with no role and no entitlement that its maker, `user` of its tenant, is known to lack.
    pub(super) fn narrowed<'a>(&self, principal: &'a Principal, user: &UserId) -> Cow<'a, Principal> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match all.get(&(principal.tenant.clone(), user.clone())) {
            Some(Some(rights))
                if !principal.roles.is_subset(&rights.roles)
                    || !principal.entitlements.is_subset(&rights.entitlements) =>
            {
                let mut less = principal.clone();
                less.roles.retain(|role| rights.roles.contains(role));
                less.entitlements.retain(|entitlement| rights.entitlements.contains(entitlement));
                Cow::Owned(less)
            }
            Some(_) | None => Cow::Borrowed(principal),
        }
    }

    /// Forgets a user.
    pub(crate) fn forget(&self, tenant: &TenantId, user: &UserId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&(tenant.clone(), user.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(issued_s: u64, roles: &[&str]) -> Principal {
        let mut ana = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
        ana.issued_s = issued_s;
        ana.roles = roles.iter().map(|role| (*role).to_owned()).collect();
        ana
    }

    /// What is known once these were seen, one after the other.
    fn known(seen: &[(u64, &[&str])]) -> Vec<String> {
        let mut all = seen.iter().map(|(issued, roles)| Rights::of(&said(*issued, roles)));
        let mut known = all.next().unwrap();
        for other in all {
            known.learn(&other);
        }
        known.roles.into_iter().collect()
    }

    #[test]
    fn what_is_known_moves_forward_only() {
        assert_eq!(known(&[(1, &["a"]), (2, &["b"])]), ["b"]);
        assert_eq!(known(&[(2, &["b"]), (1, &["a", "b"])]), ["b"]);
        assert_eq!(known(&[(2, &["b"]), (1, &["a"])]), ["b"]);
        assert_eq!(known(&[(2, &["a", "b"]), (2, &["b", "c"])]), ["b"]);
        assert_eq!(known(&[(2, &["b", "c"]), (2, &["a", "b"]), (2, &["a", "b", "c"])]), ["b"]);
        assert_eq!(known(&[(2, &[]), (1, &["a"]), (3, &["a"]), (2, &[])]), ["a"]);
    }

    #[test]
    fn who_is_followed_gives_no_more_than_it_has() {
        let followed = Followed::default();
        let (old, new) = (said(1, &["admin", "member"]), said(2, &["member"]));
        assert!(!followed.learn(&new), "nobody follows it");
        followed.follow(&old.tenant, &old.user, None);
        assert!(followed.learn(&old), "it may have lost anything");
        assert!(followed.learn(&new));
        for _ in 0..2 {
            assert!(!followed.learn(&old));
            assert_eq!(followed.narrowed(&old, &old.user).roles, new.roles);
        }
        followed.follow(&old.tenant, &old.user, Some(Rights::of(&old)));
        assert_eq!(followed.narrowed(&old, &old.user).roles, new.roles);
        assert_eq!(*followed.narrowed(&old, &"bob".parse().unwrap()), old);
    }
}
