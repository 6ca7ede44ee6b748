//! Baselines: folders that an operator publishes and every tenant may fork from.
//!
//! They are in a store of their own, which no path names and no tenant's request opens: a fork copies the content, object
//! by object and verified, into the tenant's own store. What is published stays as it is; a change is a new number.

use std::sync::PoisonError;

use bailey_policy::{OperatorPermit, ReadAction, StoreScope, SystemAction};
use bailey_protocol::api::{BaselineInfo, BaselineList};
use bailey_protocol::id::{BaselineName, VersionId};
use bailey_protocol::path::{BranchName, Revision, text_of};
use bailey_tree::archive::{ExtractLimits, Format};
use bailey_tree::{CommitMeta, Store};

use super::tree_edit::MAX_MEMBERS;
use crate::api_error::ApiError;
use crate::auth::Identity;
use crate::control::{Caller, Control, OperatorCaller};
use crate::db::{AuditEntry, BaselineRow};
use crate::pipe::PipeReader;
use crate::threads::reading;

/// Who is named as the author of published content. No user has a say in it.
const AUTHOR: &str = "operator";

/// What is published. Everybody who may list its own tree may see it.
///
/// # Errors
/// When that is denied.
pub async fn list(control: &Control, caller: &Caller) -> Result<BaselineList, ApiError> {
    let root = format!("/tenants/{}", caller.principal.tenant).parse()?;
    let main = Revision::Branch(BranchName::main());
    let permit = control.may_read(caller, ReadAction::List, &root, &main).await?;
    let result = listed(control).await;
    control.audited(caller, [permit.grant()], result).await
}

/// The same for an operator.
///
/// # Errors
/// When it is denied.
pub async fn operator_list(control: &Control, caller: &OperatorCaller) -> Result<BaselineList, ApiError> {
    let permit = control.operator_may(caller, SystemAction::BaselineList).await?;
    let result = listed(control).await;
    control.operator_audited(caller, &permit, result).await
}

async fn listed(control: &Control) -> Result<BaselineList, ApiError> {
    let rows = control.db().baselines().await?;
    Ok(BaselineList { baselines: rows.into_iter().map(|row| row.info).collect() })
}

/// One publication, or the latest of a name.
pub(super) async fn find(control: &Control, name: &BaselineName, number: Option<u32>) -> Result<BaselineRow, ApiError> {
    let rows = control.db().baselines().await?;
    // Newest first.
    let found = rows.into_iter().find(|row| row.info.name == *name && number.is_none_or(|n| row.info.number == n));
    found.ok_or_else(|| {
        let number = number.map(|number| format!("@{number}")).unwrap_or_default();
        ApiError::not_found(
            format!("there is no baseline `{name}{number}`"),
            "See GET /v1/baselines for those there are.",
        )
    })
}

/// Copies a baseline into the scope's store; answers the store and the version there.
pub(super) async fn take_in(
    control: &Control,
    scope: &StoreScope,
    row: BaselineRow,
) -> Result<(Store, VersionId), ApiError> {
    let store = control.trees().store(scope.repo())?;
    let (source, lock, meta) = (control.baselines().clone(), control.locks().of(scope.repo()), meta(&row.info)?);
    control
        .changes()
        .make(&scope.repo().tenant, move || {
            // With others out: what of it is here must not be collected while the rest is written.
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let version = store.import(&source, &row.version, &meta)?;
            Ok((store, version))
        })
        .await
}

/// Publishes the folder that a tar holds, under the name's next number.
///
/// CANCEL: what was permitted goes on, and onto the audit: it ends with the content, whole or broken off.
///
/// # Errors
/// When it is denied, or the tar is refused, empty, or breaks off. Then nothing is published.
pub async fn publish(
    control: &Control,
    caller: &OperatorCaller,
    name: BaselineName,
    content: PipeReader,
) -> Result<BaselineInfo, ApiError> {
    let asked = control.judge_operator(caller).system_about(SystemAction::BaselinePublish, name.as_str());
    let permit = control.operator_permit(caller, asked).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let result = async {
            let info = store(&owner, &caller, &permit, name, content).await?;
            // What tenants fork from by this name is something else now.
            let by = (&caller.operator, Some(&caller.request));
            let told = owner.tell_tenants(AuditEntry::by_operator(by.0, &permit, "ok", by.1, owner.now_ms())).await;
            // It is published whether or not they are told.
            if let Err(error) = told {
                tracing::error!(cause = error.cause_chain(), "a baseline is not on every tenant's audit");
            }
            Ok(info)
        };
        let result = result.await;
        owner.operator_audited(&caller, &permit, result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

async fn store(
    control: &Control,
    caller: &OperatorCaller,
    permit: &OperatorPermit,
    name: BaselineName,
    content: PipeReader,
) -> Result<BaselineInfo, ApiError> {
    let (store, now_ms, config) = (control.baselines().clone(), control.now_ms(), control.config());
    let (file_bytes, bytes) = (config.max_file_bytes, config.max_archive_bytes);
    let limits = ExtractLimits { members: MAX_MEMBERS, file_bytes, bytes };
    let meta = meta(&BaselineInfo { name: name.clone(), number: 0, published_ms: now_ms })?;
    let version = reading(control.threads(), content, move |mut content| {
        let done = store.extract(None, "", Format::Tar, &mut content, &limits, &meta)?;
        if let Some((path, _)) = done.notices.first() {
            let message = format!("`{}` cannot be in a tree", text_of(path));
            return Err(ApiError::invalid("invalid_content", message, "Leave it out, and publish again."));
        }
        let made = done.version.filter(|_| done.members > 0);
        made.ok_or_else(|| ApiError::invalid("empty_baseline", "the folder is empty", "Publish some files."))
    });
    let version = version.await?;
    // It may have taken long: who may publish is asked as of now.
    control.standing().check_identity(&Identity::Operator(caller.operator.clone()))?;
    control.operator_may(caller, SystemAction::BaselinePublish).await?;
    Ok(control.db().publish_baseline(permit, &name, &version, now_ms).await?)
}

/// The same for everybody who forks, so that equal content is an equal version.
fn meta(info: &BaselineInfo) -> Result<CommitMeta, ApiError> {
    let message = match info.number {
        0 => format!("Publish {}", info.name),
        number => format!("Baseline {}@{number}", info.name),
    };
    Ok(CommitMeta { author: AUTHOR.parse()?, time_ms: info.published_ms, message, run: None })
}
