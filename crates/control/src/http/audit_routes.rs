//! `/v1/audit`, `/v1/audit-export`, and the same for operators.

use axum::body::Body;
use bailey_protocol::id::TenantId;
use bytes::Bytes;
use futures_util::stream;
use http::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::{Answer as _, Json, Query, stream_of};
use super::cut::cut_answer;
use crate::api_error::ApiError;
use crate::audit::check_action;
use crate::control::{Caller, Control, OperatorCaller};
use crate::db::{AuditAsk, AuditDecision, AuditFilter, AuditFrom};
use crate::ops::audit::{self, Exported, Followed, Reader};

/// A decision to ask for.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AuditQuery {
    /// By this user, or on whose behalf.
    user: Option<String>,
    /// For this action.
    action: Option<String>,
    /// How it was decided.
    decision: Option<Decision>,
    /// By or about this run.
    run: Option<String>,
    /// About what begins so.
    resource: Option<String>,
    /// Not before, in milliseconds since 1970.
    since: Option<u64>,
    /// Before, in milliseconds since 1970.
    until: Option<u64>,
    /// Rows before this one, newest first.
    before: Option<u64>,
    /// Rows after this one, oldest first.
    after: Option<u64>,
    /// At most this many; with `follow` as they come, one for each line.
    limit: Option<u32>,
    /// Go on as rows come.
    follow: bool,
}

/// `GET /v1/audit`
pub(super) async fn read(
    control: Control,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Result<Response<Body>, ApiError> {
    rows(control, Reader::Admin(Box::new(caller)), query).await
}

impl AuditQuery {
    fn filter(self) -> Result<AuditFilter, ApiError> {
        if let Some(action) = &self.action {
            check_action(action).map_err(|error| {
                let hint = "Name an action of `docs/policy.md`, or `run_end`, `run_commit`, `audit_checkpoint`, `policies_changed` or `store`.";
                ApiError::invalid("invalid_action", error.to_string(), hint)
            })?;
        }
        Ok(AuditFilter {
            user: self.user,
            action: self.action,
            decision: self.decision.map(|decision| match decision {
                Decision::Allowed => AuditDecision::Allowed,
                Decision::Denied => AuditDecision::Denied,
            }),
            run: self.run,
            resource: self.resource,
            since_ms: self.since,
            until_ms: self.until,
        })
    }

    fn ask(self) -> Result<AuditAsk, ApiError> {
        let from = match (self.before, self.after) {
            (Some(_), Some(_)) => {
                let message = "`before` and `after` cannot be sent together";
                return Err(ApiError::invalid("invalid_query", message, "Send one of them."));
            }
            (before, None) => AuditFrom::Before(before),
            (None, Some(after)) => AuditFrom::After(after),
        };
        let limit = self.limit.unwrap_or(audit::DEFAULT_PAGE).clamp(1, audit::MAX_PAGE);
        Ok(AuditAsk { filter: self.filter()?, from, limit })
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OperatorQuery {
    /// The tenant whose chain to read, without names and what its rows are about; the operator's own where absent.
    tenant: Option<TenantId>,
    /// By this operator or service account; of the operator's own chain.
    user: Option<String>,
    /// For this action.
    action: Option<String>,
    /// How it was decided.
    decision: Option<Decision>,
    /// By this run, or with it as outcome; of a tenant's chain.
    run: Option<String>,
    /// About what begins so; of the operator's own chain.
    resource: Option<String>,
    /// Not before, in milliseconds since 1970.
    since: Option<u64>,
    /// Before, in milliseconds since 1970.
    until: Option<u64>,
    /// Rows before this one, newest first.
    before: Option<u64>,
    /// Rows after this one, oldest first.
    after: Option<u64>,
    /// At most this many; with `follow` as they come, one for each line.
    limit: Option<u32>,
    /// Go on as rows come.
    follow: bool,
}

impl OperatorQuery {
    /// What it asks for of whose chain.
    fn split(self) -> Result<(Option<TenantId>, AuditQuery), ApiError> {
        let Self { tenant, user, action, decision, run, resource, since, until, before, after, limit, follow } = self;
        if tenant.is_some() && (user.is_some() || resource.is_some()) {
            let message = "`user` and `resource` are the tenant's own to ask for";
            return Err(ApiError::invalid("invalid_query", message, "Have an admin of the tenant ask."));
        }
        let query = AuditQuery { user, action, decision, run, resource, since, until, before, after, limit, follow };
        Ok((tenant, query))
    }
}

/// `GET /v1/operator/audit`
pub(super) async fn operator(
    control: Control,
    caller: OperatorCaller,
    Query(query): Query<OperatorQuery>,
) -> Result<Response<Body>, ApiError> {
    let (tenant, query) = query.split()?;
    rows(control, Reader::Operator(caller, tenant), query).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExportQuery {
    /// Rows after this one; from the beginning where absent.
    after: Option<u64>,
}

/// `GET /v1/audit-export`
pub(super) async fn export(
    control: Control,
    caller: Caller,
    Query(query): Query<ExportQuery>,
) -> Result<Response<Body>, ApiError> {
    whole(control, Reader::Admin(Box::new(caller)), query.after).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OperatorExportQuery {
    /// The tenant whose chain it is, without names and what its rows are about; the operator's own where absent.
    tenant: Option<TenantId>,
    /// Rows after this one; from the beginning where absent.
    after: Option<u64>,
}

/// `GET /v1/operator/audit-export`
pub(super) async fn operator_export(
    control: Control,
    caller: OperatorCaller,
    Query(query): Query<OperatorExportQuery>,
) -> Result<Response<Body>, ApiError> {
    whole(control, Reader::Operator(caller, query.tenant), query.after).await
}

/// A page, or rows as they come.
async fn rows(control: Control, reader: Reader, query: AuditQuery) -> Result<Response<Body>, ApiError> {
    if !query.follow {
        return Ok(Json::<_>(audit::page(&control, &reader, query.ask()?).await?).response());
    }
    let after = query.after;
    let followed = audit::follow(&control, &reader, query.filter()?, after).await?;
    let rows = stream::try_unfold(followed, |mut followed: Followed| async move {
        let records = followed.next().await?;
        Ok::<_, ApiError>(Some((lines(&records)?, followed)))
    });
    Ok(while_readable(control, reader, Body::from_stream(rows)))
}

/// An export to its end.
async fn whole(control: Control, reader: Reader, after: Option<u64>) -> Result<Response<Body>, ApiError> {
    let exported = audit::export(&control, &reader, after.unwrap_or(0)).await?;
    let pieces = stream::try_unfold(exported, |mut exported: Exported| async move {
        let piece = exported.next().await?;
        if piece.is_empty() { Ok(None) } else { Ok::<_, ApiError>(Some((lines(&piece)?, exported))) }
    });
    Ok(while_readable(control, reader, Body::from_stream(pieces)))
}

/// Lines, for as long as policy lets them be read.
fn while_readable(control: Control, reader: Reader, body: Body) -> Response<Body> {
    let request = reader.request().clone();
    let until = async { ApiError::from(reader.until_denied(control).await) };
    cut_answer(stream_of("application/x-ndjson", body), &request, until)
}

/// One JSON object for each line.
fn lines(values: &[impl Serialize]) -> Result<Bytes, ApiError> {
    let mut out = Vec::new();
    for value in values {
        serde_json::to_writer(&mut out, value).map_err(ApiError::internal)?;
        out.push(b'\n');
    }
    Ok(out.into())
}
