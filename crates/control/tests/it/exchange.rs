//! Service accounts: they get a user's token, and nothing else.

use bailey_policy::{Entitlement, Policies};
use bailey_protocol::api::identity::{AccountList, TokenAnswer};
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::world::World;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
pub const USER: &str = "urn:bailey:token-type:user";
pub const ACCESS: &str = "urn:ietf:params:oauth:token-type:access_token";

pub async fn exchange(client: &Client, subject: &str, kind: &str, scope: Option<&str>) -> Answer {
    let mut fields = vec![("grant_type", GRANT), ("subject_token", subject), ("subject_token_type", kind)];
    fields.extend(scope.map(|scope| ("scope", scope)));
    post_form(client, &fields).await
}

async fn post_form(client: &Client, fields: &[(&str, &str)]) -> Answer {
    let url = reqwest::Url::parse_with_params("form:/", fields).unwrap();
    client
        .ask(Method::POST, "/v1/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(url.query().unwrap().to_owned())
        .answer()
        .await
}

async fn token(world: &World, client: &Client, subject: &str, kind: &str, scope: Option<&str>) -> Client {
    let answer = exchange(client, subject, kind, scope).await.ok();
    assert_eq!(answer.header("cache-control"), "no-store");
    let token: TokenAnswer = answer.json();
    assert_eq!((token.token_type.as_str(), token.issued_token_type.as_str()), ("Bearer", ACCESS));
    assert!((1..=900).contains(&token.expires_in));
    world.holder(&token.access_token)
}

#[tokio::test]
async fn a_service_gets_a_users_token_which_says_who_acts() {
    let world = World::new().await;
    let billing = world.service("billing", &["acme"]);
    let ana = token(&world, &billing, "acme/ana", USER, None).await;
    ana.put("/v1/tree/tenants/acme/users/ana/x", "1").await.ok();
    ana.get("/v1/tree/tenants/acme/users/bob/x").await.error(403);
    ana.get("/v1/tree/tenants/globex/x").await.error(403);
    ana.get("/v1/users").await.error(403);
    assert_eq!(ana.get("/v1/operator/tenants").await.error(403).error, "wrong_identity");
    // The tenant's admin sees on whose behalf it was done.
    let audit = world.admin("acme", "boss").get("/v1/audit").await.ok();
    let text = String::from_utf8_lossy(&audit.body).into_owned();
    assert!(text.contains("token_exchange") && text.contains("tree_write") && text.contains("billing"), "{text}");
}

#[tokio::test]
async fn a_service_acts_for_its_tenants_alone_and_for_nobody_who_is_disabled() {
    let world = World::new().await;
    let (billing, all) = (world.service("billing", &["acme"]), world.service("support", &[]));
    for subject in ["globex/ana", "nobody/ana"] {
        let error = exchange(&billing, subject, USER, None).await.error(403);
        assert_eq!(error.error, "denied", "{error:?}");
        assert!(!error.policies.is_empty(), "{error:?}");
        token(&world, &all, subject, USER, None).await;
    }
    let boss = world.admin("acme", "boss");
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    assert_eq!(exchange(&billing, "acme/ana", USER, None).await.error(403).error, "user_disabled");
    let bob = token(&world, &billing, "acme/bob", USER, None).await;
    boss.post("/v1/users/bob/disable", json!({})).await.ok();
    assert_eq!(bob.get("/v1/runs").await.error(403).error, "user_disabled");
    world.operator().post("/v1/operator/tenants/acme/disable", json!({})).await.ok();
    assert_eq!(exchange(&billing, "acme/carl", USER, None).await.error(403).error, "tenant_disabled");
}

#[tokio::test]
async fn what_is_exchanged_can_be_narrowed_and_never_widened() {
    let world = World::new().await;
    let billing = world.service("billing", &["acme"]);
    let reader =
        token(&world, &billing, "acme/ana", USER, Some("tree read_only path:/tenants/acme/docs role:member")).await;
    world.client("acme", "bob").put("/v1/tree/tenants/acme/docs/a", "1").await.ok();
    reader.get("/v1/tree/tenants/acme/docs/a").await.ok();
    assert_eq!(reader.put("/v1/tree/tenants/acme/docs/a", "2").await.error(403).policies, ["credential-scope"]);
    reader.get("/v1/tree/tenants/acme/other").await.error(403);
    reader.run(json!({"command": ["true"]})).await.error(403);
    for scope in [
        "role:admin",
        "everything",
        "role:A B",
        "action:nothing",
        "path:/etc",
        "path:/tenants/globex",
        "x:y",
        " ",
        &"tree ".repeat(129),
    ] {
        let answer = exchange(&billing, "acme/ana", USER, Some(scope)).await;
        assert_eq!(answer.error(400).error, "invalid_scope", "{scope}");
    }
    // A proven user keeps what its token grants, and gets no more.
    let few = world.client_with("acme", "ana", &[bailey_policy::Entitlement::Tree]);
    let own = few.token.as_deref().unwrap();
    let proven = token(&world, &billing, own, ACCESS, None).await;
    proven.get("/v1/tree/tenants/acme/docs/a").await.ok();
    assert_eq!(proven.run(json!({"command": ["true"]})).await.error(403).policies, ["entitled-to-execute"]);
    assert_eq!(exchange(&billing, own, ACCESS, Some("execute")).await.error(400).error, "invalid_scope");
    assert_eq!(exchange(&billing, own, ACCESS, Some("role:admin")).await.error(400).error, "invalid_scope");
    // Nor for longer: its token ends in a moment.
    let brief = world.client_for("acme", "ana", 20);
    let answer: TokenAnswer = exchange(&billing, brief.token.as_deref().unwrap(), ACCESS, None).await.ok().json();
    assert_eq!(answer.expires_in, 1);
}

#[tokio::test]
async fn who_is_only_named_has_what_is_known_of_it_within_the_services_own_list() {
    let runs = || json!({"command": ["true"]});
    let forbid = r#"@id("no-contractors") forbid (principal is User, action == Action::"tree_write", resource)
        when { principal.roles.contains("contractor") };"#;
    let world = World::under(Policies::new(&[("o.cedar".to_owned(), forbid.to_owned())]).unwrap()).await;
    // Nothing by default.
    let bare = world.service_with("bare", &[], &[]);
    let nobody = token(&world, &bare, "acme/new", USER, None).await;
    assert_eq!(nobody.run(runs()).await.error(403).policies, ["entitled-to-execute"]);
    assert_eq!(exchange(&bare, "acme/new", USER, Some("execute")).await.error(400).error, "invalid_scope");
    assert_eq!(exchange(&bare, "acme/new", USER, Some("role:member")).await.error(400).error, "invalid_scope");
    // Who was never seen has what the service lists; who was seen no more than that and its own.
    let listed = [Entitlement::Tree, Entitlement::Execute];
    let billing = world.service_with("billing", &listed, &["contractor", "admin"]);
    let ana = token(&world, &billing, "acme/ana", USER, None).await;
    ana.put("/v1/tree/tenants/acme/users/ana/x", "1").await.ok();
    let few = world.client_with("acme", "ana", &[Entitlement::Tree, Entitlement::Git]);
    few.get("/v1/tree/tenants/acme/users/ana/x").await.ok();
    let ana = token(&world, &billing, "acme/ana", USER, None).await;
    ana.put("/v1/tree/tenants/acme/users/ana/x", "2").await.ok();
    assert_eq!(ana.run(runs()).await.error(403).policies, ["entitled-to-execute"]);
    for scope in ["execute", "git", "role:admin", "role:member"] {
        assert_eq!(
            exchange(&billing, "acme/ana", USER, Some(scope)).await.error(400).error,
            "invalid_scope",
            "{scope}"
        );
    }
    // A role that a policy forbids by goes along, an admin's does not.
    world.client_as("acme", "con", &["contractor", "admin"]).get("/v1/runs").await.ok();
    let con = token(&world, &billing, "acme/con", USER, None).await;
    assert_eq!(con.put("/v1/tree/tenants/acme/x", "1").await.error(403).policies, ["no-contractors"]);
    con.get("/v1/users").await.error(403);
    assert_eq!(exchange(&billing, "acme/con", USER, Some("role:admin")).await.error(400).error, "invalid_scope");
    // What is known lasts over a restart.
    world.admin("acme", "boss").get("/v1/users").await.ok();
    let world = World::on(world.stop().await).await;
    let billing = world.holder(billing.token.as_deref().unwrap());
    assert_eq!(exchange(&billing, "acme/ana", USER, Some("execute")).await.error(400).error, "invalid_scope");
    token(&world, &billing, "acme/con", USER, Some("execute role:contractor")).await;
}

#[tokio::test]
async fn who_is_only_named_has_its_tenants_facts_and_no_region_or_project_of_its_own() {
    let rules = r#"@id("eu-tenants") forbid (principal is User, action == Action::"tree_write", resource)
        unless { principal.tenant has region && principal.tenant.region == "eu" };
        @id("eu-users") forbid (principal is User, action == Action::"tree_delete", resource)
        unless { principal has region && principal.region == "eu" };
        @id("no-us") forbid (principal is User, action == Action::"tree_list", resource)
        when { principal has region && principal.region == "us" };"#;
    let world = World::under(Policies::new(&[("o.cedar".to_owned(), rules.to_owned())]).unwrap()).await;
    let (billing, root) = (world.service("billing", &["acme"]), world.operator());
    let path = "/v1/tree/tenants/acme/users/ana/x";
    let named = token(&world, &billing, "acme/ana", USER, None).await;
    assert_eq!(named.put(path, "1").await.error(403).policies, ["eu-tenants"]);
    let facts = root.ask(Method::PUT, "/v1/operator/tenants/acme/facts").header("content-type", "application/json");
    facts.body(r#"{"region":"eu"}"#).answer().await.ok();
    named.put(path, "1").await.ok();
    // What its tenant's region is it is not itself: a rule about the user's own denies where it wants one.
    assert_eq!(named.delete(path).await.error(403).policies, ["eu-users"]);
    // Nor is what an issuer said of it before remembered. A rule that forbids by it does not hold for who is named.
    let us = world.client_in("acme", "ana", "us");
    assert_eq!(us.get("/v1/tree/tenants/acme/users/ana").await.error(403).policies, ["no-us"]);
    let named = token(&world, &billing, "acme/ana", USER, None).await;
    named.get("/v1/tree/tenants/acme/users/ana").await.ok();
    // A proven user keeps what its token says.
    let proven = token(&world, &billing, us.token.as_deref().unwrap(), ACCESS, None).await;
    assert_eq!(proven.get("/v1/tree/tenants/acme/users/ana").await.error(403).policies, ["no-us"]);
    let eu = world.client_in("acme", "ana", "eu");
    let proven = token(&world, &billing, eu.token.as_deref().unwrap(), ACCESS, None).await;
    proven.delete(path).await.ok();
}

#[tokio::test]
async fn services_and_operators_end_with_what_they_exchanged_and_stay_so() {
    let world = World::new().await;
    let (billing, shop, root) = (world.service("billing", &[]), world.service("shop", &[]), world.operator());
    let ana = token(&world, &billing, "acme/ana", USER, None).await;
    let bob = token(&world, &shop, "acme/bob", USER, None).await;
    let share = json!({"path": "/tenants/acme/users/ana", "mode": "read", "minutes": 60});
    let shared: serde_json::Value = ana.post("/v1/tree-tokens", share).await.ok().json();
    let shared = world.holder(shared["token"].as_str().unwrap());
    shared.get("/v1/tree/tenants/acme/users/ana").await.ok();
    let path = |kind: &str, name: &str, verb: &str| format!("/v1/operator/accounts/{kind}/{name}/{verb}");
    root.post(&path("service", "billing", "disable"), json!({})).await.ok();
    for refused in [&billing, &ana, &shared] {
        assert_eq!(refused.get("/v1/runs").await.error(403).error, "account_disabled");
    }
    bob.get("/v1/runs").await.ok();
    // A user of that name is somebody else.
    world.client("acme", "billing").get("/v1/runs").await.ok();
    assert_eq!(root.post(&path("operator", "root", "disable"), json!({})).await.error(400).error, "own_account");
    root.post(&path("operator", "rita", "disable"), json!({})).await.ok();
    let rita = world.operator_named("rita");
    assert_eq!(rita.get("/v1/operator/tenants").await.error(403).error, "account_disabled");
    root.post(&path("tenant", "acme", "disable"), json!({})).await.error(400);
    let listed: AccountList = root.get("/v1/operator/accounts").await.ok().json();
    let names: Vec<_> = listed.disabled.iter().map(|one| format!("{}/{}", one.kind, one.name)).collect();
    assert_eq!(names, ["service/billing", "operator/rita"]);
    let audit = root.get("/v1/operator/audit").await.ok();
    assert!(String::from_utf8_lossy(&audit.body).contains("service/billing"));
    // Over a restart too, until somebody enables it.
    let world = World::on(world.stop().await).await;
    let billing = world.holder(billing.token.as_deref().unwrap());
    assert_eq!(exchange(&billing, "acme/ana", USER, None).await.error(403).error, "account_disabled");
    world.operator().post(&path("service", "billing", "enable"), json!({})).await.ok();
    token(&world, &billing, "acme/ana", USER, None).await;
}

#[tokio::test]
async fn only_a_users_own_token_is_a_subject_and_only_rfc_8693_a_form() {
    let world = World::new().await;
    let billing = world.service("billing", &[]);
    let exchanged: TokenAnswer = exchange(&billing, "acme/ana", USER, None).await.ok().json();
    let admin = world.admin("acme", "boss");
    let key = admin.post("/v1/keys", json!({"name": "ci", "ttl_seconds": 60})).await.ok().json::<serde_json::Value>();
    for subject in [
        exchanged.access_token.as_str(),
        key["value"].as_str().unwrap(),
        billing.token.as_deref().unwrap(),
        world.operator().token.as_deref().unwrap(),
        "x.y.z",
        "",
    ] {
        assert_eq!(exchange(&billing, subject, ACCESS, None).await.error(400).error, "invalid_request");
    }
    for subject in ["acme", "acme/", "/ana", "ACME/ana", "acme/../x", "acme/+ci", "acme/ana/x", ""] {
        assert_eq!(exchange(&billing, subject, USER, None).await.error(400).error, "invalid_request", "{subject}");
    }
    let form = |grant, kind| [("grant_type", grant), ("subject_token", "acme/ana"), ("subject_token_type", kind)];
    let answer = post_form(&billing, &form("client_credentials", USER)).await;
    assert_eq!(answer.error(400).error, "unsupported_grant_type");
    assert_eq!(post_form(&billing, &form(GRANT, "urn:x")).await.error(400).error, "invalid_request");
    let more = [&form(GRANT, USER)[..], &[("tenant", "globex")]].concat();
    assert_eq!(post_form(&billing, &more).await.error(400).error, "invalid_request");
    let twice = [&form(GRANT, USER)[..], &[("subject_token", "globex/gil")]].concat();
    assert_eq!(post_form(&billing, &twice).await.error(400).error, "invalid_request");
    let json = billing.post("/v1/token", json!({"grant_type": GRANT})).await;
    assert_eq!(json.error(415).error, "not_a_form");
}
