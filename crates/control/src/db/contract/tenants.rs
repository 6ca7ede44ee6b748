//! What operators noted of tenants.

use std::path::Path;

use bailey_policy::{CredentialId, CredentialKind, Operator, TenantAction, TenantFacts};

use super::{Open, policies};

pub(crate) async fn what_is_noted_of_a_tenant_is_kept(folder: &Path, open: Open) {
    let credential = CredentialId { kind: CredentialKind::Token, id: "x".to_owned() };
    let operator = Operator { name: "root".to_owned(), roles: [].into(), valid_until_ms: u64::MAX, credential };
    let permit = |tenant: &str| {
        let judge = policies().judge_operator(&operator, 0);
        judge.tenant(TenantAction::FactsSet, &tenant.parse().unwrap(), &TenantFacts::default()).unwrap()
    };
    let facts = |region: Option<&str>, plan: Option<&str>| TenantFacts {
        region: region.map(str::to_owned),
        plan: plan.map(str::to_owned),
    };
    let db = open(folder);
    assert_eq!(db.tenant_facts().await.unwrap(), []);
    db.set_tenant_facts(&permit("acme"), facts(Some("us"), Some("free"))).await.unwrap();
    db.set_tenant_facts(&permit("acme"), facts(Some("eu"), None)).await.unwrap();
    db.set_tenant_facts(&permit("globex"), facts(None, Some("regulated"))).await.unwrap();
    drop(db);
    let mut kept = open(folder).tenant_facts().await.unwrap();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("acme".parse().unwrap(), facts(Some("eu"), None)),
        ("globex".parse().unwrap(), facts(None, Some("regulated"))),
    ];
    assert_eq!(kept, expected);
}
