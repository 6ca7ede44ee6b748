//! What every database has to do for storage: quotas, versions that are gone, purges.

use bailey_policy::{Operator, OperatorPermit, PurgePermit, TenantAction, TenantFacts};
use bailey_protocol::path::{RepoId, TreePath};
use bailey_protocol::purge::{PurgeId, PurgeState};
use bailey_protocol::quota::TenantQuota;

use super::tree_meta::steward;
use super::*;

fn may_set_quota(tenant: &str) -> OperatorPermit {
    let credential = principal("acme", "ana").credential;
    let root = Operator { name: "root".to_owned(), roles: [].into(), valid_until_ms: u64::MAX, credential };
    let (tenant, facts) = (tenant.parse().unwrap(), TenantFacts::default());
    policies().judge_operator(&root, 0).tenant(TenantAction::QuotaSet, &tenant, &facts).unwrap()
}

fn may_purge(who: &Principal, path: &str) -> PurgePermit {
    policies().judge(&steward(who), 0).purge(&PathFacts::plain(path.parse().unwrap())).unwrap()
}

fn repo(path: &str) -> RepoId {
    path.parse::<TreePath>().unwrap().repo().clone()
}

fn purge_id(n: u64) -> PurgeId {
    PurgeId::mint(n, [3; 10])
}

fn new_purge(n: u64, permit: &PurgePermit, moves: &[(&str, u64, u64)]) -> NewPurge {
    NewPurge {
        id: purge_id(n),
        path_sha256: "a".repeat(64),
        asked_by_sha256: "b".repeat(64),
        asked_ms: n,
        moves: moves.iter().map(|(name, from, to)| (name.parse().unwrap(), version(*from), version(*to))).collect(),
        versions: moves.len(),
        audited: Audited::default(),
        receipt: AuditEntry::allowed(permit.grant(), "", None, n),
    }
}

/// Notes what the heads become, and begins.
async fn begin(db: &dyn Db, permit: &PurgePermit, purge: NewPurge) -> Result<(), DbError> {
    let became = purge.moves.iter().map(|(_, from, to)| (from.clone(), to.clone())).collect();
    db.stage_purge(permit, &purge.id, became).await?;
    db.begin_purge(permit, purge).await
}

async fn write(db: &dyn Db, who: &Principal, path: &str, branch: &str, to: u64) {
    let permit = may_write(who, path, branch);
    db.move_refs(vec![RefMove::new(&permit, None, version(to)).unwrap()]).await.unwrap();
}

pub(crate) async fn quotas_are_set_changed_and_taken_back(dir: &Path, open: Open) {
    let db = open(dir);
    assert_eq!(db.quotas().await.unwrap(), []);
    let quota = |bytes| TenantQuota { bytes, version_days: 7, ..TenantQuota::default() };
    for (tenant, bytes) in [("acme", 1), ("globex", 2), ("acme", u64::MAX)] {
        db.set_quota(&may_set_quota(tenant), Some(quota(bytes))).await.unwrap();
    }
    drop(db);
    let db = open(dir);
    let mut kept = db.quotas().await.unwrap();
    kept.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    assert_eq!(kept, [("acme".parse().unwrap(), quota(u64::MAX)), ("globex".parse().unwrap(), quota(2))]);
    for _again in 0..2 {
        db.set_quota(&may_set_quota("acme"), None).await.unwrap();
    }
    assert_eq!(db.quotas().await.unwrap(), [("globex".parse().unwrap(), quota(2))]);
}

pub(crate) async fn only_a_side_branch_that_stands_still_is_let_go(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let (permit, side) = (may_write(&ana, "/tenants/acme/x", "main"), BranchName::of_run(&run_id(1)));
    db.move_refs(vec![
        RefMove::new(&permit, None, version(1)).unwrap(),
        RefMove::side_branch(&permit, &run_id(1), None, version(2)).unwrap(),
    ])
    .await
    .unwrap();
    let acme = repo("/tenants/acme");
    assert!(!db.drop_side_branch(&acme, &BranchName::main(), &version(1)).await.unwrap());
    assert!(!db.drop_side_branch(&acme, &side, &version(1)).await.unwrap());
    assert!(!db.drop_side_branch(&repo("/tenants/acme/users/ana"), &side, &version(2)).await.unwrap());
    assert_eq!(db.branches_of(&acme).await.unwrap().len(), 2);
    assert!(db.drop_side_branch(&acme, &side, &version(2)).await.unwrap());
    assert_eq!(db.branches_of(&acme).await.unwrap(), [(BranchName::main(), version(1))]);
}

pub(crate) async fn what_is_kept_no_more_is_remembered_by_store(dir: &Path, open: Open) {
    let db = open(dir);
    let (acme, own) = (repo("/tenants/acme"), repo("/tenants/acme/users/ana"));
    for _again in 0..2 {
        db.expire_versions(&acme, vec![version(1), version(2)]).await.unwrap();
    }
    drop(db);
    let db = open(dir);
    let old = Some(Gone { purge: None, became: None });
    assert_eq!(db.gone(&acme, &version(1)).await.unwrap(), old);
    assert_eq!(db.gone(&acme, &version(3)).await.unwrap(), None);
    assert_eq!(db.gone(&own, &version(1)).await.unwrap(), None);
    // Too old does not hide that it was purged as well, nor the reverse.
    let ana = principal("acme", "ana");
    write(&*db, &ana, "/tenants/acme/x", "main", 2).await;
    let permit = may_purge(&ana, "/tenants/acme/x");
    begin(&*db, &permit, new_purge(1, &permit, &[("main", 2, 9)])).await.unwrap();
    db.expire_versions(&acme, vec![version(2)]).await.unwrap();
    let purged = Some(Gone { purge: Some(purge_id(1)), became: Some(version(9)) });
    assert_eq!(db.gone(&acme, &version(2)).await.unwrap(), purged);
}

pub(crate) async fn a_purge_moves_every_branch_or_is_none(dir: &Path, open: Open) {
    let (db, ana, eve) = (open(dir), principal("acme", "ana"), principal("globex", "ana"));
    write(&*db, &ana, "/tenants/acme/x", "main", 1).await;
    write(&*db, &ana, "/tenants/acme/x", "draft", 2).await;
    write(&*db, &ana, "/tenants/acme/users/ana/x", "main", 1).await;
    let acme = repo("/tenants/acme");
    let permit = may_purge(&ana, "/tenants/acme/x");
    let before = db.branches_of(&acme).await.unwrap();
    let wrong: [&[_]; 3] = [
        // One has moved, one is new, one is gone.
        &[("main", 1, 11), ("draft", 3, 12)],
        &[("main", 1, 11)],
        &[("main", 1, 11), ("draft", 2, 12), ("more", 3, 13)],
    ];
    for moves in wrong {
        let refused = begin(&*db, &permit, new_purge(1, &permit, moves)).await;
        assert!(matches!(refused, Err(DbError::RefMoved { .. })), "{refused:?}");
    }
    assert_eq!(db.branches_of(&acme).await.unwrap(), before);
    assert_eq!(db.pending_purges().await.unwrap(), []);
    assert_eq!(db.gone(&acme, &version(1)).await.unwrap(), None);
    assert_eq!(db.audit_appended(), 0, "what did not happen has no receipt");
    db.forget_staged().await.unwrap();

    begin(&*db, &permit, new_purge(1, &permit, &[("main", 1, 11), ("draft", 2, 12)])).await.unwrap();
    drop(db);
    let db = open(dir);
    assert_eq!(head(&*db, &ana, "/tenants/acme", "main").await, Some(version(11)));
    assert_eq!(head(&*db, &ana, "/tenants/acme", "draft").await, Some(version(12)));
    assert_eq!(head(&*db, &ana, "/tenants/acme/users/ana", "main").await, Some(version(1)));
    let pending = PendingPurge { id: purge_id(1), repo: acme, versions: vec![version(1), version(2)] };
    assert_eq!(db.pending_purges().await.unwrap(), [pending]);
    let receipt = db.purge(&ana, &purge_id(1)).await.unwrap().unwrap();
    assert_eq!((receipt.state, receipt.versions, receipt.done_ms), (PurgeState::Removing, 2, None));
    assert_eq!((receipt.became.len(), receipt.store.as_str()), (2, "/tenants/acme"));
    assert_eq!(db.purge(&eve, &purge_id(1)).await.unwrap(), None);
    assert_eq!(db.purge(&ana, &purge_id(2)).await.unwrap(), None);

    db.scrub().await.unwrap();
    for now in [20, 30] {
        db.finish_purge(&purge_id(1), now).await.unwrap();
    }
    assert_eq!(db.pending_purges().await.unwrap(), []);
    let receipt = db.purge(&ana, &purge_id(1)).await.unwrap().unwrap();
    assert_eq!((receipt.state, receipt.done_ms), (PurgeState::Done, Some(20)));
}

pub(crate) async fn a_purge_forgets_its_path_and_no_other(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    write(&*db, &ana, "/tenants/acme/x", "main", 1).await;
    write(&*db, &ana, "/tenants/acme/users/ana/x", "main", 1).await;
    let paths = ["/tenants/acme/x", "/tenants/acme/x/in", "/tenants/acme/xy", "/tenants/acme/users/ana/x"];
    let permit = may_purge(&ana, "/tenants/acme/x");
    // Looked for before the second row about it, so that rows are forgotten which are known and one which is not.
    let mut audited = Audited::default();
    for path in paths {
        if path == "/tenants/acme/x/in" {
            audited = db.audited(&permit, 0).await.unwrap();
            assert_eq!((audited.rows.len(), audited.more), (1, false));
        }
        let label = policies().judge(&steward(&ana), 0).label(&PathFacts::plain(path.parse().unwrap())).unwrap();
        db.set_labels(&label, &["confidential".parse().unwrap()].into()).await.unwrap();
        db.audit(AuditEntry::allowed(may_read(&ana, path, "main").grant(), "ok", None, 1)).await.unwrap();
    }
    let purge = NewPurge { audited, ..new_purge(1, &permit, &[("main", 1, 2)]) };
    begin(&*db, &permit, purge).await.unwrap();
    let kept: Vec<_> = db.tree_meta().await.unwrap().labels.into_iter().map(|row| (row.repo, row.inner)).collect();
    assert_eq!(kept, [(repo("/tenants/acme"), "xy".to_owned()), (repo("/tenants/acme/users/ana"), "x".to_owned()),]);
    let receipt = AuditEntry::allowed(permit.grant(), "", None, 2);
    for (path, left) in paths.into_iter().zip([0, 0, 1, 1]) {
        let forgotten = db.forget_path_details(receipt.clone(), &path.parse().unwrap()).await.unwrap();
        assert_eq!(forgotten, left, "{path}");
    }
}

pub(crate) async fn with_every_rule_gone_no_foreign_store_is_purged(dir: &Path, open: Open) {
    let (db, ana, eve) = (open(dir), principal("acme", "ana"), principal("globex", "ana"));
    write(&*db, &ana, "/tenants/acme/x", "main", 1).await;
    let weak = Policies::weakened("permit (principal, action, resource);", &[]).unwrap();
    let path = PathFacts::plain("/tenants/acme/x".parse().unwrap());
    let permit = weak.judge(&eve, 0).purge(&path).unwrap();
    assert!(begin(&*db, &permit, new_purge(1, &permit, &[("main", 1, 2)])).await.is_err());
    assert_eq!(head(&*db, &ana, "/tenants/acme", "main").await, Some(version(1)));
    assert_eq!(db.pending_purges().await.unwrap(), []);
}
