//! The table: every route of the API, one entry each. The router and the OpenAPI document are both made of it.
//!
//! To add a route: one entry here, its handler in the file of its noun, then `bailey openapi > docs/openapi.json`. What it
//! takes, for whom it is and what it answers is said by the types of the handler; only what no type says is said here.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use bailey_protocol::api::identity::TokenAnswer;
use bailey_protocol::api::{RunAccepted, RunEvent, TreeListing};
use bailey_protocol::audit::{AuditLine, AuditPage, AuditRecord};
use http::Response;

use super::arguments::{AnyQuery, text_of};
use super::route::{Route, delete, get, patch, post, put};
use super::{
    audit_routes, branch_routes, git_routes, guard, identity_routes, metrics_routes, openapi, policy_routes,
    run_routes, storage_routes, tree_change_routes, tree_routes,
};
use crate::api_error::{ApiError, ErrorKind};
use crate::control::Control;

const TEXT: &[&str] = &["text/plain"];
const JSON: &[&str] = &["application/json"];
const FILE: &[&str] = &["application/octet-stream"];
const TAR: &[&str] = &["application/x-tar"];
const BODIES: &[&str] = &["application/octet-stream", "application/x-tar", "application/zip"];
const WRITES: &str = "Writes a file, makes a folder, or takes an archive in.";

/// What comes of naming a version, or a path in a body; 409 where labels change while it is opened; 429 where policy is
/// being asked about too many paths.
const READS: &[u16] = &[404, 409, 410, 429];
/// What comes of changing a tree.
const CHANGES: &[u16] = &[404, 409, 410, 429];

/// Every route.
pub(super) fn table() -> Vec<Route> {
    let mut table = plumbing();
    table.extend(runs());
    table.extend(tree());
    table.extend(branches());
    table.extend(policy());
    table.extend(audit());
    table.extend(git_routes::routes());
    table.extend(identity());
    table.extend(operator());
    table.extend(storage());
    table
}

fn plumbing() -> Vec<Route> {
    vec![
        get("/healthz", "healthy", "Says whether the server answers.", healthy).gives_bytes(200, TEXT),
        get("/readyz", "ready", "Says whether the server takes new work.", ready).gives_bytes(200, TEXT).errors(&[503]),
        get("/.well-known/jwks.json", "public_keys", "The embedded issuer's public keys.", keys).gives_bytes(200, JSON),
        get("/.well-known/openapi.json", "openapi", "This document.", document).gives_bytes(200, JSON),
    ]
}

fn runs() -> Vec<Route> {
    vec![
        post("/v1/runs", "create_run", "Runs a program in a fresh sandbox.", run_routes::create)
            .gives_events::<RunEvent>()
            .gives_json::<RunAccepted>(202)
            .sends(run_routes::CREATED)
            .errors(READS)
            .errors(&[429]),
        get("/v1/runs", "list_runs", "Lists the caller's runs, newest first.", run_routes::list),
        get("/v1/runs/{run}", "show_run", "Shows one run.", run_routes::show),
        get("/v1/runs/{run}/events", "run_events", "A run's events, to its end.", run_routes::events)
            .gives_events::<RunEvent>()
            .errors(&[429]),
        post("/v1/runs/{run}/cancel", "cancel_run", "Asks for a run's end.", run_routes::cancel),
    ]
}

fn tree() -> Vec<Route> {
    use tree_change_routes as changes;
    vec![
        get("/v1/tree/{*path}", "tree_read", "Reads a file, or lists a folder.", tree_routes::read)
            .gives_json::<TreeListing>(200)
            .gives_bytes(200, BODIES)
            .gives_bytes(206, FILE)
            .gives_nothing(304)
            .sends(tree_routes::READ)
            .errors(READS)
            .errors(&[413, 429]),
        put("/v1/tree/{*path}", "tree_write", WRITES, tree_routes::write).takes_bytes(BODIES).errors(CHANGES),
        patch("/v1/tree/{*path}", "tree_edit", "Changes parts of a file.", changes::patch).errors(CHANGES),
        delete("/v1/tree/{*path}", "tree_delete", "Deletes a file or folder.", tree_routes::delete).errors(CHANGES),
        get("/v1/tree-history/{*path}", "tree_history", "Lists a path's versions, newest first.", tree_routes::history)
            .errors(READS),
        get("/v1/tree-blame/{*path}", "tree_blame", "Says where each line comes from.", changes::blame)
            .errors(READS)
            .errors(&[413]),
        post("/v1/tree-copy", "tree_copy", "Copies or moves a file or folder.", changes::copy).errors(CHANGES),
        post("/v1/tree-restore", "tree_restore", "Makes a path what it was.", changes::restore).errors(CHANGES),
        post("/v1/tree-revert", "tree_revert", "Takes back what a version changed.", changes::revert).errors(CHANGES),
        get("/v1/tree-diff/{*path}", "tree_diff", "Compares two versions of a path.", tree_routes::diff).errors(READS),
    ]
}

fn branches() -> Vec<Route> {
    use branch_routes as handlers;
    vec![
        post("/v1/forks", "fork", "Makes a branch.", handlers::fork).errors(CHANGES),
        get("/v1/branches/{*path}", "list_branches", "Lists a store's branches.", handlers::list),
        delete("/v1/branches/{*path}", "delete_branch", "Takes a branch away.", handlers::delete).errors(&[409]),
        post("/v1/promotions", "promote", "Brings one branch's changes into another.", handlers::promote)
            .errors(CHANGES),
        put("/v1/protections/{*path}", "protect", "Lets only promotions change a branch.", handlers::protect)
            .errors(&[409]),
        delete("/v1/protections/{*path}", "unprotect", "Ends a branch's protection.", handlers::unprotect),
        get("/v1/protections/{*path}", "list_protections", "Lists protected branches.", handlers::protections),
        get("/v1/labels/{*path}", "show_labels", "Shows a path's labels.", handlers::show_labels),
        put("/v1/labels/{*path}", "set_labels", "Gives a path labels.", handlers::set_labels).errors(&[409]),
        delete("/v1/labels/{*path}", "remove_labels", "Takes a path's labels off.", handlers::remove_labels)
            .errors(&[409]),
        get("/v1/baselines", "list_baselines", "Lists what operators published to fork from.", handlers::baselines),
        post("/v1/tree-tokens", "share", "Makes a token for a part of the tree.", handlers::share).errors(&[404, 409]),
        get("/v1/tree-tokens", "list_shares", "Lists tree tokens that hold.", handlers::list_shares),
        delete("/v1/tree-tokens/{token}", "revoke_share", "Ends a tree token.", handlers::revoke_share),
        get("/v1/operator/baselines", "list_published", "Lists what is published.", handlers::published),
        post("/v1/operator/baselines/{name}", "publish_baseline", "Publishes a folder.", handlers::publish)
            .takes_bytes(TAR)
            .errors(&[409]),
    ]
}

fn policy() -> Vec<Route> {
    use policy_routes as handlers;
    let named = "/v1/policies/{name}";
    let dry_run = "Says what other policies would have decided otherwise in the last day.";
    vec![
        get("/v1/policies", "list_policies", "Lists the tenant's own policies.", handlers::list),
        put(named, "put_policy", "Adds one of the tenant's own policies, or replaces it.", handlers::put)
            .errors(&[409]),
        delete(named, "delete_policy", "Takes one of the tenant's own policies away.", handlers::delete),
        post("/v1/explain", "explain", "Says why a request is allowed or denied.", handlers::explain).errors(&[404]),
        get("/v1/operator/policies", "policy_state", "Says which policies are in force.", handlers::state),
        post("/v1/operator/policies/dry-run", "policy_dry_run", dry_run, handlers::dry_run),
    ]
}

fn audit() -> Vec<Route> {
    use audit_routes as handlers;
    let operator = "Lists rows of the operator's audit or a tenant's, or follows them.";
    let export = "The operator's audit, or a tenant's without names, with all that verifies it.";
    vec![
        get("/v1/audit", "audit", "Lists rows of the tenant's audit, or follows them.", handlers::read)
            .gives_json::<AuditPage>(200)
            .gives_lines::<AuditRecord>()
            .errors(&[429]),
        get("/v1/audit-export", "audit_export", "The tenant's audit with all that verifies it.", handlers::export)
            .gives_lines::<AuditLine>()
            .errors(&[404, 429]),
        get("/v1/operator/audit", "operator_audit", operator, handlers::operator)
            .gives_json::<AuditPage>(200)
            .gives_lines::<AuditRecord>()
            .errors(&[404]),
        get("/v1/operator/audit-export", "operator_audit_export", export, handlers::operator_export)
            .gives_lines::<AuditLine>()
            .errors(&[404]),
        get("/metrics", "metrics", "Figures for Prometheus.", metrics_routes::show).gives_bytes(200, TEXT),
    ]
}

fn identity() -> Vec<Route> {
    use identity_routes as handlers;
    let users = "Lists the tenant's users who were seen or are disabled.";
    vec![
        get("/v1/users", "list_users", users, handlers::users),
        post("/v1/users/{user}/disable", "disable_user", "Ends everything of a user's.", handlers::set_user::<true>),
        post("/v1/users/{user}/enable", "enable_user", "Lets a user ask again.", handlers::set_user::<false>),
        delete(
            "/v1/users/{user}",
            "forget_user",
            "Ends everything of a user's, and forgets it.",
            handlers::forget_user,
        )
        .errors(&[409]),
        post("/v1/keys", "create_key", "Makes an API key and shows it, once.", handlers::create_key)
            .errors(&[409, 429]),
        get("/v1/keys", "list_keys", "Lists the tenant's API keys, newest first.", handlers::list_keys),
        delete("/v1/keys/{key}", "revoke_key", "Ends an API key and what goes on by it.", handlers::revoke_key),
        post("/v1/token", "exchange_token", "Gives a service account a user's token.", handlers::exchange_token)
            .gives_json::<TokenAnswer>(200),
        post("/v1/webhooks/identity", "identity_webhook", "Ends somebody's rights.", handlers::identity_webhook),
    ]
}

fn operator() -> Vec<Route> {
    use identity_routes as handlers;
    macro_rules! tenant {
        ($rest:literal) => {
            concat!("/v1/operator/tenants/{tenant}", $rest)
        };
    }
    let (account, user) = ("Ends every token of a service account or an operator.", tenant!("/users/{user}"));
    let again = "Lets a service account or an operator ask again.";
    let (forgets, ends) = ("Ends everything of a user's, and forgets it.", "Ends everything of a tenant's.");
    let ends_user = "Ends everything of a user's; no admin of the tenant undoes it.";
    let (off, on) = ("/v1/operator/accounts/{kind}/{name}/disable", "/v1/operator/accounts/{kind}/{name}/enable");
    let (user_off, user_on) = (tenant!("/users/{user}/disable"), tenant!("/users/{user}/enable"));
    vec![
        get("/v1/operator/tenants", "list_tenants", "Lists tenants.", handlers::tenants),
        post(tenant!("/disable"), "disable_tenant", ends, handlers::set_tenant::<true>),
        post(tenant!("/enable"), "enable_tenant", "Lets a tenant's users ask again.", handlers::set_tenant::<false>),
        get(tenant!("/users"), "list_tenants_users", "Lists a tenant's users.", handlers::tenants_users).errors(&[404]),
        post(user_off, "disable_tenants_user", ends_user, handlers::set_tenants_user::<true>),
        delete(user, "forget_tenants_user", forgets, handlers::forget_tenants_user).errors(&[409]),
        get("/v1/operator/accounts", "list_accounts", "Lists disabled accounts.", handlers::accounts),
        post(off, "disable_account", account, handlers::set_account::<true>),
        post(on, "enable_account", again, handlers::set_account::<false>),
        post(user_on, "enable_tenants_user", "Lets a user ask again.", handlers::set_tenants_user::<false>),
    ]
}

fn storage() -> Vec<Route> {
    use storage_routes as handlers;
    let (quota, facts) = ("/v1/operator/tenants/{tenant}/quota", "/v1/operator/tenants/{tenant}/facts");
    let (purges, notes) =
        ("Takes a path out of all history of its store, for good.", "Notes a tenant's region and plan, for policies.");
    let (gc, upkeep) = ("/v1/operator/tenants/{tenant}/gc", "Does one cycle of upkeep over a tenant's stores.");
    vec![
        get("/v1/tenant", "show_tenant", "Shows what the tenant may keep, and does.", handlers::tenant),
        post("/v1/purges", "purge", purges, handlers::purge).errors(CHANGES),
        get("/v1/purges/{id}", "show_purge", "Shows the receipt of a purge.", handlers::receipt),
        get(facts, "show_tenant_facts", "Shows what is noted of a tenant.", handlers::show_facts),
        put(facts, "set_tenant_facts", notes, handlers::set_facts),
        get(quota, "show_quota", "Shows what a tenant may keep, and does.", handlers::show_quota),
        put(quota, "set_quota", "Sets what a tenant may keep.", handlers::set_quota),
        delete(quota, "reset_quota", "Lets a tenant keep what is usual.", handlers::reset_quota),
        post(gc, "collect_garbage", upkeep, handlers::collect_garbage).errors(&[404]),
    ]
}

/// The whole front.
pub fn router(control: Control) -> Router {
    table()
        .into_iter()
        .fold(Router::new(), |router, route| router.route(route.path, route.handler()))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_route)
        .layer(axum::middleware::from_fn_with_state(control.clone(), guard::pass))
        .with_state(control)
}

async fn healthy(_passed_over: AnyQuery) -> Response<Body> {
    text_of("text/plain; charset=utf-8", "ok\n".to_owned())
}

async fn ready(control: Control, _passed_over: AnyQuery) -> Result<Response<Body>, ApiError> {
    control.refuse_while_draining()?;
    // Those in force still decide: it is the operator who has to look, and who alone is told why.
    let policy = if control.policy_state().refused.is_some() { "policy: refused\n" } else { "" };
    // Nobody is told whose they are: that is on the operator's audit.
    let stores = match control.trees().all_shut().len() {
        0 => String::new(),
        shut => format!("stores: {shut} shut\n"),
    };
    Ok(text_of("text/plain; charset=utf-8", format!("ok\n{policy}{stores}")))
}

async fn keys(control: Control) -> Response<Body> {
    text_of("application/json", control.public_keys().to_owned())
}

async fn document() -> Response<Body> {
    text_of("application/json", openapi::text().to_owned())
}

async fn wrong_method(request: Request) -> Response<Body> {
    let message = format!("`{}` does not fit this path", request.method());
    let hint = "The `Allow` header names the methods that do.";
    ApiError::new(ErrorKind::MethodNotAllowed, "method_not_allowed", message, hint).into_response()
}

async fn no_route() -> Response<Body> {
    ApiError::not_found("there is no such route", "See the API's document at `/.well-known/openapi.json`.")
        .into_response()
}
