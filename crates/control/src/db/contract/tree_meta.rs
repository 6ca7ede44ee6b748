//! What every database has to do for trees: protections, labels, who moved a branch, baselines.

use std::collections::BTreeSet;
use std::path::Path;

use bailey_policy::{ForkPermit, LabelPermit, PromotePermit, ProtectPermit};
use bailey_protocol::api::ShareMode;
use bailey_protocol::id::TokenId;
use bailey_protocol::label::Label;
use bailey_protocol::path::RepoId;

use super::{Open, head, may_read, may_write, policies, principal, version};
use crate::db::{Db, DbError, LabelRow, RefMove, ShareGrants, TokenScope, TreeTokenRow};
use bailey_policy::{PathFacts, Principal};
use bailey_protocol::path::{BranchName, Revision, TreePath};

fn facts(path: &str) -> PathFacts {
    PathFacts::plain(path.parse().unwrap())
}

fn branch(name: &str) -> BranchName {
    name.parse().unwrap()
}

/// Who may do this in the tenant's own store.
pub(super) fn steward(who: &Principal) -> Principal {
    let mut steward = who.clone();
    steward.roles.insert("admin".to_owned());
    steward
}

fn may_protect(who: &Principal, path: &str, name: &str) -> ProtectPermit {
    policies().judge(&steward(who), 0).protect(&facts(path), &branch(name)).unwrap()
}

fn may_label(who: &Principal, path: &str) -> LabelPermit {
    policies().judge(&steward(who), 0).label(&facts(path)).unwrap()
}

fn may_fork(who: &Principal, path: &str, name: &str) -> ForkPermit {
    let main = Revision::Branch(BranchName::main());
    policies().judge(who, 0).fork(&facts(path), &branch(name), &main).unwrap()
}

fn may_promote(who: &Principal, path: &str, from: &str, into: &str) -> PromotePermit {
    policies().judge(who, 0).promote(&facts(path), &branch(from), &branch(into)).unwrap()
}

fn labels(names: &[&str]) -> BTreeSet<Label> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn repo(path: &str) -> RepoId {
    path.parse::<TreePath>().unwrap().repo().clone()
}

async fn movers(db: &dyn Db, who: &Principal, path: &str, name: &str) -> Vec<String> {
    let scope = may_read(who, path, name).scope().unwrap();
    db.movers(&scope, &branch(name)).await.unwrap().iter().map(ToString::to_string).collect()
}

pub(crate) async fn a_protected_branch_moves_by_promotion_alone(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let root = "/tenants/acme";
    let write = may_write(&ana, "/tenants/acme/x", "main");
    db.move_refs(vec![RefMove::new(&write, None, version(1)).unwrap()]).await.unwrap();
    assert_eq!(db.protect(&may_protect(&ana, root, "draft"), true, 7).await.unwrap(), None, "there is none");
    let row = db.protect(&may_protect(&ana, root, "main"), true, 7).await.unwrap().unwrap();
    assert_eq!((row.repo, row.branch, row.review, row.since_ms), (repo(root), BranchName::main(), true, 7));
    let step = |to| RefMove::new(&write, Some(version(1)), version(to)).unwrap();
    let gone = RefMove::removal(&may_write(&ana, root, "main"), version(1)).unwrap();
    for step in [step(2), gone] {
        let refused = db.move_refs(vec![step]).await;
        assert!(matches!(&refused, Err(DbError::Protected { branch }) if *branch == BranchName::main()), "{refused:?}");
    }
    assert_eq!(head(&*db, &ana, root, "main").await, Some(version(1)));
    // Of the same name in another store, and beside it, nothing is protected.
    let own = may_write(&ana, "/tenants/acme/users/ana/x", "main");
    let beside = may_fork(&ana, root, "draft");
    let free = vec![RefMove::new(&own, None, version(3)).unwrap(), RefMove::fork(&beside, version(1)).unwrap()];
    db.move_refs(free).await.unwrap();
    let promote = may_promote(&ana, root, "draft", "main");
    db.move_refs(vec![RefMove::promotion(&promote, Some(version(1)), version(2)).unwrap()]).await.unwrap();
    let stale = db.move_refs(vec![RefMove::promotion(&promote, Some(version(1)), version(4)).unwrap()]).await;
    assert!(matches!(stale, Err(DbError::RefMoved { .. })), "{stale:?}");
    drop(db);
    let db = open(dir);
    let meta = db.tree_meta().await.unwrap();
    assert_eq!(meta.protections.len(), 1);
    assert!(db.unprotect(&may_protect(&ana, root, "main")).await.unwrap());
    assert!(!db.unprotect(&may_protect(&ana, root, "main")).await.unwrap());
    db.move_refs(vec![RefMove::new(&write, Some(version(2)), version(5)).unwrap()]).await.unwrap();
    assert!(db.tree_meta().await.unwrap().protections.is_empty());
}

pub(crate) async fn branches_come_and_go(dir: &Path, open: Open) {
    let (db, ana, bob) = (open(dir), principal("acme", "ana"), principal("acme", "bob"));
    let root = "/tenants/acme";
    let fork = |name: &str| RefMove::fork(&may_fork(&ana, root, name), version(1)).unwrap();
    db.move_refs(vec![fork("a/b")]).await.unwrap();
    let again = db.move_refs(vec![fork("a/b")]).await;
    assert!(matches!(again, Err(DbError::RefMoved { .. })), "{again:?}");
    // Git keeps `a` and `a/b` in the same place.
    for (name, by) in [("a", "a/b"), ("a/b/c", "a/b")] {
        let taken = db.move_refs(vec![fork(name)]).await;
        assert!(matches!(&taken, Err(DbError::BranchTaken { by: found, .. }) if found.as_str() == by), "{taken:?}");
    }
    db.move_refs(vec![fork("a/bc"), fork("a.b"), fork("b")]).await.unwrap();
    let theirs = may_write(&bob, "/tenants/acme/x", "b");
    db.move_refs(vec![RefMove::new(&theirs, Some(version(1)), version(2)).unwrap()]).await.unwrap();
    assert_eq!(movers(&*db, &bob, root, "b").await, ["ana", "bob"]);
    assert_eq!(movers(&*db, &bob, root, "a/b").await, ["ana"]);
    let removal = |from| RefMove::removal(&may_write(&bob, root, "b"), version(from)).unwrap();
    let stale = db.move_refs(vec![removal(1)]).await;
    assert!(matches!(stale, Err(DbError::RefMoved { .. })), "{stale:?}");
    db.move_refs(vec![removal(2)]).await.unwrap();
    assert_eq!(head(&*db, &ana, root, "b").await, None);
    assert!(movers(&*db, &bob, root, "b").await.is_empty());
    db.move_refs(vec![fork("b")]).await.unwrap();
    assert_eq!(movers(&*db, &bob, root, "b").await, ["ana"]);
    // Who moved what came along has moved this, too.
    let theirs = RefMove::fork(&may_fork(&bob, root, "c"), version(1)).unwrap();
    db.move_refs(vec![theirs.with_movers_of(vec![branch("b"), branch("none")])]).await.unwrap();
    assert_eq!(movers(&*db, &bob, root, "c").await, ["ana", "bob"]);
}

pub(crate) async fn labels_are_kept_and_come_with_moves(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let path = "/tenants/acme/a/b";
    db.set_labels(&may_label(&ana, path), &labels(&["confidential", "untrusted"])).await.unwrap();
    db.set_labels(&may_label(&ana, path), &labels(&["confidential"])).await.unwrap();
    db.set_labels(&may_label(&ana, "/tenants/acme/users/ana"), &labels(&["own"])).await.unwrap();
    db.set_labels(&may_label(&ana, "/tenants/acme/gone"), &labels(&["x"])).await.unwrap();
    db.set_labels(&may_label(&ana, "/tenants/acme/gone"), &labels(&[])).await.unwrap();
    let write = may_write(&ana, path, "main");
    let more = LabelRow { repo: repo(path), inner: "a/b".to_owned(), labels: labels(&["more", "confidential"]) };
    let step = |from| RefMove::new(&write, from, version(1)).unwrap().with_labels(vec![more.clone()]);
    let moved = db.move_refs(vec![step(Some(version(9)))]).await;
    assert!(moved.is_err());
    assert_eq!(
        db.tree_meta().await.unwrap().labels[0].labels,
        labels(&["confidential"]),
        "a move that failed labels nothing"
    );
    db.move_refs(vec![step(None)]).await.unwrap();
    drop(db);
    let rows = open(dir).tree_meta().await.unwrap().labels;
    let own = LabelRow { repo: repo("/tenants/acme/users/ana"), inner: String::new(), labels: labels(&["own"]) };
    let shared = LabelRow { labels: labels(&["confidential", "more"]), ..more };
    assert_eq!(rows, [shared, own]);
}

pub(crate) async fn with_every_rule_gone_no_foreign_branch_or_label_changes(dir: &Path, open: Open) {
    let (db, eve) = (open(dir), principal("globex", "ana"));
    let weak = bailey_policy::Policies::weakened("permit (principal, action, resource);", &[]).unwrap();
    let (judge, main) = (weak.judge(&eve, 0), Revision::Branch(BranchName::main()));
    for path in ["/tenants/acme", "/tenants/globex/users/bob"] {
        let fork = judge.fork(&facts(path), &branch("x"), &main).unwrap();
        assert!(RefMove::fork(&fork, version(1)).is_err());
        let promote = judge.promote(&facts(path), &branch("x"), &BranchName::main()).unwrap();
        assert!(RefMove::promotion(&promote, None, version(1)).is_err());
        let protect = judge.protect(&facts(path), &BranchName::main()).unwrap();
        assert!(matches!(db.protect(&protect, false, 1).await, Err(DbError::Foreign { .. })));
        assert!(matches!(db.unprotect(&protect).await, Err(DbError::Foreign { .. })));
        let label = judge.label(&facts(path)).unwrap();
        assert!(matches!(db.set_labels(&label, &labels(&["x"])).await, Err(DbError::Foreign { .. })));
    }
    assert_eq!(db.tree_meta().await.unwrap(), crate::db::TreeMetaRows::default());
}

pub(crate) async fn tree_tokens_hold_until_they_end(dir: &Path, open: Open) {
    let (db, ana, bob) = (open(dir), principal("acme", "ana"), principal("acme", "bob"));
    let may_share = |who: &Principal| policies().judge(who, 0).share(&facts("/tenants/acme/a")).unwrap();
    let token = |n: u64, expires_ms| TreeTokenRow {
        id: TokenId::mint(n, [1; 10]),
        tenant: ana.tenant.clone(),
        user: ana.user.clone(),
        path: "/tenants/acme/a".parse().unwrap(),
        mode: ShareMode::Write,
        grants: ShareGrants {
            roles: ["member".to_owned()].into(),
            entitlements: ana.entitlements.clone(),
            region: Some("eu".to_owned()),
            project: None,
            actor: Some("billing".to_owned()),
        },
        created_ms: n,
        expires_ms,
    };
    for (n, expires_ms) in [(1, 100), (2, 200), (3, 300)] {
        let hash = [u8::try_from(n).unwrap(); 32];
        db.create_tree_token(&may_share(&ana), hash, token(n, expires_ms)).await.unwrap();
    }
    // Whatever the row says, it is for whom the permit is.
    let theirs = TreeTokenRow { id: TokenId::mint(4, [4; 10]), ..token(4, 400) };
    db.create_tree_token(&may_share(&bob), [4; 32], theirs.clone()).await.unwrap();
    let own = |who: &Principal| TokenScope::own(&policies().judge(who, 0).unshare(&facts("/tenants/acme/a")).unwrap());
    assert!(!db.revoke_tree_token(&own(&bob), &token(2, 0).id).await.unwrap());
    assert!(db.revoke_tree_token(&own(&ana), &token(2, 0).id).await.unwrap());
    drop(db);
    let db = open(dir);
    let mut held = db.tree_tokens(100).await.unwrap();
    held.sort_by_key(|(hash, ..)| *hash);
    let bobs = TreeTokenRow { user: bob.user.clone(), ..theirs };
    assert_eq!(held, [([3; 32], token(3, 300)), ([4; 32], bobs)]);
    assert_eq!(db.tree_tokens(50).await.unwrap().len(), 3);
}

pub(crate) async fn baselines_are_numbered(dir: &Path, open: Open) {
    let db = open(dir);
    let root = bailey_policy::Operator {
        name: "root".to_owned(),
        roles: [].into(),
        valid_until_ms: u64::MAX,
        credential: principal("acme", "ana").credential,
    };
    let permit = policies().judge_operator(&root, 0).system(bailey_policy::SystemAction::BaselinePublish).unwrap();
    let name = |text: &str| text.parse().unwrap();
    for (who, n, number) in [("b", 1, 1), ("a", 2, 1), ("b", 3, 2)] {
        let info = db.publish_baseline(&permit, &name(who), &version(n), n).await.unwrap();
        assert_eq!((info.name.as_str(), info.number, info.published_ms), (who, number, n));
    }
    drop(db);
    let rows = open(dir).baselines().await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row.info.name.as_str(), row.info.number, row.version.clone())).collect();
    assert_eq!(shown, [("a", 1, version(2)), ("b", 2, version(3)), ("b", 1, version(1))]);
}
