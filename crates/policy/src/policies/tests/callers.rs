//! Credentials, kinds of callers, and names.

use super::*;

#[test]
fn c18_a_credential_never_exceeds_its_user() {
    let policies = Policies::new(&[]).unwrap();
    let scope = |actions: &[Action], paths: Option<&[&str]>, read_only| Scope {
        actions: actions.iter().copied().collect(),
        paths: paths.map(|paths| paths.iter().map(|text| path(text)).collect()),
        read_only,
    };
    let with = |scope| Principal { scope: Some(scope), ..principal("acme", "ana") };
    let read = |who: &Principal, at: &str| {
        policies.judge(who, NOON).read_path(ReadAction::Read, &plain(at), &main_branch()).map(drop)
    };
    let write = |who: &Principal, at: &str| {
        policies.judge(who, NOON).write_path(WriteAction::Write, &plain(at), &BranchName::main()).map(drop)
    };
    let narrow = with(scope(&[Action::TreeRead, Action::TreeWrite], Some(&["/tenants/acme/site"]), false));
    for at in ["/tenants/acme/site", "/tenants/acme/site/index.html"] {
        read(&narrow, at).unwrap();
        write(&narrow, at).unwrap();
    }
    for at in ["/tenants/acme", "/tenants/acme/site2", "/tenants/acme/sit", "/tenants/acme/users/ana/site"] {
        assert_eq!(read(&narrow, at).unwrap_err().policies, ["credential-scope"], "{at}");
    }
    assert_eq!(policies.judge(&narrow, NOON).list_runs().unwrap_err().policies, ["credential-scope"]);
    // Paths narrow nothing of what is about the whole tenant: a scope with both is not for that.
    let site = with(scope(Action::ALL, Some(&["/tenants/acme"]), false));
    let admin = Principal { roles: ["admin".to_owned()].into(), ..site };
    let judge = policies.judge(&admin, NOON);
    for &action in AdminAction::ALL {
        assert_eq!(judge.admin(action).unwrap_err().policies, ["credential-scope"], "{action:?}");
        policies.judge(&Principal { scope: None, ..admin.clone() }, NOON).admin(action).unwrap();
    }
    assert_eq!(judge.explain(&admin.user).unwrap_err().policies, ["credential-scope"]);
    judge.list_runs().unwrap();
    let looking = with(scope(Action::ALL, None, true));
    read(&looking, "/tenants/acme/x").unwrap();
    assert_eq!(write(&looking, "/tenants/acme/x").unwrap_err().policies, ["credential-scope"]);
    // All that a scope can name opens nothing that its user may not.
    let everything = with(scope(Action::ALL, Some(&["/tenants/globex", "/tenants/acme/users/bob"]), false));
    assert_eq!(read(&everything, "/tenants/globex/x").unwrap_err().policies, ["own-tenant-only"]);
    assert_eq!(read(&everything, "/tenants/acme/users/bob/x").unwrap_err().policies, ["own-folder-only"]);
    let nothing = with(scope(&[], None, false));
    assert_eq!(read(&nothing, "/tenants/acme/x").unwrap_err().policies, ["credential-scope"]);
    let text = r#"@id("credential-scope") permit (principal, action, resource);"#;
    assert!(matches!(operator(text), Err(PolicyError::DuplicateId { .. })));
}

#[test]
fn users_services_and_operators_never_match_each_others_rules() {
    let credential = CredentialId { kind: CredentialKind::Token, id: "t".to_owned() };
    let root = Operator {
        name: "root".to_owned(),
        roles: [].into(),
        valid_until_ms: u64::MAX,
        credential: credential.clone(),
    };
    let acme = "acme".parse().unwrap();
    let served = ServedTenants::Only([acme].into());
    let (roles, entitlements) = ([].into(), [].into());
    let product = ServiceAccount {
        name: "p".to_owned(),
        roles,
        entitlements,
        tenants: served,
        valid_until_ms: u64::MAX,
        credential,
    };
    let wide = operator(r#"@id("wide") permit (principal, action, resource);"#).unwrap();
    let (acme, globex) = ("acme".parse().unwrap(), "globex".parse().unwrap());
    for policies in [Policies::new(&[]).unwrap(), wide] {
        let known = TenantFacts::default();
        let judge = policies.judge_operator(&root, NOON);
        judge.system(SystemAction::TenantList).unwrap();
        judge.tenant(TenantAction::Disable, &globex, &known).unwrap();
        let judge = policies.judge_service(&product, NOON);
        assert_eq!(judge.exchange(&acme, &known).unwrap().tenant(), &acme);
        assert_eq!(judge.exchange(&globex, &known).unwrap_err().policies, ["served-tenants-only"]);
        // One who is no user cannot be asked about as one: the request does not fit the schema.
        for principal in [subjects::operator(&root), subjects::service(&product)] {
            for action in Action::ALL {
                let context = [("time".into(), Value::Time(NOON)), ("credential".into(), text("token"))].into();
                let resource = subjects::tenant(&acme, &known);
                let request =
                    Request { principal: principal.clone(), action: *action, resource, tenant: None, context };
                let operates = principal == subjects::operator(&root)
                    && TenantAction::ALL.iter().any(|one| Action::from(*one) == *action);
                let exchanges = principal == subjects::service(&product) && *action == Action::TokenExchange;
                assert_eq!(policies.ask(&request).allowed, operates || exchanges, "{action}");
            }
        }
    }
}

#[test]
fn c08_names_are_exact() {
    let who = principal("acme", "ana");
    let text = r#"@id("ana") forbid (principal == User::"acme/ana", action, resource);"#;
    let policies = operator(text).unwrap();
    assert_eq!(policies.judge(&who, NOON).list_runs().unwrap_err().policies, ["ana"]);
    policies.judge(&principal("acme", "Ana"), NOON).list_runs().unwrap();
    policies.judge(&principal("globex", "ana"), NOON).list_runs().unwrap();
    for text in [
        r#"forbid (principal == App::User::"acme/ana", action, resource);"#,
        r#"forbid (principal, action == Action::"Tree_Read", resource);"#,
        r#"forbid (principal, action == Action::"run_list", resource is Path);"#,
        r#"forbid (principal is user, action, resource);"#,
        r#"forbid (principal in Group::"x", action, resource);"#,
    ] {
        assert!(operator(text).is_err(), "{text}");
    }
    assert!("Tree_Read".parse::<Action>().is_err());
}

#[test]
fn c16_a_pattern_is_matched_on_the_canonical_path() {
    let text = r#"@id("public-only") forbid (principal, action == Action::"tree_read", resource)
                  unless { resource.path like "/tenants/acme/public/*" };"#;
    let policies = operator(text).unwrap();
    let judge = policies.judge(&principal("acme", "ana"), NOON);
    judge.read_path(ReadAction::Read, &plain("/tenants/acme/public/x"), &main_branch()).unwrap();
    let denied = judge.read_path(ReadAction::Read, &plain("/tenants/acme/private/x"), &main_branch()).unwrap_err();
    assert_eq!(denied.policies, ["public-only"]);
    // What would be another path once it is resolved is no path to begin with.
    for text in ["/tenants/acme/public/../private/x", "/tenants/acme/public/./x", "/tenants/acme//public/x"] {
        assert!(text.parse::<TreePath>().is_err(), "{text}");
    }
}

#[test]
fn ten_thousand_tenants_need_no_further_policy() {
    let policies = Policies::new(&[]).unwrap();
    let before = policies.count();
    for n in 0..10_000_u32 {
        let who = principal(&format!("t{n}"), "ana");
        let own = plain(&format!("/tenants/t{n}/x"));
        let next = plain(&format!("/tenants/t{}/x", n + 1));
        let judge = policies.judge(&who, NOON);
        judge.read_path(ReadAction::Read, &own, &main_branch()).unwrap();
        if n % 100 == 0 {
            judge.read_path(ReadAction::Read, &next, &main_branch()).unwrap_err();
        }
    }
    assert_eq!(policies.count(), before);
}

#[test]
fn what_is_shaped_like_a_credential_is_for_policy_to_refuse() {
    let refuse = r#"
        @id("no-credentials")
        @reason("it is shaped like a credential")
        forbid (principal, action in [Action::"tree_write", Action::"mount_write", Action::"tree_push", Action::"run_create"], resource)
        unless { context.credential_shaped.isEmpty() };
    "#;
    let ana = principal("acme", "ana");
    let (path, main) = (PathFacts::plain("/tenants/acme/x".parse().unwrap()), BranchName::main());
    let ask = |policies: &Policies, rules: &[&str]| {
        let judge = policies.judge(&ana, NOON).holding(rules.iter().copied());
        let outcomes = [
            judge.write_path(WriteAction::Write, &path, &main).map(drop),
            judge.write_path(WriteAction::Mount, &path, &main).map(drop),
            judge.create_run(&plan()).map(drop),
            // What takes away lets nothing in.
            judge.write_path(WriteAction::Delete, &path, &main).map(drop),
        ];
        outcomes.map(|outcome| outcome.err().map(|denied| denied.policies.join(" ")))
    };
    let strict = Policies::new(&[("credentials.cedar".to_owned(), refuse.to_owned())]).unwrap();
    let no = Some("no-credentials".to_owned());
    assert_eq!(ask(&strict, &[]), [None, None, None, None]);
    assert_eq!(ask(&strict, &["npm-token"]), [no.clone(), no.clone(), no, None]);
    assert_eq!(ask(&Policies::new(&[]).unwrap(), &["npm-token"]), [None, None, None, None]);
}
