//! Foreign issuers as they come and go: rotation, removal, outage, bad answers, and what their claims mean.

use std::time::{Duration, Instant};

use bailey_control::auth::{AuthError, Freshness, Identity, IssuerConfig};
use bailey_policy::{Entitlement, ServedTenants};
use serde_json::{Value, json};

use crate::issuer::{IssuerProcess, SigningKey};
use crate::trust::{FRESHNESS, NOW, Trust, claims, fine, mapping, with};
use crate::world::World;

#[tokio::test]
async fn a_rotated_key_is_found_and_a_removed_one_dies() {
    let issuer = IssuerProcess::start();
    let (first, second) = (SigningKey::p256("k1"), SigningKey::ed25519("k2"));
    issuer.serve(&[&first]);
    let trust = Trust::new(issuer.config(mapping()));
    trust.until(&first.token(&claims(&issuer)), fine).await;
    // A key that appears is asked for by the first token that names it.
    issuer.serve(&[&first, &second]);
    trust.until(&second.token(&claims(&issuer)), fine).await;
    trust.user(&first.token(&claims(&issuer))).await;
    // A key that is removed dies with the next refresh, which comes by the clock alone: 30 s in a server.
    issuer.serve(&[&second]);
    let begin = Instant::now();
    trust.until(&first.token(&claims(&issuer)), |answer| answer.is_err().then_some(())).await;
    assert!(begin.elapsed() < FRESHNESS.every + Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(Freshness::default().every <= Duration::from_secs(30));
    // Its name is worth nothing to another key.
    let header = with(second.header(), &json!({"kid": "k1"})).to_string();
    assert!(trust.identify(&second.token_of(&header, &claims(&issuer).to_string())).await.is_err());
    trust.user(&second.token(&claims(&issuer))).await;
}

#[tokio::test]
async fn an_outage_keeps_what_was_good_and_nothing_that_is_new() {
    let mut issuer = IssuerProcess::start();
    let (key, new) = (SigningKey::rsa("k1"), SigningKey::rsa("k2"));
    issuer.serve(&[&key]);
    let trust = Trust::new(issuer.config(mapping()));
    trust.until(&key.token(&claims(&issuer)), fine).await;
    issuer.stop();
    tokio::time::sleep(FRESHNESS.every * 3).await;
    trust.user(&key.token(&claims(&issuer))).await;
    let unknown = trust.until(&new.token(&claims(&issuer)), |answer| answer.clone().err()).await;
    assert_eq!(unknown, AuthError::IssuerUnavailable);
    issuer.serve(&[&new]);
    issuer.restart();
    trust.until(&new.token(&claims(&issuer)), fine).await;
    trust.until(&key.token(&claims(&issuer)), |answer| answer.is_err().then_some(())).await;
}

#[tokio::test]
async fn keys_that_nobody_confirms_are_not_believed_for_ever() {
    let mut issuer = IssuerProcess::start();
    let key = SigningKey::ed25519("k1");
    issuer.serve(&[&key]);
    let trust = Trust::with(issuer.config(mapping()), Freshness { stale: Duration::from_secs(1), ..FRESHNESS });
    trust.until(&key.token(&claims(&issuer)), fine).await;
    issuer.stop();
    let end = trust.until(&key.token(&claims(&issuer)), |answer| answer.clone().err()).await;
    assert_eq!(end, AuthError::IssuerUnavailable);
}

#[tokio::test]
async fn slow_huge_garbage_and_misleading_answers_change_nothing() {
    let issuer = IssuerProcess::start();
    let (key, evil) = (SigningKey::ed25519("k1"), SigningKey::ed25519("k2"));
    issuer.serve(&[&key]);
    issuer.write("evil", &json!({"keys": [evil.jwk()]}).to_string());
    let trust = Trust::new(issuer.config(mapping()));
    trust.until(&key.token(&claims(&issuer)), fine).await;
    for mode in ["garbage", "huge", "redirect", "error", "slow", "drip"] {
        issuer.mode(mode);
        let before = issuer.asked().len();
        let begin = Instant::now();
        while issuer.asked().len() < before + 2 && begin.elapsed() < Duration::from_secs(8) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(issuer.asked().len() > before, "{mode}");
        // Whoever has a good token notices nothing, and whoever has none waits no longer than is promised.
        trust.user(&key.token(&claims(&issuer))).await;
        let begin = Instant::now();
        assert!(trust.identify(&evil.token(&claims(&issuer))).await.is_err(), "{mode}");
        assert!(begin.elapsed() < FRESHNESS.patience + Duration::from_millis(500), "{mode}: {:?}", begin.elapsed());
    }
    assert!(!issuer.asked().contains(&"/evil".to_owned()));
    issuer.mode("fine");
    for bad in [
        json!({"keys": vec![evil.jwk(); 65]}).to_string(),
        format!(r#"{{"keys":[],"keys":[{}]}}"#, evil.jwk()),
        json!([evil.jwk()]).to_string(),
    ] {
        issuer.write("keys", &bad);
        let before = issuer.asked().len();
        while issuer.asked().len() < before + 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        trust.user(&key.token(&claims(&issuer))).await;
        assert!(trust.identify(&evil.token(&claims(&issuer))).await.is_err());
    }
    issuer.serve(&[&evil]);
    trust.until(&evil.token(&claims(&issuer)), fine).await;
}

#[tokio::test]
async fn an_emptied_or_doubled_set_of_keys_takes_the_keys_back() {
    let issuer = IssuerProcess::start();
    let key = SigningKey::ed25519("k1");
    let mut sign = key.jwk();
    sign["use"] = json!("enc");
    for taken_back in [json!([]), json!([sign]), json!([key.jwk(), key.jwk()])] {
        issuer.serve(&[&key]);
        let trust = Trust::new(issuer.config(mapping()));
        trust.until(&key.token(&claims(&issuer)), fine).await;
        issuer.write("keys", &json!({"keys": taken_back}).to_string());
        let end = trust.until(&key.token(&claims(&issuer)), |answer| answer.clone().err()).await;
        assert_eq!(end, AuthError::UnknownKey, "{taken_back}");
    }
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_the_issuer_no_more_often_than_agreed() {
    let issuer = IssuerProcess::start();
    let key = SigningKey::ed25519("k1");
    issuer.serve(&[&key]);
    let freshness = Freshness {
        every: Duration::from_secs(3600),
        at_most_every: Duration::from_secs(1),
        patience: Duration::from_millis(300),
        ..FRESHNESS
    };
    let trust = Trust::with(issuer.config(mapping()), freshness);
    trust.until(&key.token(&claims(&issuer)), fine).await;
    let before = issuer.asked().len();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(2500) {
        let flood = (0..64).map(|n| {
            let header = with(key.header(), &json!({"kid": format!("x{n}")})).to_string();
            let token = key.token_of(&header, &claims(&issuer).to_string());
            let authenticator = trust.authenticator.clone();
            tokio::spawn(async move { authenticator.verify(&token, NOW * 1000).await })
        });
        for answer in futures_util::future::join_all(flood).await {
            assert!(answer.unwrap().is_err());
        }
        trust.user(&key.token(&claims(&issuer))).await;
    }
    let asked = issuer.asked().len() - before;
    assert!((1..=4).contains(&asked), "{asked}");
}

#[tokio::test]
async fn an_issuer_that_was_never_reached_is_said_to_be_away() {
    let mut issuer = IssuerProcess::start();
    let key = SigningKey::ed25519("k1");
    issuer.serve(&[&key]);
    issuer.stop();
    let trust = Trust::new(issuer.config(mapping()));
    assert_eq!(trust.identify(&key.token(&claims(&issuer))).await, Err(AuthError::IssuerUnavailable));
    issuer.restart();
    // Another issuer's document does not move in at its address.
    issuer.write(
        "discovery",
        &json!({"issuer": "https://evil.example", "jwks_uri": format!("{}/keys", issuer.url())}).to_string(),
    );
    tokio::time::sleep(FRESHNESS.every * 2).await;
    assert_eq!(trust.identify(&key.token(&claims(&issuer))).await, Err(AuthError::IssuerUnavailable));
    // Nor do its keys lie where nobody may be asked in the clear.
    issuer.write("discovery", &json!({"issuer": issuer.url(), "jwks_uri": "http://192.0.2.1/keys"}).to_string());
    tokio::time::sleep(FRESHNESS.every * 2).await;
    assert_eq!(trust.identify(&key.token(&claims(&issuer))).await, Err(AuthError::IssuerUnavailable));
    issuer
        .write("discovery", &json!({"issuer": issuer.url(), "jwks_uri": format!("{}/keys", issuer.url())}).to_string());
    trust.until(&key.token(&claims(&issuer)), fine).await;
}

#[tokio::test]
async fn cognito_and_access_tokens_are_mapped_as_documented() {
    let issuer = IssuerProcess::start();
    let key = SigningKey::rsa("k1");
    issuer.serve(&[&key]);
    // Amazon Cognito: no `typ`, no `aud`, groups and scopes.
    let cognito: IssuerConfig = serde_json::from_value(json!({
        "issuer": issuer.url(), "audiences": ["client-1"], "audience_claim": "client_id", "token_types": [""],
        "require": {"token_use": "access"},
        "claims": {"tenant_claim": "custom:tenant", "tenants": ["acme"], "roles_claim": "cognito:groups",
                   "role_names": {"Admins": "admin", "Everybody": "member"}, "entitlements_claim": "scope",
                   "entitlement_names": {"bailey/execute": "execute", "bailey/tree": "tree"}},
        "services": [{"claim": "sub", "value": "client-9", "name": "billing", "tenants": ["acme"]}],
        "operators": [{"claim": "cognito:groups", "value": "bailey-operators"}],
    }))
    .unwrap();
    let trust = Trust::new(cognito);
    let header = json!({"alg": "RS256", "kid": "k1"}).to_string();
    let base = json!({"iss": issuer.url(), "client_id": "client-1", "token_use": "access", "version": 2,
        "sub": "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "custom:tenant": "acme", "cognito:groups": ["Admins", "Other One"],
        "scope": "openid bailey/execute", "auth_time": NOW, "iat": NOW, "exp": NOW + 60, "jti": "j", "username": "ana"});
    let sign = |fields: &Value| key.token_of(&header, &with(base.clone(), fields).to_string());
    trust.until(&sign(&json!({})), fine).await;
    let user = trust.user(&sign(&json!({}))).await;
    assert_eq!(user.roles, ["admin".to_owned()].into());
    assert_eq!(user.entitlements, [Entitlement::Execute].into());
    assert_eq!(user.credential.id, "j");
    for refused in [json!({"token_use": "id"}), json!({"custom:tenant": "globex"}), json!({"client_id": "client-2"})] {
        assert!(trust.identify(&sign(&refused)).await.is_err(), "{refused}");
    }
    assert!(trust.identify(&key.token_of(&key.header().to_string(), &base.to_string())).await.is_err());
    match trust
        .identify(&sign(&json!({"sub": "client-9", "custom:tenant": null, "cognito:groups": null})))
        .await
        .unwrap()
    {
        Identity::Service(service) => {
            assert_eq!(service.name, "billing");
            assert_eq!(service.tenants, ServedTenants::Only(["acme".parse().unwrap()].into()));
        }
        other => panic!("{other:?}"),
    }
    match trust.identify(&sign(&json!({"cognito:groups": ["bailey-operators"]}))).await.unwrap() {
        Identity::Operator(operator) => assert_eq!(operator.name, "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        other => panic!("{other:?}"),
    }
    // Cloudflare Access: `typ` is JWT, the audience is the application's tag, the keys have an address of their own.
    let access: IssuerConfig = serde_json::from_value(json!({
        "issuer": issuer.url(), "jwks_uri": format!("{}/keys", issuer.url()), "audiences": ["tag"],
        "token_types": ["JWT"], "require": {"type": "app"},
        "claims": {"tenant": "acme", "user_claim": "email", "default_entitlements": ["execute", "tree"],
                   "roles_claim": ["custom", "groups"], "region_claim": "country",
                   "project_claim": ["custom", "team"]},
        "services": [{"claim": "common_name", "value": "abc.access", "name": "ci", "tenants": ["*"]}],
    }))
    .unwrap();
    let trust = Trust::new(access);
    let header = json!({"alg": "RS256", "kid": "k1", "typ": "JWT"}).to_string();
    let base = json!({"iss": issuer.url(), "aud": ["tag"], "type": "app", "email": "o'hara@example.com", "sub": "u-1",
        "iat": NOW, "nbf": NOW, "exp": NOW + 60, "identity_nonce": "n", "country": "DE", "custom": {"groups": "a b", "team": "atlas"}});
    let sign = |fields: &Value| key.token_of(&header, &with(base.clone(), fields).to_string());
    trust.until(&sign(&json!({})), fine).await;
    let user = trust.user(&sign(&json!({}))).await;
    assert_eq!((user.tenant.as_str(), user.user.as_str()), ("acme", "o|27hara@example.com"));
    assert_eq!(user.roles, ["a".to_owned(), "b".to_owned()].into());
    assert_eq!((user.region.as_deref(), user.project.as_deref()), (Some("DE"), Some("atlas")));
    assert!(trust.identify(&sign(&json!({"custom": {"team": ["atlas"]}}))).await.is_err());
    assert!(trust.identify(&sign(&json!({"type": "org"}))).await.is_err());
    let service = sign(&json!({"common_name": "abc.access", "sub": "", "email": null}));
    assert!(matches!(trust.identify(&service).await, Ok(Identity::Service(_))));
}

#[tokio::test]
async fn a_foreign_user_works_over_http_and_an_outage_is_a_503() {
    let mut issuer = IssuerProcess::start();
    let (key, new) = (SigningKey::p256("k1"), SigningKey::p256("k2"));
    issuer.serve(&[&key]);
    let world = World::trusting(vec![issuer.config(mapping())]).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let claims = with(claims(&issuer), &json!({"iat": now, "exp": now + 600, "scope": "tree"}));
    let ana = world.holder(&key.token(&claims));
    ana.put("/v1/tree/tenants/acme/x", "1").await.ok();
    assert_eq!(ana.get("/v1/tree/tenants/globex/x").await.error(403).policies, ["own-tenant-only"]);
    world
        .holder(&key.token(&with(claims.clone(), &json!({"exp": now - 60, "iat": now - 90}))))
        .get("/v1/runs")
        .await
        .error(401);
    issuer.stop();
    tokio::time::sleep(Duration::from_secs(1)).await;
    ana.get("/v1/tree/tenants/acme/x").await.ok();
    assert_eq!(world.holder(&new.token(&claims)).get("/v1/runs").await.error(503).error, "issuer_unavailable");
    let figures = String::from_utf8(world.operator().get("/metrics").await.ok().body.to_vec()).unwrap();
    assert!(figures.contains("\nbailey_issuer_keys_age_seconds{issuer=\"http"), "{figures}");
    assert!(
        figures.lines().any(|line| line.starts_with("bailey_issuer_failing{") && line.ends_with(" 1")),
        "{figures}"
    );
}

#[test]
fn an_issuer_is_described_completely_or_refused() {
    let good = json!({"issuer": "https://id.example.com", "audiences": ["x"], "claims": {"tenant": "acme"}});
    let parse = |fields: &Value| serde_json::from_value::<IssuerConfig>(with(good.clone(), fields));
    parse(&json!({})).unwrap().check().unwrap();
    for bad in [
        json!({"issuer": "http://id.example.com"}),
        json!({"issuer": "https://user:pass@id.example.com"}),
        json!({"issuer": "https://id.example.com/#x"}),
        json!({"issuer": "bailey"}),
        json!({"issuer": "file:///etc/passwd"}),
        json!({"issuer": "http://localhost:1"}),
        json!({"jwks_uri": "http://id.example.com/keys"}),
        json!({"audiences": []}),
        json!({"audiences": [""]}),
        json!({"token_types": []}),
        json!({"token_types": ["JWT"]}),
        json!({"token_types": ["at+jwt", ""]}),
        json!({"claims": {}}),
        json!({"claims": {"tenant": "acme", "tenant_claim": "t"}}),
        json!({"claims": {"tenant_claim": "t"}}),
        json!({"claims": {"tenant": "acme", "tenants": ["acme"]}}),
        json!({"claims": {"tenant_claim": "t", "tenants": ["*", "acme"]}}),
        json!({"claims": {"tenant_claim": "", "tenants": ["*"]}}),
        json!({"claims": {"tenant": "acme", "user_prefix": "a/"}}),
        json!({"claims": {"tenant": "acme", "user_prefix": "+"}}),
        json!({"services": [{"claim": "c", "value": "v", "name": "n", "tenants": []}]}),
    ] {
        assert!(parse(&bad).unwrap().check().is_err(), "{bad}");
    }
    for unknown in [json!({"audience": "x"}), json!({"claims": {"tenant": "acme", "rolls_claim": "x"}})] {
        assert!(parse(&unknown).is_err(), "{unknown}");
    }
}
