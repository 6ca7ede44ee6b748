//! `bailey user`, `bailey tenant`, `bailey account`, `bailey key`: who may ask.

use std::process::ExitCode;

use bailey_protocol::api::identity::{
    AccountList, DisabledAccount, DisabledAnswer, ForgottenAnswer, KeyCreated, KeyInfo, KeyList, KeyRequest,
    TenantInfo, TenantList, TenantNoted, TenantNotes, UserInfo, UserList,
};
use bailey_protocol::id::TenantId;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{VerbError, connect, say, say_list};
use crate::cli::Common;
use crate::cli::identity::{
    AccountArgs, AccountNamed, AccountVerb, KeyArgs, KeyCreateArgs, KeyVerb, TenantArgs, TenantSetArgs, TenantVerb,
    UserArgs, UserNamed, UserVerb,
};
use crate::client::{Client, segment};
use crate::terminal::{Paint, note, printable, rows, time};

pub(super) async fn user(args: UserArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    match args.verb {
        UserVerb::List { tenant } => {
            let path = tenant.map_or_else(|| "/v1/users".to_owned(), |of| format!("/v1/operator/tenants/{of}/users"));
            let page = |page: UserList| (page.users, page.next.map(|next| next.to_string()));
            let list = UserList { users: pages(&client, &path, page).await?, next: None };
            say_list(&common, &list, "no users yet", || rows(&list.users, user_row))
        }
        UserVerb::Disable(named) => set(&client, &user_path(&named, "disable"), named.user.as_str(), &common).await,
        UserVerb::Enable(named) => set(&client, &user_path(&named, "enable"), named.user.as_str(), &common).await,
        UserVerb::Forget(named) => {
            let path = user_path(&named, "");
            let forgotten: ForgottenAnswer =
                client.json(Method::DELETE, path.trim_end_matches('/'), None::<&()>).await?;
            say(&common, &forgotten, || {
                let ForgottenAnswer { audit_rows, runs, keys } = &forgotten;
                format!("forgotten: {runs} runs, {keys} keys, details of {audit_rows} rows of the audit")
            })
        }
    }
}

pub(super) async fn tenant(args: TenantArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = |tenant: &TenantId, verb: &str| format!("/v1/operator/tenants/{tenant}/{verb}");
    match args.verb {
        TenantVerb::List => {
            let page = |page: TenantList| (page.tenants, page.next.map(|next| next.to_string()));
            let tenants = pages(&client, "/v1/operator/tenants", page).await?;
            let list = TenantList { tenants, next: None };
            say_list(&common, &list, "no tenants yet", || rows(&list.tenants, tenant_row))
        }
        TenantVerb::Disable { tenant } => set(&client, &path(&tenant, "disable"), tenant.as_str(), &common).await,
        TenantVerb::Enable { tenant } => set(&client, &path(&tenant, "enable"), tenant.as_str(), &common).await,
        TenantVerb::Show { tenant } => {
            let noted: TenantNoted = client.get(&path(&tenant, "facts"), &[]).await?;
            say(&common, &noted, || described(&noted))
        }
        TenantVerb::Set(args) => {
            let path = path(&args.tenant, "facts");
            let now: TenantNoted = client.get(&path, &[]).await?;
            let noted: TenantNoted = client.json(Method::PUT, &path, Some(&changed(now, &args))).await?;
            say(&common, &noted, || described(&noted))
        }
    }
}

pub(super) async fn account(args: AccountArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = |named: &AccountNamed, verb: &str| {
        format!("/v1/operator/accounts/{}/{}/{verb}", named.kind, segment(named.name.as_str()))
    };
    match args.verb {
        AccountVerb::List => {
            let all: AccountList = client.get("/v1/operator/accounts", &[]).await?;
            say_list(&common, &all, "none is disabled", || rows(&all.disabled, account_row))
        }
        AccountVerb::Disable(named) => set(&client, &path(&named, "disable"), named.name.as_str(), &common).await,
        AccountVerb::Enable(named) => set(&client, &path(&named, "enable"), named.name.as_str(), &common).await,
    }
}

pub(super) async fn key(args: KeyArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    match args.verb {
        KeyVerb::Create(args) => {
            let made: KeyCreated = client.post("/v1/keys", &request(args)).await?;
            if !common.json {
                note!("bailey: `{}` until {}; it is shown this once", made.key.id, time(made.key.expires_ms));
            }
            say(&common, &made, || made.value.clone())
        }
        KeyVerb::List => {
            let page = |page: KeyList| (page.keys, page.next.map(|next| next.to_string()));
            let list = KeyList { keys: pages(&client, "/v1/keys", page).await?, next: None };
            say_list(&common, &list, "no keys", || rows(&list.keys, key_row))
        }
        KeyVerb::Revoke { key } => {
            client.remove(&format!("/v1/keys/{key}"), &[]).await?;
            say(&common, &json!({ "id": key, "revoked": true }), || format!("{key} is revoked"))
        }
    }
}

/// Every row of a list, page by page.
async fn pages<P: DeserializeOwned, T>(
    client: &Client,
    path: &str,
    split: impl Fn(P) -> (Vec<T>, Option<String>),
) -> Result<Vec<T>, VerbError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let query: Vec<_> = after.iter().map(|after: &String| ("after", after.clone())).collect();
        let (rows, next) = split(client.get(path, &query).await?);
        all.extend(rows);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

fn user_path(named: &UserNamed, verb: &str) -> String {
    let user = segment(named.user.as_str());
    match &named.tenant {
        Some(tenant) => format!("/v1/operator/tenants/{tenant}/users/{user}/{verb}"),
        None => format!("/v1/users/{user}/{verb}"),
    }
}

fn changed(now: TenantNoted, args: &TenantSetArgs) -> TenantNotes {
    TenantNotes {
        region: args.region.clone().or(now.region.filter(|_| !args.no_region)),
        plan: args.plan.clone().or(now.plan.filter(|_| !args.no_plan)),
    }
}

fn described(noted: &TenantNoted) -> String {
    let shown = |noted: &Option<String>| noted.as_deref().map_or_else(|| "not noted".to_owned(), printable);
    let (seen, region, plan) = (never_seen(noted.known), shown(&noted.region), shown(&noted.plan));
    format!("{}{seen}\n  region  {region}\n  plan    {plan}", noted.tenant)
}

/// Disables or enables who is named, and says what they are now.
async fn set(client: &Client, path: &str, name: &str, common: &Common) -> Result<ExitCode, VerbError> {
    let answer: DisabledAnswer = client.post(path, &json!({})).await?;
    let state = if answer.disabled { "disabled" } else { "enabled" };
    let seen = never_seen(answer.known.unwrap_or(true));
    say(common, &answer, || format!("{} is {state}{seen}", printable(name)))
}

/// What is added where nobody of that name was ever seen: it may be misspelt.
pub(super) fn never_seen(known: bool) -> &'static str {
    if known { "" } else { " (nobody of that name was ever seen)" }
}

fn request(args: KeyCreateArgs) -> KeyRequest {
    let some = |list: Vec<String>| if list.is_empty() { None } else { Some(list) };
    KeyRequest {
        name: args.name,
        user: args.user,
        roles: args.roles,
        entitlements: some(args.entitlements),
        actions: some(args.actions),
        paths: if args.paths.is_empty() { None } else { Some(args.paths) },
        read_only: args.read_only,
        ttl_seconds: args.ttl.as_secs(),
    }
}

fn user_row(user: &UserInfo) -> String {
    let state = state(user.disabled_since_ms, "enabled");
    let roles = printable(&user.roles.join(","));
    format!("{:<24} {state} {} {roles}", printable(user.user.as_str()), seen(user.last_seen_ms, "never seen"))
}

fn tenant_row(tenant: &TenantInfo) -> String {
    let state = state(tenant.disabled_since_ms, "enabled");
    format!("{:<24} {state} {} {} users", tenant.tenant, seen(tenant.last_seen_ms, "never seen"), tenant.users)
}

fn account_row(account: &DisabledAccount) -> String {
    let name = printable(account.name.as_str());
    format!("{:<8} {name:<24} disabled {}", account.kind, time(account.disabled_since_ms))
}

fn key_row(key: &KeyInfo) -> String {
    let state = state(key.revoked_ms, "holds");
    let (user, name) = (printable(key.user.as_str()), printable(&key.name));
    let (until, used) = (time(key.expires_ms), seen(key.last_used_ms, "never used"));
    format!("{} {state} until {until} {used} {user:<16} {name}", key.id)
}

fn seen(at_ms: Option<u64>, never: &str) -> String {
    at_ms.map_or_else(|| never.to_owned(), time)
}

fn state(ended_ms: Option<u64>, fine: &str) -> String {
    let paint = Paint::stdout();
    match ended_ms {
        None => paint.green(&format!("{fine:<9}")),
        Some(_) => paint.yellow(&format!("{:<9}", "ended")),
    }
}
