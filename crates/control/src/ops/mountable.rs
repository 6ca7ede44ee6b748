//! What policy says of each path of a slice: whoever mounts a folder reads all of it, and a rule may name a path below.
//!
//! What was allowed is remembered for a moment by everything it was decided on, so that mounting the same slice again and
//! again asks once. A denial is not.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bailey_policy::{PathReadPermit, Policies, ReadAction};
use bailey_protocol::id::{TreeId, VersionId};
use bailey_tree::Store;
use sha2::{Digest, Sha256};

use super::judge::branch_of;
use super::readable::Readable;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};

/// Slices that are remembered.
const MAX_REMEMBERED: usize = 256;
/// How long: rules may look at the time.
const REMEMBERED_MS: u64 = 10_000;

/// Refuses unless everything in the slice may be mounted, by the policies in force now. The denial names the path and is
/// on the audit.
///
/// # Errors
/// When a path is denied, there are too many to ask about, or the version cannot be read.
pub(super) async fn check(
    control: &Control,
    caller: &Caller,
    permit: &PathReadPermit,
    (store, version): (&Store, Option<&VersionId>),
    tree: &TreeId,
) -> Result<(), ApiError> {
    let Some(version) = version.cloned() else { return Ok(()) };
    let readable = Readable::new(control, caller, ReadAction::Mount, permit.path(), permit.revision()).await?;
    let (policies, now_ms) = (readable.policies().clone(), control.now_ms());
    let key = key(control, caller, permit, tree);
    if control.mountable().knows(&key, &policies, now_ms) {
        return Ok(());
    }
    let store = store.clone();
    let asks = readable.decides();
    control.asking_many(caller, asks, move |pace| readable.all(pace, &store, &version)).await?;
    control.mountable().learn(key, policies, now_ms);
    Ok(())
}

/// Everything that the decisions are made on but the policies and the time.
fn key(control: &Control, caller: &Caller, permit: &PathReadPermit, tree: &TreeId) -> Key {
    let mut principal = control.standing().narrowed(&caller.principal).into_owned();
    // Which credential it is no policy sees, only of which kind.
    principal.credential.id.clear();
    (principal.issued_s, principal.valid_until_ms) = (0, 0);
    let (path, meta) = (permit.path(), control.tree_meta());
    let revision = permit.revision();
    let protected = branch_of(revision).is_some_and(|branch| meta.protection(path.repo(), branch).is_some());
    let (labels, tenant) = (meta.generation(path.repo()), control.tenant_facts().of(&principal.tenant));
    let wall = caller.wall;
    Sha256::digest(format!(
        "{principal:?}\0{wall:?}\0{tenant:?}\0{path:?}\0{revision:?}\0{protected}\0{tree}\0{labels}"
    ))
    .into()
}

type Key = [u8; 32];

/// Slices that were allowed to somebody, a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Mountable(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    key: Key,
    /// Held, so that no other set can be taken for it.
    policies: Policies,
    since_ms: u64,
}

impl Mountable {
    fn knows(&self, key: &Key, policies: &Policies, now_ms: u64) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|known| {
            let fresh = now_ms >= known.since_ms && now_ms - known.since_ms < REMEMBERED_MS;
            fresh && known.key == *key && known.policies.is(policies)
        })
    }

    fn learn(&self, key: Key, policies: Policies, now_ms: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| known.key != key);
        if known.len() >= MAX_REMEMBERED {
            known.pop_front();
        }
        known.push_back(Known { key, policies, since_ms: now_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allowed_is_known_for_a_moment_and_under_the_same_policies() {
        let (set, same_text) = (Policies::new(&[]).unwrap(), Policies::new(&[]).unwrap());
        let mountable = Mountable::default();
        mountable.learn([1; 32], set.clone(), 1_000);
        assert!(mountable.knows(&[1; 32], &set, 1_000 + REMEMBERED_MS - 1));
        assert!(!mountable.knows(&[1; 32], &set, 1_000 + REMEMBERED_MS));
        assert!(!mountable.knows(&[1; 32], &set, 999), "a clock that went back");
        assert!(!mountable.knows(&[1; 32], &same_text, 1_000));
        assert!(!mountable.knows(&[2; 32], &set, 1_000));
        for n in 0..MAX_REMEMBERED {
            mountable.learn([u8::try_from(n % 256).unwrap(); 32], set.clone(), u64::try_from(n).unwrap());
        }
        assert!(mountable.0.lock().unwrap().len() <= MAX_REMEMBERED);
    }
}
