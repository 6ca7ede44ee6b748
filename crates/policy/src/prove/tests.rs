//! With the real solver, over our own rules and over planted violations.

use super::*;
use crate::action::Action;

fn prover() -> Prover {
    let (named, search) = (std::env::var_os("CVC5"), std::env::var_os("PATH"));
    Prover::find(named, search.as_deref()).expect("cvc5 is not installed: `apt-get install cvc5`")
}

fn weakened(change: impl Fn(&str) -> String) -> Policies {
    Policies::weakened(&change(include_str!("../base.cedar")), &[]).unwrap()
}

/// The base rules without one.
fn without(id: &str) -> Policies {
    weakened(|base| {
        let rules = base.split("\n\n").filter(|rule| !rule.contains(&format!("@id(\"{id}\")")));
        rules.collect::<Vec<_>>().join("\n\n")
    })
}

fn broken(findings: &[Finding]) -> Vec<&Claim> {
    findings.iter().filter(|finding| finding.outcome != Outcome::Proven).map(|finding| &finding.claim).collect()
}

#[tokio::test]
async fn our_own_rules_are_proven_with_an_operators_beside_them() {
    let operator = r#"
        @id("wide") permit (principal, action, resource);
        @id("no-root") forbid (principal, action == Action::"run_as_root", resource)
        unless { principal.roles.contains("admin") };
        @id("office-hours") forbid (principal is User, action == Action::"run_create", resource)
        unless { context.time.toTime() >= duration("8h") && context.time.toTime() < duration("18h") };
        @id("archive") forbid (principal is User, action == Action::"tree_write", resource)
        when { resource.path like "*/archive/*" && resource.labels.contains("closed") };
    "#;
    let policies = Policies::new(&[("operator.cedar".to_owned(), operator.to_owned())]).unwrap();
    let tenant = ("quiet".to_owned(), "forbid (principal, action == Action::\"run_create\", resource);".to_owned());
    let policies = policies.with_tenant(&[tenant]).unwrap();
    let mut told = 0;
    let findings = prover().prove(&policies, &mut |_finding| told += 1).await.unwrap();
    assert_eq!(broken(&findings), Vec::<&Claim>::new());
    assert_eq!(told, findings.len());
    assert!(findings.iter().all(|finding| finding.requests >= Action::ALL.len()), "{findings:?}");
    assert!(findings.iter().any(|finding| finding.claim == Claim::BaseRule("own-tenant-only".to_owned())));
    assert!(findings.iter().any(|finding| finding.claim == Claim::NeverErrors("tenant/quiet".to_owned())));
}

#[tokio::test]
async fn a_permit_without_a_tenant_check_is_caught_once_its_forbid_is_gone() {
    let wide = |base: &str| format!("{base}\n@id(\"wide\") permit (principal, action, resource);");
    // With the forbid in place the permit opens nothing.
    let finding = prover().tenants_apart(&weakened(wide)).await.unwrap();
    assert_eq!(finding.outcome, Outcome::Proven);
    let gone = without("own-tenant-only");
    // The permit that is left has a tenant check of its own.
    assert_eq!(prover().tenants_apart(&gone).await.unwrap().outcome, Outcome::Proven);
    let planted = weakened(|base| {
        let rules = base.split("\n\n").filter(|rule| !rule.contains("@id(\"own-tenant-only\")"));
        wide(&rules.collect::<Vec<_>>().join("\n\n"))
    });
    let finding = prover().tenants_apart(&planted).await.unwrap();
    let Outcome::Violated { example } = finding.outcome else { panic!("the violation is found: {finding:?}") };
    assert!(example.principal.starts_with("User::"), "{example:?}");
    let tenants = ["principal.tenant", "resource.tenant"].map(|name| example.matters.get(name).cloned());
    assert!(tenants.iter().all(Option::is_some) && tenants[0] != tenants[1], "{example:?}");
}

#[tokio::test]
async fn each_base_rule_that_is_missing_is_named() {
    for id in ["own-folder-only", "not-from-a-run", "stewards-only"] {
        let findings = prover().prove(&without(id), &mut |_finding| {}).await.unwrap();
        assert_eq!(broken(&findings), [&Claim::BaseRule(id.to_owned())], "{id}");
    }
    let findings = prover().prove(&without("served-tenants-only"), &mut |_finding| {}).await.unwrap();
    // The only permit for service accounts says the same.
    assert_eq!(broken(&findings), Vec::<&Claim>::new());
}

#[tokio::test]
async fn each_forbid_of_the_base_rules_is_missed_where_nothing_else_says_it() {
    let ids: Vec<String> = claims::base_rules().unwrap().into_iter().map(|(id, _)| id).collect();
    assert!(ids.len() > 10, "{ids:?}");
    for id in ids {
        // Else a permit's own condition may say the same.
        let rules = |base: &str| {
            let rules = base.split("\n\n").filter(|rule| !rule.contains(&format!("@id(\"{id}\")")));
            let rules: Vec<_> = rules.collect();
            assert_eq!(rules.len() + 1, base.split("\n\n").count(), "{id}");
            format!("{}\n@id(\"wide\") permit (principal, action, resource);", rules.join("\n\n"))
        };
        let policies = weakened(rules);
        let (_, broken) = claims::base_rules().unwrap().into_iter().find(|(name, _)| *name == id).unwrap();
        let claim = Claim::BaseRule(id.clone());
        let mut session = prover().session().unwrap();
        let finding = session.forbids(claim.clone(), &policies.whole().unwrap(), &broken, &policies).await.unwrap();
        let Outcome::Violated { example } = finding.outcome else { panic!("{id} is not missed") };
        assert!(!example.matters.is_empty(), "{id}: {example:?}");
        let whole = Policies::new(&[]).unwrap();
        let finding = session.forbids(claim, &whole.whole().unwrap(), &broken, &whole).await.unwrap();
        assert_eq!(finding.outcome, Outcome::Proven, "{id}");
    }
}

#[tokio::test]
async fn the_shipped_examples_keep_every_claim() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            let text = std::fs::read_to_string(&path).unwrap();
            // What is shipped as a comment is proven as what it is once it is none.
            let commented =
                text.find("// @id(").and_then(|begin| text.get(begin..)).map(|rule| rule.replace("// ", ""));
            let text = commented.unwrap_or(text);
            files.push((path.file_name().unwrap().to_string_lossy().into_owned(), text));
        }
    }
    let policies = Policies::new(&files).unwrap();
    assert!(policies.count() > Policies::new(&[]).unwrap().count() + 8);
    let findings = prover().prove(&policies, &mut |_finding| {}).await.unwrap();
    assert_eq!(broken(&findings), Vec::<&Claim>::new());
}

#[tokio::test]
async fn a_rule_that_can_overflow_is_found_with_an_example() {
    let text = r#"@id("sum") forbid (principal, action == Action::"run_create", resource)
                  when { resource.memory_bytes + resource.disk_bytes > 1000 };"#;
    let policies = Policies::new(&[("operator.cedar".to_owned(), text.to_owned())]).unwrap();
    let findings = prover().prove(&policies, &mut |_finding| {}).await.unwrap();
    assert_eq!(broken(&findings), [&Claim::NeverErrors("sum".to_owned())]);
}

#[tokio::test]
async fn a_change_is_shown_by_what_it_newly_allows_and_denies() {
    let old = Policies::new(&[]).unwrap();
    let text = r#"@id("no-delete") forbid (principal, action == Action::"tree_delete", resource);"#;
    let new = Policies::new(&[("operator.cedar".to_owned(), text.to_owned())]).unwrap();
    let differences = prover().compare(&new, &old).await.unwrap();
    let told: Vec<_> = differences.iter().map(|found| (found.change, found.example.action.as_str())).collect();
    assert_eq!(told, [("newly_denied", r#"Action::"tree_delete""#)]);
    let back = prover().compare(&old, &new).await.unwrap();
    assert_eq!(back.first().map(|found| found.change), Some("newly_allowed"));
    assert!(prover().compare(&old, &old).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_solver_that_hangs_is_killed_and_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fake = folder.path().join("cvc5");
    let pid = folder.path().join("pid");
    std::fs::write(&fake, format!("#!/bin/sh\necho $$ > {}\nexec /bin/sleep 600\n", pid.display())).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let prover = Prover::find(Some(fake.into()), None).unwrap().patient_for(Duration::from_millis(500));
    let outcome = prover.tenants_apart(&Policies::new(&[]).unwrap()).await;
    assert!(matches!(outcome, Err(ProveError::TooLong { .. })), "{outcome:?}");
    let pid = std::fs::read_to_string(&pid).unwrap();
    let status = format!("/proc/{}/status", pid.trim());
    let gone = || std::fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
    tokio::time::timeout(Duration::from_secs(10), async {
        while !gone() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the solver is gone");
}

#[test]
fn no_solver_is_found_where_there_is_none() {
    assert_eq!(Prover::find(Some("/no/such".into()), None), None);
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(Prover::find(None, Some(empty.path().as_os_str())), None);
}
