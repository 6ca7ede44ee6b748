//! What every database has to do with the audit.

use bailey_policy::AdminAction;

use super::identity::admin;
use super::*;
use crate::audit::{AuditSigner, Chain};

/// A signer whose key every test has.
pub(crate) fn signer() -> AuditSigner {
    let pair = aws_lc_rs::signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    AuditSigner::new("key-1".to_owned(), Arc::new(pair))
}

fn entry(who: &Principal, n: u64) -> AuditEntry {
    AuditEntry::allowed(may_run(who).grant(), &n.to_string(), None, n)
}

fn heads(unsealed: &[AuditHead]) -> Vec<(&str, u64)> {
    unsealed.iter().map(|head| (head.chain.as_str(), head.seq)).collect()
}

/// Each tenant has a chain of its own, the server another, and a seal covers them all.
pub(crate) async fn each_tenant_has_its_own_chain(dir: &Path, open: Open) {
    let db = open(dir);
    let (ana, eve) = (principal("acme", "ana"), principal("evil", "eve"));
    for n in 0..3 {
        db.audit(entry(&ana, n)).await.unwrap();
    }
    db.audit(entry(&eve, 0)).await.unwrap();
    assert_eq!(db.audit_appended(), 4);
    let unsealed = db.audit_unsealed().await.unwrap();
    assert_eq!(heads(&unsealed), [("tenant/acme", 3), ("tenant/evil", 1)]);

    let signer = signer();
    let checkpoints = unsealed.iter().map(|head| signer.checkpoint(&head.chain, head.seq, head.hash, 9)).collect();
    let sealed = db.audit_seal(checkpoints, signer.clone(), 9).await.unwrap();
    assert_eq!((sealed.chain.as_str(), sealed.seq), ("operator", 1));
    assert!(signer.keys().signed_checkpoint(&sealed));
    assert_eq!(db.audit_unsealed().await.unwrap(), []);

    db.audit(entry(&eve, 1)).await.unwrap();
    drop(db);
    let db = open(dir);
    assert_eq!(heads(&db.audit_unsealed().await.unwrap()), [("tenant/evil", 2)]);
}

/// A refusal to record leaves the chain as it was.
pub(crate) async fn forgetting_is_itself_on_the_audit(dir: &Path, open: Open) {
    let db = open(dir);
    let (ana, bob) = (principal("acme", "ana"), principal("acme", "bob"));
    let receipt =
        || AuditEntry { chain: Chain::Tenant(ana.tenant.clone()), ..AuditEntry::by_server("test", String::new(), 9) };
    db.audit(entry(&ana, 1)).await.unwrap();
    db.audit(entry(&bob, 2)).await.unwrap();
    let read = may_read(&ana, "/tenants/acme/plans/secret.txt", "main");
    db.audit(AuditEntry::allowed(read.grant(), "ok", None, 3)).await.unwrap();

    let plans = "/tenants/acme/plans".parse().unwrap();
    assert_eq!(db.forget_path_details(receipt(), &plans).await.unwrap(), 1);
    assert_eq!(db.forget_path_details(receipt(), &plans).await.unwrap(), 0);
    assert_eq!(db.forget_path_details(receipt(), &"/tenants/acme/plan".parse().unwrap()).await.unwrap(), 0);
    // Her run, and nothing of bob's; the read is forgotten already.
    let scope = ForgetScope::of_admin(&admin("acme", AdminAction::UserForget), &ana.user).unwrap();
    assert_eq!(db.forget_user(&scope, receipt()).await.unwrap().audit_rows, 1);
    assert_eq!(heads(&db.audit_unsealed().await.unwrap()), [("tenant/acme", 7)]);
    // Somebody of that name is somebody new.
    db.audit(entry(&ana, 4)).await.unwrap();
    assert_eq!(db.forget_user(&scope, receipt()).await.unwrap().audit_rows, 1);
    // A permit of something else lets nobody be forgotten.
    assert_eq!(ForgetScope::of_admin(&admin("acme", AdminAction::UserDisable), &ana.user), None);
    // Who is disabled stays so, without a name, and what it had begun is on the audit without one.
    let off = admin("acme", AdminAction::UserDisable);
    db.set_user_disabled(&off, &bob.user, true, 9).await.unwrap();
    let scope = ForgetScope::of_admin(&admin("acme", AdminAction::UserForget), &bob.user).unwrap();
    let names = db.forget_user(&scope, receipt()).await.unwrap().names;
    assert!(names.holds(&bob.user) && !names.holds(&ana.user));
    db.audit(entry(&bob, 5)).await.unwrap();
    let rows = db.standing(9).await.unwrap();
    assert_eq!((rows.users.len(), rows.forgotten), (0, vec![names]));
    assert!(matches!(db.create_run(&may_run(&bob), new_run(8)).await, Err(DbError::Forgotten)));
    assert_eq!(
        db.set_user_disabled(&off, &bob.user, true, 9).await.unwrap(),
        Disabled { changed: false, now: true, known: true }
    );
    let on = admin("acme", AdminAction::UserEnable);
    assert_eq!(
        db.set_user_disabled(&on, &bob.user, false, 9).await.unwrap(),
        Disabled { changed: true, now: false, known: true }
    );
    db.create_run(&may_run(&bob), new_run(8)).await.unwrap();
}
