//! Names that nobody has: what is asked about them says so, and what is nobody's to be called is refused.

use bailey_protocol::api::BaselineList;
use bailey_protocol::api::identity::{DisabledAnswer, TenantNoted, UserList};
use bailey_protocol::quota::{TenantQuota, TenantStorage};
use http::Method;
use serde_json::json;

use crate::exchange::{USER, exchange};
use crate::issuer::{IssuerProcess, SigningKey};
use crate::shares::{publish, tar};
use crate::trust::{Trust, claims, fine, mapping, with};
use crate::world::World;

#[tokio::test]
async fn who_was_never_seen_is_told_and_can_be_disabled_all_the_same() {
    let world = World::new().await;
    let (boss, root) = (world.admin("acme", "boss"), world.operator());
    world.client("acme", "ana").get("/v1/runs").await.ok();
    let machine = json!({"name": "ci", "ttl_seconds": 60, "user": "+ci"});
    boss.post("/v1/keys", machine).await.ok();
    for (user, known) in [("ana", true), ("+ci", true), ("boss", true), ("anna", false)] {
        for verb in ["disable", "enable"] {
            let mine = format!("/v1/users/{user}/{verb}");
            let theirs = format!("/v1/operator/tenants/acme/users/{user}/{verb}");
            let clients = [(&boss, &mine), (&root, &theirs)];
            for (client, path) in clients.into_iter().filter(|_| user != "boss" || verb == "enable") {
                let answer: DisabledAnswer = client.post(path, json!({})).await.ok().json();
                assert_eq!((answer.known, answer.disabled), (Some(known), verb == "disable"), "{path}");
                root.post(&theirs.replace("disable", "enable"), json!({})).await.ok();
            }
        }
    }
    // Disabled before it was seen it is when it comes; and forgotten is known.
    boss.post("/v1/users/zoe/disable", json!({})).await.ok();
    assert_eq!(world.client("acme", "zoe").get("/v1/runs").await.error(403).error, "user_disabled");
    boss.delete("/v1/users/ana").await.ok();
    let answer: DisabledAnswer = boss.post("/v1/users/ana/enable", json!({})).await.ok().json();
    assert_eq!((answer.known, answer.changed), (Some(true), true));
}

#[tokio::test]
async fn a_tenant_of_which_nobody_was_seen_is_told() {
    let world = World::new().await;
    let root = world.operator();
    world.client("acme", "ana").get("/v1/runs").await.ok();
    let quota = serde_json::to_string(&TenantQuota::UNLIMITED).unwrap();
    for (tenant, known) in [("acme", true), ("acmee", false)] {
        let of = |what: &str| format!("/v1/operator/tenants/{tenant}/{what}");
        let put = async |what: &str, body: &str| {
            let asking = root.ask(Method::PUT, &of(what)).header("content-type", "application/json");
            asking.body(body.to_owned()).answer().await.ok()
        };
        for storage in [root.get(&of("quota")).await, put("quota", &quota).await, root.delete(&of("quota")).await] {
            assert_eq!(storage.ok().json::<TenantStorage>().known, known, "{tenant}");
        }
        for noted in [put("facts", r#"{"plan": "gold"}"#).await, root.get(&of("facts")).await] {
            let noted: TenantNoted = noted.ok().json();
            assert_eq!((noted.known, noted.plan.as_deref()), (known, Some("gold")), "{tenant}");
        }
        let (users, gc) = (root.get(&of("users")).await, root.post(&of("gc"), json!({})).await);
        if known {
            assert_eq!(users.ok().json::<UserList>().users.len(), 1);
            gc.ok();
        } else {
            assert_eq!((users.error(404).error, gc.error(404).error).0, "unknown_tenant");
        }
        for verb in ["disable", "enable"] {
            let answer: DisabledAnswer = root.post(&of(verb), json!({})).await.ok().json();
            assert_eq!(answer.known, Some(known), "{tenant} {verb}");
        }
    }
    // To its own it is there.
    let own: TenantStorage = world.admin("globex", "gil").get("/v1/tenant").await.ok().json();
    assert!(own.known);
}

#[tokio::test]
async fn an_operator_lists_a_tenants_users_and_what_is_published() {
    let world = World::new().await;
    let root = world.operator();
    for user in ["ana", "bob"] {
        world.client("acme", user).get("/v1/runs").await.ok();
    }
    world.client("globex", "gil").get("/v1/runs").await.ok();
    let page: UserList = root.get("/v1/operator/tenants/acme/users?limit=1").await.ok().json();
    assert_eq!((page.users[0].user.as_str(), page.next.as_ref().unwrap().as_str()), ("ana", "ana"));
    let page: UserList = root.get("/v1/operator/tenants/acme/users?after=ana").await.ok().json();
    assert_eq!(page.users.iter().map(|user| user.user.as_str()).collect::<Vec<_>>(), ["bob"]);
    for other in [world.admin("acme", "boss"), world.service("billing", &[])] {
        assert_eq!(other.get("/v1/operator/tenants/acme/users").await.error(403).error, "wrong_identity");
        assert_eq!(other.get("/v1/operator/baselines").await.error(403).error, "wrong_identity");
    }
    publish(&root, "starter", tar(&[("a", "1")])).await.ok();
    let list: BaselineList = root.get("/v1/operator/baselines").await.ok().json();
    assert_eq!(list.baselines[0].name.as_str(), "starter");
}

#[tokio::test]
async fn what_an_operator_disabled_no_admin_enables_and_is_told_so() {
    let world = World::new().await;
    let (boss, root) = (world.admin("acme", "boss"), world.operator());
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    root.post("/v1/operator/tenants/acme/users/ana/disable", json!({})).await.ok();
    for _ in 0..2 {
        let error = boss.post("/v1/users/ana/enable", json!({})).await.error(403);
        assert!(error.error == "disabled_by_operator" && error.hint.contains("operator"), "{error:?}");
    }
    assert_eq!(world.client("acme", "ana").get("/v1/runs").await.error(403).error, "user_disabled");
    let audit: bailey_protocol::audit::AuditPage = boss.get("/v1/audit?action=user_enable").await.ok().json();
    assert!(audit.records.iter().all(|record| record.row.outcome == "disabled_by_operator"), "{audit:?}");
    root.post("/v1/operator/tenants/acme/users/ana/enable", json!({})).await.ok();
    world.client("acme", "ana").get("/v1/runs").await.ok();
    // Nor does a key hold whose user is disabled: it is not made.
    boss.post("/v1/users/+ci/disable", json!({})).await.ok();
    let machine = json!({"name": "ci", "ttl_seconds": 60, "user": "+ci"});
    assert_eq!(boss.post("/v1/keys", machine.clone()).await.error(409).error, "key_user_disabled");
    boss.post("/v1/users/+ci/enable", json!({})).await.ok();
    boss.post("/v1/keys", machine).await.ok();
}

#[tokio::test]
async fn nobody_is_called_what_stands_for_who_has_no_name() {
    let world = World::new().await;
    let (boss, root, services) = (world.admin("acme", "boss"), world.operator(), world.service("billing", &[]));
    for name in ["|forgotten", "|webhook", "|", "|4"] {
        let url = name.replace('|', "%7C");
        exchange(&services, &format!("acme/{name}"), USER, None).await.error(400);
        for verb in ["disable", "enable"] {
            boss.post(&format!("/v1/users/{url}/{verb}"), json!({})).await.error(400);
            root.post(&format!("/v1/operator/tenants/acme/users/{url}/{verb}"), json!({})).await.error(400);
            root.post(&format!("/v1/operator/accounts/operator/{url}/{verb}"), json!({})).await.error(400);
        }
        boss.delete(&format!("/v1/users/{url}")).await.error(400);
        root.delete(&format!("/v1/operator/tenants/acme/users/{url}")).await.error(400);
        boss.post("/v1/keys", json!({"name": "k", "ttl_seconds": 60, "user": name})).await.error(400);
        boss.post("/v1/explain", json!({"action": "run_list", "user": name})).await.error(400);
        boss.get(&format!("/v1/tree/tenants/acme/users/{url}/x")).await.error(400);
    }
    // A machine's user is no user's either: only keys act as one.
    exchange(&services, "acme/+ci", USER, None).await.error(400);
    // An issuer may call its users what it likes.
    let (issuer, key) = (IssuerProcess::start(), SigningKey::ed25519("k1"));
    issuer.serve(&[&key]);
    let trust = Trust::new(issuer.config(mapping()));
    trust.until(&key.token(&claims(&issuer)), fine).await;
    for (sub, user) in [("|forgotten", "|7Cforgotten"), ("+ci", "|2Bci"), ("a|forgotten", "a|forgotten")] {
        let token = key.token(&with(claims(&issuer), &json!({"sub": sub})));
        assert_eq!(trust.user(&token).await.user.as_str(), user);
    }
}

#[tokio::test]
async fn a_path_where_nothing_is_is_told_to_who_labels_or_shares_it() {
    let rule = r#"@id("hidden") forbid (principal, action == Action::"tree_list", resource)
        when { resource.path like "/tenants/acme/hidden*" };"#;
    let world = World::under(bailey_policy::Policies::new(&[("o.cedar".to_owned(), rule.to_owned())]).unwrap()).await;
    let boss = world.admin("acme", "boss");
    for path in ["docs/a", "hidden/a"] {
        boss.put(&format!("/v1/tree/tenants/acme/{path}"), "1").await.ok();
    }
    for (path, known) in
        [("docs", json!(true)), ("docs/a", json!(true)), ("dosc", json!(false)), ("hidden", json!(null))]
    {
        let full = format!("/tenants/acme/{path}");
        let front = format!("/v1/labels{full}");
        let label = boss.ask(Method::PUT, &front).body(r#"{"labels": ["x"]}"#).answer();
        let labelled: serde_json::Value = label.await.ok().json();
        assert_eq!(labelled["known"], known, "{path}");
        let asked = json!({"path": full, "mode": "read", "minutes": 5});
        let shared: serde_json::Value = boss.post("/v1/tree-tokens", asked).await.ok().json();
        assert_eq!(shared["known"], known, "{path}");
    }
}

#[tokio::test]
async fn what_an_operator_disables_waits_for_one_change_of_each_tenant_and_not_for_all_of_them() {
    const MANY: usize = 200;
    let world = World::new().await;
    let (admin, operator) = (world.admin("acme", "adm"), world.operator());
    let done = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let asks = (0..MANY).map(|number| {
        let (admin, done) = (admin.clone(), std::sync::Arc::clone(&done));
        tokio::spawn(async move {
            admin.post(&format!("/v1/users/u{number}/disable"), json!({})).await.ok();
            done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })
    });
    let asks: Vec<_> = asks.collect();
    let so_far = || done.load(std::sync::atomic::Ordering::Relaxed);
    while so_far() == 0 {
        tokio::task::yield_now().await;
    }
    let before = so_far();
    operator.post("/v1/operator/tenants/acme/users/eve/disable", json!({})).await.ok();
    let meanwhile = so_far() - before;
    assert!(meanwhile < MANY / 4, "{meanwhile} changes of the tenant's came first");
    for ask in asks {
        ask.await.unwrap();
    }
}
