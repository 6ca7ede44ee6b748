//! What a path below a folder may have, so that `/tenants/…` and it together are still a path of the tree.

use bailey_protocol::change::NoticeReason;
use bailey_protocol::path::{MAX_PATH_BYTES, MAX_PATH_DEPTH, RepoId, bytes_of};

/// The room below one folder of one store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Longest path below.
    pub(crate) bytes: usize,
    /// Most names of one.
    pub(crate) names: usize,
    /// Whether the folder is a tenant's root: `/tenants/{tenant}/users/…` names other stores.
    tenant_root: bool,
}

impl Room {
    /// The room below `inner`.
    pub(crate) fn below(repo: &RepoId, inner: &str) -> Self {
        let (mut bytes, mut names) = ("/tenants/".len() + repo.tenant.as_str().len() + 1, 2);
        if let Some(user) = &repo.user {
            bytes += "users/".len() + user.as_str().len() + 1;
            names += 2;
        }
        if !inner.is_empty() {
            bytes += bytes_of(inner).len() + 1;
            names += inner.split('/').count();
        }
        Self {
            bytes: MAX_PATH_BYTES.saturating_sub(bytes),
            names: MAX_PATH_DEPTH.saturating_sub(names),
            tenant_root: repo.user.is_none() && inner.is_empty(),
        }
    }

    /// Why a path cannot be in the tree, if so.
    pub(crate) fn refuses(&self, path: &[u8]) -> Option<NoticeReason> {
        if path.len() > self.bytes || path.split(|byte| *byte == b'/').count() > self.names {
            return Some(NoticeReason::PathTooLong);
        }
        let first = path.split(|byte| *byte == b'/').next();
        (self.tenant_root && first == Some(b"users".as_slice())).then_some(NoticeReason::Reserved)
    }
}
