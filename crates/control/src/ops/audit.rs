//! Reading the audit, page by page, as it grows, or whole with all that verifies it: an admin that of its own tenant, an
//! operator its own, and any tenant's without names and details.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bailey_policy::{
    AdminAction, AdminPermit, Denied, Judge, OperatorJudge, OperatorPermit, SystemAction, TenantAction,
};
use bailey_protocol::audit::{AuditLine, AuditPage, AuditRecord, Digest};
use bailey_protocol::id::{RequestId, TenantId};

use crate::admission::Slot;
use crate::api_error::ApiError;
use crate::audit::keeper;
use crate::control::{Caller, Control, OperatorCaller};
use crate::db::{AuditAsk, AuditFilter, AuditFrom, AuditHead, AuditScope};
use crate::streams::Stream;

/// Rows of one page, when the caller does not say.
pub const DEFAULT_PAGE: u32 = 100;
/// Most rows of one page.
pub const MAX_PAGE: u32 = 1000;
/// Stretches of the chain that one page looks at; what it does not reach the next page does.
const MAX_WINDOWS: usize = 8;
/// How often a reader that follows looks for more.
const FOLLOW: Duration = Duration::from_millis(500);

/// Who reads which chain.
#[derive(Debug, Clone)]
pub enum Reader {
    /// An admin its tenant's.
    Admin(Box<Caller>),
    /// An operator the operators' own, or a tenant's without names and what its rows are about.
    Operator(OperatorCaller, Option<TenantId>),
}

enum Permit {
    Admin(AdminPermit),
    Operator(OperatorPermit),
}

impl Permit {
    /// Room for a stream. Operators take none.
    fn room(&self, control: &Control) -> Result<Option<Slot>, ApiError> {
        match self {
            Self::Admin(permit) => control.streams().enter(Stream::Audit, permit.tenant()).map(Some),
            Self::Operator(_) => Ok(None),
        }
    }
}

impl Reader {
    /// The request that it came with.
    #[must_use]
    pub fn request(&self) -> &RequestId {
        match self {
            Self::Admin(caller) => &caller.request,
            Self::Operator(caller, _) => &caller.request,
        }
    }

    async fn open(&self, control: &Control) -> Result<(Permit, AuditScope), ApiError> {
        let (permit, scope) = match self {
            Self::Admin(caller) => {
                let asked = control.judge(caller).await?.admin(AdminAction::AuditRead);
                let permit = control.permit(caller, asked).await?;
                let scope = AuditScope::of_tenant(&permit);
                (Permit::Admin(permit), scope)
            }
            Self::Operator(caller, tenant) => {
                let asked = Self::ask(control, tenant.as_ref(), &control.judge_operator(caller));
                let permit = control.operator_permit(caller, asked).await?;
                let scope = AuditScope::of_operator(&permit);
                (Permit::Operator(permit), scope)
            }
        };
        Ok((permit, scope.ok_or_else(|| ApiError::internal("a permit of something else than the audit"))?))
    }

    fn ask(control: &Control, tenant: Option<&TenantId>, judge: &OperatorJudge) -> Result<OperatorPermit, Denied> {
        match tenant {
            Some(tenant) => judge.tenant(TenantAction::Audit, tenant, &control.tenant_facts().of(tenant)),
            None => judge.system(SystemAction::Audit),
        }
    }

    async fn audited<T>(&self, control: &Control, permit: &Permit, result: Result<T, ApiError>) -> Result<T, ApiError> {
        match (self, permit) {
            (Self::Admin(caller), Permit::Admin(permit)) => control.audited(caller, [permit.grant()], result).await,
            (Self::Operator(caller, _), Permit::Operator(permit)) => {
                control.operator_audited(caller, permit, result).await
            }
            // INVARIANT: `open` gives each its own.
            (Self::Admin(_), Permit::Operator(_)) | (Self::Operator(..), Permit::Admin(_)) => {
                Err(ApiError::internal("a permit of somebody else"))
            }
        }
    }

    /// Waits until policy no longer lets it read. The denial is on the audit.
    pub async fn until_denied(self, control: Control) -> Denied {
        match &self {
            Self::Admin(caller) => {
                let ask = |judge: &Judge| judge.admin(AdminAction::AuditRead).map(drop);
                let denied = control.until_denied(caller, ask).await;
                control.record_denial(caller, &denied).await;
                denied
            }
            Self::Operator(caller, tenant) => {
                let ask = |judge: &OperatorJudge| Self::ask(&control, tenant.as_ref(), judge).map(drop);
                let denied = control.until_operator_denied(caller, ask).await;
                control.record_operator_denial(caller, &denied).await;
                denied
            }
        }
    }
}

/// One page of a chain.
///
/// # Errors
/// When it is denied.
pub async fn page(control: &Control, reader: &Reader, ask: AuditAsk) -> Result<AuditPage, ApiError> {
    let (permit, scope) = reader.open(control).await?;
    let result = async {
        let _head = head(control, &scope).await?;
        find(control, &scope, ask).await
    };
    reader.audited(control, &permit, result.await).await
}

/// Rows of a chain as they come, after `after`, or from now on.
///
/// # Errors
/// When it is denied, or as many of the tenant follow as may.
pub async fn follow(
    control: &Control,
    reader: &Reader,
    filter: AuditFilter,
    after: Option<u64>,
) -> Result<Followed, ApiError> {
    let (permit, scope) = reader.open(control).await?;
    let result = async { Followed::new(control, scope, filter, after, permit.room(control)?).await };
    reader.audited(control, &permit, result.await).await
}

/// A whole chain after row `after`, signed at its end.
///
/// # Errors
/// When it is denied, too many of the tenant's are read, there is no such chain, or the head cannot be signed.
pub async fn export(control: &Control, reader: &Reader, after: u64) -> Result<Exported, ApiError> {
    let (permit, scope) = reader.open(control).await?;
    let room = permit.room(control);
    // The export itself is the last row that an own one holds.
    let room = reader.audited(control, &permit, room).await?;
    Exported::new(control, scope, after, room).await
}

/// Rows as they come.
#[derive(Debug)]
pub struct Followed {
    control: Control,
    scope: AuditScope,
    filter: AuditFilter,
    at: u64,
    /// A tenant's; operators take none.
    _room: Option<Slot>,
}

impl Followed {
    async fn new(
        control: &Control,
        scope: AuditScope,
        filter: AuditFilter,
        after: Option<u64>,
        room: Option<Slot>,
    ) -> Result<Self, ApiError> {
        let head = head(control, &scope).await?.map_or(0, |head| head.seq);
        Ok(Self { control: control.clone(), scope, filter, at: after.unwrap_or(head), _room: room })
    }

    /// The next rows, at least one. Never ends by itself.
    ///
    /// # Errors
    /// When they cannot be read, or the server is shutting down.
    ///
    /// CANCEL: safe; nothing is passed over.
    pub async fn next(&mut self) -> Result<Vec<AuditRecord>, ApiError> {
        loop {
            self.control.refuse_while_draining()?;
            let ask = AuditAsk { filter: self.filter.clone(), from: AuditFrom::After(self.at), limit: MAX_PAGE };
            let window = self.control.db().audit_window(&self.scope, ask).await?;
            let last = window.records.last().map(|record| record.row.seq);
            self.at = window.next.or(last).unwrap_or(self.at);
            if !window.records.is_empty() {
                return Ok(window.records);
            }
            if window.next.is_none() {
                tokio::time::sleep(FOLLOW).await;
            }
        }
    }
}

/// The lines of an export.
#[derive(Debug)]
pub struct Exported {
    control: Control,
    scope: AuditScope,
    /// Pseudonyms whose names were told.
    told: BTreeSet<Digest>,
    lines: VecDeque<AuditLine>,
    at: u64,
    to: u64,
    end: Option<AuditLine>,
    /// A tenant's; operators take none.
    _room: Option<Slot>,
}

impl Exported {
    async fn new(control: &Control, scope: AuditScope, after: u64, room: Option<Slot>) -> Result<Self, ApiError> {
        keeper::seal(control).await?;
        let head = head(control, &scope).await?.ok_or_else(no_such_audit)?;
        let (signer, unnamed, to) = (control.audit_signer(), !scope.is_named(), head.seq);
        let lines = VecDeque::from([signer.begin(&head.chain, after, unnamed)]);
        let end = Some(AuditLine::End(signer.end(head, after, unnamed, control.now_ms())));
        Ok(Self { control: control.clone(), scope, told: BTreeSet::new(), lines, at: after, to, end, _room: room })
    }

    /// The next lines; none after the end.
    ///
    /// # Errors
    /// When they cannot be read: the export is cut off then, and says so by lacking its end.
    pub async fn next(&mut self) -> Result<Vec<AuditLine>, ApiError> {
        let mut lines: Vec<AuditLine> = self.lines.drain(..).collect();
        if self.at < self.to {
            let piece = self.control.db().audit_piece(&self.scope, self.at, self.to).await?;
            let subjects = piece.subjects.into_iter().filter(|subject| self.told.insert(subject.id));
            lines.extend(subjects.map(AuditLine::Subject));
            let mut checkpoints = piece.checkpoints.into_iter().peekable();
            for AuditRecord { row, detail, erased_by, .. } in piece.records {
                self.at = row.seq;
                lines.push(AuditLine::Row { row: Box::new(row), detail, erased_by });
                while let Some(checkpoint) = checkpoints.next_if(|one| one.seq <= self.at) {
                    lines.push(AuditLine::Checkpoint(checkpoint));
                }
            }
            if lines.is_empty() {
                return Err(ApiError::internal("rows of the audit are missing"));
            }
        }
        if self.at >= self.to {
            lines.extend(self.end.take());
        }
        Ok(lines)
    }
}

/// Where the chain has got to. Everybody's own is there, if without a row; of a tenant that has none, an operator is told.
async fn head(control: &Control, scope: &AuditScope) -> Result<Option<AuditHead>, ApiError> {
    let head = control.db().audit_head(scope).await?;
    if head.is_none() && !scope.is_named() { Err(no_such_audit()) } else { Ok(head) }
}

fn no_such_audit() -> ApiError {
    ApiError::not_found("there is no such audit", "List tenants with GET /v1/operator/tenants.")
}

/// A page, put together from as many stretches as it may take.
async fn find(control: &Control, scope: &AuditScope, mut ask: AuditAsk) -> Result<AuditPage, ApiError> {
    let limit = ask.limit.clamp(1, MAX_PAGE);
    let mut records = Vec::new();
    let mut next = None;
    for _window in 0..MAX_WINDOWS {
        ask.limit = limit - u32::try_from(records.len()).unwrap_or(limit);
        let window = control.db().audit_window(scope, ask.clone()).await?;
        records.extend(window.records);
        next = window.next;
        let Some(at) = next else { break };
        if u32::try_from(records.len()).is_ok_and(|count| count >= limit) {
            break;
        }
        ask.from = match ask.from {
            AuditFrom::Before(_) => AuditFrom::Before(Some(at)),
            AuditFrom::After(_) => AuditFrom::After(at),
        };
    }
    Ok(AuditPage { records, next })
}
