//! What every database has to remember of those who ask.

use std::path::Path;

use bailey_policy::{
    AdminAction, AdminPermit, CredentialId, CredentialKind, Entitlement, Operator, OperatorPermit, Scope, TenantAction,
    TenantFacts,
};
use bailey_protocol::id::{KeyId, UserId};

use super::{Open, policies, principal};
use crate::db::{DbError, KeyGrants, MAX_UNSEEN_DISABLED, NewKey, Rights, StandingRows, SubjectRecord, SubjectSeen};

pub(super) fn admin(tenant: &str, action: AdminAction) -> AdminPermit {
    let mut who = principal(tenant, "boss");
    who.roles.insert("admin".to_owned());
    policies().judge(&who, 0).admin(action).unwrap()
}

fn operator(tenant: &str, action: TenantAction) -> OperatorPermit {
    let credential = CredentialId { kind: CredentialKind::Token, id: "x".to_owned() };
    let operator = Operator { name: "root".to_owned(), roles: [].into(), valid_until_ms: u64::MAX, credential };
    policies().judge_operator(&operator, 0).tenant(action, &tenant.parse().unwrap(), &TenantFacts::default()).unwrap()
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

/// Seen at a time, with a token that was issued then.
fn seen(tenant: &str, name: &str, at: u64) -> SubjectSeen {
    let (roles, entitlements) = ([format!("r{at}"), "all".to_owned()].into(), Entitlement::ALL.into());
    let rights = Rights {
        issued_s: at,
        valid_until_ms: at + 100,
        roles,
        entitlements,
        region: Some("eu".to_owned()),
        project: None,
    };
    SubjectSeen { tenant: tenant.parse().unwrap(), user: user(name), rights, seen_ms: at }
}

fn new_key(n: u64, name: &str) -> NewKey {
    NewKey {
        id: KeyId::mint(n, [7; 10]),
        hash: [u8::try_from(n).unwrap(); 32],
        name: name.to_owned(),
        user: user("boss"),
        grants: KeyGrants {
            roles: ["member".to_owned()].into(),
            entitlements: Entitlement::ALL.into(),
            scope: Scope { actions: [].into(), paths: None, read_only: true },
            region: Some("eu".to_owned()),
            project: None,
        },
        created_ms: n,
        expires_ms: n + 1000,
    }
}

pub(crate) async fn subjects_are_remembered_with_their_age(dir: &Path, open: Open) {
    let db = open(dir);
    db.note_subjects(vec![seen("acme", "ana", 10), seen("acme", "bob", 11), seen("globex", "gil", 12)]).await.unwrap();
    db.note_subjects(vec![seen("acme", "ana", 20)]).await.unwrap();
    // What comes late changes nothing, nor does a token that was issued before, whenever it is seen.
    db.note_subjects(vec![seen("acme", "ana", 15)]).await.unwrap();
    db.note_subjects(vec![SubjectSeen { seen_ms: 30, ..seen("acme", "ana", 15) }]).await.unwrap();
    let permit = admin("acme", AdminAction::UserList);
    let users = db.users(&permit, 10, None).await.unwrap();
    let known = users[0].seen.as_ref().unwrap();
    assert_eq!((known.first_ms, known.last_ms), (10, 30));
    assert_eq!(known.rights, seen("acme", "ana", 20).rights);
    // Of two of one second both have to say it.
    let mut other = seen("acme", "bob", 11);
    (other.rights.roles, other.rights.entitlements) =
        (["all".to_owned(), "x".to_owned()].into(), [Entitlement::Git].into());
    db.note_subjects(vec![other]).await.unwrap();
    let users = db.users(&permit, 10, None).await.unwrap();
    let known = &users[1].seen.as_ref().unwrap().rights;
    assert_eq!((known.roles.len(), &known.entitlements), (1, &[Entitlement::Git].into()));
    let names = |users: &[SubjectRecord]| users.iter().map(|each| each.user.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&users), ["ana", "bob"]);
    assert_eq!(names(&db.users(&permit, 1, None).await.unwrap()), ["ana"]);
    assert_eq!(names(&db.users(&permit, 10, Some(&user("ana"))).await.unwrap()), ["bob"]);
}

pub(crate) async fn what_an_operator_disabled_no_admin_enables(dir: &Path, open: Open) {
    let db = open(dir);
    let (off, on) = (admin("acme", AdminAction::UserDisable), admin("acme", AdminAction::UserEnable));
    let ana = user("ana");
    let set = async |disabled: bool, permit: &AdminPermit| {
        let found = db.set_user_disabled(permit, &ana, disabled, 5).await.unwrap();
        (found.changed, found.now)
    };
    assert_eq!(set(true, &off).await, (true, true));
    assert_eq!(set(true, &off).await, (false, true));
    let by_operator = operator("acme", TenantAction::Disable);
    db.set_disabled(&by_operator, Some(&ana), true, 6).await.unwrap();
    // Nor is its own word taken back that way.
    assert_eq!(set(false, &on).await, (false, true));
    // Another tenant's admin says nothing about this one's user.
    let foreign = admin("globex", AdminAction::UserEnable);
    db.set_user_disabled(&foreign, &ana, false, 7).await.unwrap();
    db.set_disabled(&operator("globex", TenantAction::Disable), None, true, 8).await.unwrap();
    drop(db);
    let db = open(dir);
    let rows = db.standing(0).await.unwrap();
    assert_eq!(rows.tenants, ["globex".parse().unwrap()]);
    assert_eq!(rows.users, [("acme".parse().unwrap(), ana.clone())]);
    // An operator's word ends an admin's as well.
    db.set_user_disabled(&off, &ana, true, 9).await.unwrap();
    let found = db.set_disabled(&operator("acme", TenantAction::Enable), Some(&ana), false, 10).await.unwrap();
    assert_eq!((found.changed, found.now), (true, false));
    // Nobody has seen ana, so that nothing is left of her; globex is known by its being disabled.
    assert!(db.users(&admin("acme", AdminAction::UserList), 10, None).await.unwrap().is_empty());
}

pub(crate) async fn users_that_nobody_has_seen_are_disabled_up_to_a_number(dir: &Path, open: Open) {
    let db = open(dir);
    let (off, on) = (admin("acme", AdminAction::UserDisable), admin("acme", AdminAction::UserEnable));
    db.note_subjects(vec![seen("acme", "seen", 1)]).await.unwrap();
    let disable = async |number: u32| {
        let user = user(&format!("nobody{number}"));
        db.set_user_disabled(&off, &user, true, 5).await.map(|found| found.changed)
    };
    let all = futures_util::future::join_all((0..MAX_UNSEEN_DISABLED).map(disable)).await;
    assert!(all.into_iter().all(|one| one.unwrap()));
    let refused = disable(MAX_UNSEEN_DISABLED).await.unwrap_err();
    assert!(matches!(refused, DbError::TooManyDisabled { .. }), "{refused}");
    assert!(!disable(0).await.unwrap(), "what is so already may be said again");
    assert!(
        db.set_user_disabled(&off, &user("seen"), true, 5).await.unwrap().changed,
        "who came once counts for nothing"
    );
    let other = admin("globex", AdminAction::UserDisable);
    assert!(
        db.set_user_disabled(&other, &user("nobody"), true, 5).await.unwrap().changed,
        "it is each tenant's own number"
    );
    db.set_user_disabled(&on, &user("nobody0"), false, 5).await.unwrap();
    assert!(disable(MAX_UNSEEN_DISABLED).await.unwrap());
}

pub(crate) async fn keys_are_the_tenants_own_and_end(dir: &Path, open: Open) {
    let db = open(dir);
    let (make, list, revoke) = (
        admin("acme", AdminAction::KeyCreate),
        admin("acme", AdminAction::KeyList),
        admin("acme", AdminAction::KeyRevoke),
    );
    db.create_key(&make, new_key(1, "one")).await.unwrap();
    db.create_key(&make, new_key(2, "two")).await.unwrap();
    db.create_key(&admin("globex", AdminAction::KeyCreate), new_key(3, "three")).await.unwrap();
    let keys = db.keys(&list, 10, None).await.unwrap();
    assert_eq!(keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["two", "one"]);
    assert_eq!(keys[0].grants, new_key(2, "two").grants);
    assert_eq!(keys[0].creator, user("boss"));
    let (first, third) = (KeyId::mint(1, [7; 10]), KeyId::mint(3, [7; 10]));
    assert!(!db.revoke_key(&revoke, &third, 50).await.unwrap());
    assert!(db.revoke_key(&revoke, &first, 50).await.unwrap());
    assert!(db.revoke_key(&revoke, &first, 60).await.unwrap());
    db.note_key_use(vec![(KeyId::mint(2, [7; 10]), 70)]).await.unwrap();
    drop(db);
    let db = open(dir);
    let held = |rows: StandingRows| {
        let mut names: Vec<_> =
            rows.keys.into_iter().map(|(hash, key)| (hash[0], key.name, key.last_used_ms)).collect();
        names.sort();
        names
    };
    let (two, three) = ((2, "two".to_owned(), Some(70)), (3, "three".to_owned(), None));
    assert_eq!(held(db.standing(100).await.unwrap()), [two, three.clone()]);
    assert_eq!(held(db.standing(1002).await.unwrap()), [three]);
    let keys = db.keys(&list, 10, Some(&KeyId::mint(2, [7; 10]))).await.unwrap();
    assert_eq!((keys.len(), keys[0].revoked_ms), (1, Some(50)));
}
