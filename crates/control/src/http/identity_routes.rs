//! `/v1/users`, `/v1/keys`, `/v1/token`, `/v1/operator/tenants`, `/v1/operator/accounts`, and the webhook of identity providers.

use axum::body::Body;
use bailey_protocol::api::identity::{
    AccountKind, AccountList, DisabledAnswer, ForgottenAnswer, IdentityEvent, KeyCreated, KeyList, KeyRequest,
    TenantList, TokenForm, UserList,
};
use bailey_protocol::id::{KeyId, TenantId, UserId};
use http::{HeaderValue, Response, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::{
    Answer as _, Answered, Argument, Asked, Content, Created, Json, Named, Nothing, Query, Takes, describe,
};
use super::form::Form;
use super::{MAX_SMALL, json};
use crate::api_error::ApiError;
use crate::control::{Caller, Control, OperatorCaller, ServiceCaller};
use crate::ops::identity::{accounts, exchange, forget, keys, standing, webhook};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UsersQuery {
    /// Go on after this user.
    after: Option<UserId>,
    /// At most this many; 100 without it.
    limit: Option<u32>,
}

/// `GET /v1/users`
pub(super) async fn users(control: Control, caller: Caller, Query(page): Query<UsersQuery>) -> Answered<UserList> {
    standing::users(&control, &caller, page.after, page.limit).await.map(Json)
}

/// `POST /v1/users/{user}/disable` and `…/enable`
pub(super) async fn set_user<const DISABLED: bool>(
    control: Control,
    caller: Caller,
    Named(user): Named<UserId>,
) -> Answered<DisabledAnswer> {
    standing::set_user(&control, &caller, &user, DISABLED).await.map(Json)
}

/// `DELETE /v1/users/{user}`
pub(super) async fn forget_user(
    control: Control,
    caller: Caller,
    Named(user): Named<UserId>,
) -> Answered<ForgottenAnswer> {
    forget::by_admin(&control, &caller, &user).await.map(Json)
}

/// `POST /v1/keys`
pub(super) async fn create_key(
    control: Control,
    caller: Caller,
    Json(request): Json<KeyRequest, MAX_SMALL>,
) -> Result<Created<KeyCreated>, ApiError> {
    keys::create(&control, &caller, request).await.map(Created)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeysQuery {
    /// Go on after this key.
    after: Option<KeyId>,
    /// At most this many; 100 without it.
    limit: Option<u32>,
}

/// `GET /v1/keys`
pub(super) async fn list_keys(control: Control, caller: Caller, Query(page): Query<KeysQuery>) -> Answered<KeyList> {
    keys::list(&control, &caller, page.after, page.limit).await.map(Json)
}

/// `DELETE /v1/keys/{key}`
pub(super) async fn revoke_key(
    control: Control,
    caller: Caller,
    Named(key): Named<Option<KeyId>>,
) -> Result<Nothing, ApiError> {
    keys::revoke(&control, &caller, key.as_ref()).await.map(|()| Nothing)
}

/// `POST /v1/token`
pub(super) async fn exchange_token(
    control: Control,
    caller: ServiceCaller,
    Form(form): Form<TokenForm>,
) -> Result<Response<Body>, ApiError> {
    let mut response = Json::<_>(exchange::exchange(&control, &caller, form).await?).response();
    response.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    Ok(response)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantsQuery {
    /// Go on after this tenant.
    after: Option<TenantId>,
    /// At most this many; 100 without it.
    limit: Option<u32>,
}

/// `GET /v1/operator/tenants`
pub(super) async fn tenants(
    control: Control,
    caller: OperatorCaller,
    Query(page): Query<TenantsQuery>,
) -> Answered<TenantList> {
    standing::tenants(&control, &caller, page.after, page.limit).await.map(Json)
}

/// `POST /v1/operator/tenants/{tenant}/disable` and `…/enable`
pub(super) async fn set_tenant<const DISABLED: bool>(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
) -> Answered<DisabledAnswer> {
    standing::set_tenant(&control, &caller, &tenant, None, DISABLED).await.map(Json)
}

/// `GET /v1/operator/tenants/{tenant}/users`
pub(super) async fn tenants_users(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
    Query(page): Query<UsersQuery>,
) -> Answered<UserList> {
    standing::tenants_users(&control, &caller, &tenant, page.after, page.limit).await.map(Json)
}

/// `POST /v1/operator/tenants/{tenant}/users/{user}/disable` and `…/enable`
pub(super) async fn set_tenants_user<const DISABLED: bool>(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
    Named(user): Named<UserId>,
) -> Answered<DisabledAnswer> {
    standing::set_tenant(&control, &caller, &tenant, Some(&user), DISABLED).await.map(Json)
}

/// `DELETE /v1/operator/tenants/{tenant}/users/{user}`
pub(super) async fn forget_tenants_user(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
    Named(user): Named<UserId>,
) -> Answered<ForgottenAnswer> {
    forget::by_operator(&control, &caller, &tenant, &user).await.map(Json)
}

/// `GET /v1/operator/accounts`
pub(super) async fn accounts(control: Control, caller: OperatorCaller) -> Answered<AccountList> {
    accounts::list(&control, &caller).await.map(Json)
}

/// `POST /v1/operator/accounts/{kind}/{name}/disable` and `…/enable`
pub(super) async fn set_account<const DISABLED: bool>(
    control: Control,
    caller: OperatorCaller,
    Named(kind): Named<AccountKind>,
    Named(name): Named<UserId>,
) -> Answered<DisabledAnswer> {
    accounts::set(&control, &caller, kind, &name, DISABLED).await.map(Json)
}

/// A message whose signature was checked before anything in it was read.
pub(super) struct SignedEvent(webhook::Signed, IdentityEvent);

impl Argument for SignedEvent {
    fn declare(takes: &mut Takes) {
        takes.signed(("Bailey-Signature", "An HMAC-SHA-256 over the time and the body."));
        takes.takes_body(Content::Json(describe::<IdentityEvent>), Some(webhook::MAX_BODY));
        // What it says it is nobody looks at: the signature is over the bytes.
        takes.errors.remove(&415);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        let (body, timeout) = (asked.body(), asked.control.config().http.body_timeout);
        let body = json::collect(&asked.parts.headers, body, webhook::MAX_BODY, timeout).await?;
        let signer = webhook::check(&asked.control, &asked.parts.headers, &body)?;
        Ok(Self(signer, json::parse(&body)?))
    }
}

/// `POST /v1/webhooks/identity`: without a credential, but signed.
pub(super) async fn identity_webhook(
    control: Control,
    SignedEvent(signer, event): SignedEvent,
) -> Answered<DisabledAnswer> {
    webhook::receive(&control, signer, event).await.map(Json)
}
