//! What policy says of each path that a change to a folder touched: a decision about the folder is one about its own
//! path, and an operator's rule may name one below it, whether that is there or not.

use std::ops::ControlFlow;

use bailey_policy::{Action, Denied, PathWritePermit, WriteAction};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::TreePath;
use bailey_tree::Store;
use tokio::runtime::Handle;

use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::AuditEntry;

/// Most changed paths that are asked about. More are denied, all of them.
const MAX_CHANGED: usize = 20_000;
/// Most denied paths that are told: with these, no further one is asked about.
const MAX_DENIED: usize = 100;

/// Decides on changed paths below folders.
#[derive(Debug, Clone)]
pub(super) struct Below {
    caller: Caller,
    action: WriteAction,
    folders: Vec<TreePath>,
}

/// Why a change may not be made. It is on the audit.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The first denial.
    pub(super) denied: Denied,
    /// The paths in the store that were denied.
    pub(super) paths: Vec<String>,
}

impl Refusal {
    /// For people: which policy, and why. The paths are told apart.
    pub(super) fn reason(&self) -> String {
        let Denied { action, policies, reason, .. } = &self.denied;
        if policies.is_empty() {
            return format!("`{action}` is denied below the folder: {reason}");
        }
        format!("`{action}` is denied below the folder by policy `{}`: {reason}", policies.join("`, `"))
    }
}

impl Below {
    /// `None` where the decision about each folder covers all that is below it.
    pub(super) fn new(control: &Control, caller: &Caller, action: WriteAction, folders: Vec<TreePath>) -> Option<Self> {
        control.policies().decides_below(action).then(|| Self { caller: caller.clone(), action, folders })
    }

    /// Asks about each path that differs between the branch's head and what it is to point to. Blocks.
    ///
    /// # Errors
    /// When the versions cannot be read.
    pub(super) fn refusal(
        &self,
        control: &Control,
        permit: &PathWritePermit,
        store: &Store,
        head: Option<&VersionId>,
        to: &VersionId,
    ) -> Result<Option<Refusal>, ApiError> {
        let mut denied = Vec::new();
        let mut paths = Vec::new();
        if let Some(folder) = self.overflow(store, head, to)? {
            let reason = format!("more than {MAX_CHANGED} paths changed, too many to ask policy about each");
            denied.push(self.denied(folder.as_str(), reason));
        } else {
            for folder in &self.folders {
                store.changed_paths(head, to, folder.inner(), &mut |inner| {
                    if let Err(denial) = self.decide(control, permit, folder, inner) {
                        denied.push(denial);
                        paths.push(String::from_utf8_lossy(inner).into_owned());
                    }
                    if denied.len() < MAX_DENIED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
            }
        }
        self.record(control, &denied);
        Ok(denied.into_iter().next().map(|denied| Refusal { denied, paths }))
    }

    /// The folder in which the changed paths become too many. Counting is cheap, asking is not.
    fn overflow(&self, store: &Store, head: Option<&VersionId>, to: &VersionId) -> Result<Option<&TreePath>, ApiError> {
        let mut count = 0;
        for folder in &self.folders {
            store.changed_paths(head, to, folder.inner(), &mut |_| {
                count += 1;
                if count <= MAX_CHANGED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if count > MAX_CHANGED {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }

    /// May the path `inner` of the folder's store be changed? What no policy can name is denied.
    fn decide(
        &self,
        control: &Control,
        permit: &PathWritePermit,
        folder: &TreePath,
        inner: &[u8],
    ) -> Result<(), Denied> {
        let root = folder.as_str().strip_suffix(folder.inner()).unwrap_or(folder.as_str()).trim_end_matches('/');
        let shown = match inner {
            [] => root.to_owned(),
            inner => format!("{root}/{}", String::from_utf8_lossy(inner)),
        };
        let named = std::str::from_utf8(inner).ok().and_then(|_| shown.parse::<TreePath>().ok());
        let Some(path) = named.filter(|path| path.repo() == folder.repo()) else {
            return Err(self.denied(&shown, "its name is none that a policy can be asked about".to_owned()));
        };
        control.policies().write_path(&self.caller.principal, self.action, &path, permit.branch()).map(drop)
    }

    fn denied(&self, resource: &str, reason: String) -> Denied {
        let (action, resource) = (Action::from(self.action), resource.to_owned());
        Denied { action, resource, policies: Vec::new(), reason, broken: false }
    }

    fn record(&self, control: &Control, denied: &[Denied]) {
        let now = control.now_ms();
        let Caller { principal, request } = &self.caller;
        let entries = denied.iter().map(|denied| AuditEntry::denied(principal, denied, Some(request), now));
        if let Err(error) = Handle::current().block_on(control.write_audit(entries.collect())) {
            // They stay denials.
            tracing::error!(%request, %error, "denials are not on the audit");
        }
    }
}
