//! Protected branches: nothing changes them but promotions. A run on one keeps its work on a side branch.

use bailey_policy::ReadAction;
use bailey_protocol::api::{Protection, ProtectionList};
use bailey_protocol::path::{BranchName, Revision, TreePath};

use super::branches;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};

/// Protects a branch, or changes how it is protected.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, or there is no such branch.
pub async fn protect(
    control: &Control,
    caller: &Caller,
    path: TreePath,
    branch: BranchName,
    review: bool,
) -> Result<Protection, ApiError> {
    let facts = control.path_facts(caller, &path, Some(&branch));
    let permit = control.permit(caller, control.judge(caller).await?.protect(&facts, &branch)).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let result = async {
            branches::check_root(&path)?;
            branches::check_name(&branch)?;
            let _turn = owner.meta_turn().await;
            let row = owner.db().protect(&permit, review, owner.now_ms()).await?;
            let row = row.ok_or_else(|| branches::missing(&branch))?;
            let by = row.by.clone();
            let protection = Protection { branch: row.branch.clone(), review, by, since_ms: row.since_ms };
            owner.tree_meta().protect(row);
            owner.judge_again(permit.tenant());
            Ok(protection)
        };
        let result = result.await;
        owner.audited(&caller, [permit.grant()], result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

/// Ends a branch's protection.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, or the branch is not protected.
pub async fn unprotect(control: &Control, caller: &Caller, path: TreePath, branch: BranchName) -> Result<(), ApiError> {
    let facts = control.path_facts(caller, &path, Some(&branch));
    let permit = control.permit(caller, control.judge(caller).await?.protect(&facts, &branch)).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let result = async {
            branches::check_root(&path)?;
            let _turn = owner.meta_turn().await;
            if !owner.db().unprotect(&permit).await? {
                let message = format!("branch `{branch}` is not protected");
                return Err(ApiError::not_found(message, "See GET /v1/protections for those that are."));
            }
            owner.tree_meta().unprotect(path.repo(), &branch);
            owner.judge_again(&path.repo().tenant);
            Ok(())
        };
        let result = result.await;
        owner.audited(&caller, [permit.grant()], result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

/// The protected branches of a store, in name order.
///
/// # Errors
/// When it is denied.
pub async fn list(control: &Control, caller: &Caller, path: TreePath) -> Result<ProtectionList, ApiError> {
    let main = Revision::Branch(BranchName::main());
    let permit = control.may_read(caller, ReadAction::List, &path, &main).await?;
    let result = branches::check_root(&path).and_then(|()| {
        let scope = permit.scope()?;
        Ok(ProtectionList { protections: control.tree_meta().protections(scope.repo()) })
    });
    control.audited(caller, [permit.grant()], result).await
}
