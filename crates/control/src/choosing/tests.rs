use super::*;

/// A host with every wall, with a processor that helps.
fn everything() -> Host {
    let walls = [
        (WallKind::Container, None),
        (WallKind::Gvisor, None),
        (WallKind::Microvm, Some(true)),
        (WallKind::Isolate, None),
    ];
    Host { walls: walls.into(), cpu_millis: 8_000, memory_bytes: 16 << 30, substitute: None }
}

fn emulated() -> Host {
    let mut host = everything();
    host.walls.insert(WallKind::Microvm, Some(false));
    host
}

fn wall(verdict: &Verdict) -> Option<WallKind> {
    match verdict {
        Verdict::Wall { wall, .. } => Some(*wall),
        _ => None,
    }
}

/// Everything that the verdict says, as one text.
fn said(verdict: &Verdict) -> String {
    serde_json::to_string(verdict).unwrap()
}

fn judge(facts: CodeFacts) -> Verdict {
    choose(&facts, &everything())
}

#[test]
fn an_endpoint_that_a_developer_reviewed_needs_no_sandbox_at_any_size() {
    let reviewed = CodeFacts { provenance: Provenance::Reviewed, ..CodeFacts::default() };
    assert!(said(&judge(reviewed.clone())).contains("needs no sandbox"));
    let large = CodeFacts { memory_bytes: Some(1 << 50), private_network: true, ..reviewed };
    assert!(matches!(judge(large), Verdict::NoSandbox { .. }));
}

#[test]
fn a_models_python_over_an_uploaded_spreadsheet_gets_a_container_for_the_session() {
    let facts = CodeFacts {
        language: Some(CodeLanguage::Python),
        files_and_processes: true,
        session_minutes: 15,
        ..CodeFacts::default()
    };
    let verdict = judge(facts.clone());
    assert_eq!(wall(&verdict), Some(WallKind::Container));
    for words in ["nothing secret inside", "only the destinations that it needs", "destroyed when the user leaves"] {
        assert!(said(&verdict).contains(words), "{verdict:?}");
    }
    let inside = judge(CodeFacts { place: Place::CallersProcess, ..facts });
    let Verdict::Refused { reason, .. } = &inside else { panic!("{inside:?}") };
    assert!(reason.contains("keep the process's role, environment and leftover files"), "{reason}");
}

#[test]
fn clients_rules_over_a_private_database_get_a_machine_in_the_region() {
    let facts = CodeFacts { private_network: true, region: Some("eu-central".to_owned()), ..CodeFacts::default() };
    let verdict = judge(facts);
    assert_eq!(wall(&verdict), Some(WallKind::Microvm));
    let said = said(&verdict);
    assert!(said.contains("on a node in eu-central") && said.contains("an explicit destination"), "{said}");
}

#[test]
fn suspicious_documents_are_opened_in_a_machine() {
    let verdict = judge(CodeFacts { untrusted_files: true, files_and_processes: true, ..CodeFacts::default() });
    assert_eq!(wall(&verdict), Some(WallKind::Microvm));
}

#[test]
fn javascript_over_passed_in_data_gets_an_isolate_and_what_needs_files_does_not() {
    let quick = CodeFacts { language: Some(CodeLanguage::Javascript), latency_ms: Some(9), ..CodeFacts::default() };
    assert_eq!(wall(&judge(quick.clone())), Some(WallKind::Isolate));
    for slower in [
        CodeFacts { latency_ms: None, ..quick.clone() },
        CodeFacts { latency_ms: Some(50), ..quick.clone() },
        CodeFacts { files_and_processes: true, ..quick.clone() },
        CodeFacts { language: Some(CodeLanguage::Python), ..quick },
    ] {
        assert_eq!(wall(&judge(slower)), Some(WallKind::Container));
    }
}

#[test]
fn short_bursts_of_unreviewed_code_get_a_container_with_the_reason() {
    let verdict = judge(CodeFacts::default());
    assert_eq!(wall(&verdict), Some(WallKind::Container));
    assert!(said(&verdict).contains("unreviewed code in short runs"));
}

#[test]
fn what_is_larger_than_the_host_is_told_so_and_long_sessions_get_a_machine() {
    for large in [
        CodeFacts { cpu_millis: Some(8_001), ..CodeFacts::default() },
        CodeFacts { memory_bytes: Some((16 << 30) + 1), ..CodeFacts::default() },
    ] {
        assert!(matches!(judge(large), Verdict::HostCannot { .. }));
    }
    let long = CodeFacts { files_and_processes: true, session_minutes: 240, ..CodeFacts::default() };
    assert_eq!(wall(&judge(long)), Some(WallKind::Microvm));
    assert_eq!(wall(&judge(CodeFacts { survives_pause: true, ..CodeFacts::default() })), Some(WallKind::Microvm));
}

#[test]
fn one_tenants_residency_is_both_its_policy_and_everybody_elses_usual() {
    let facts = CodeFacts { region: Some("ch".to_owned()), one_tenant: true, ..CodeFacts::default() };
    let verdict = judge(facts);
    assert_eq!(wall(&verdict), Some(WallKind::Container));
    assert!(said(&verdict).contains("by policy, this tenant's runs on a node in ch, and everyone else's as before"));
}

#[test]
fn a_governments_assessment_is_confirmed_first_and_comes_with_questions() {
    let verdict = judge(CodeFacts { assessment: true, hostile: true, ..CodeFacts::default() });
    let Verdict::ConfirmFirst { reason, ask } = &verdict else { panic!("{verdict:?}") };
    assert!(reason.contains("confirm with the client first") && ask.len() >= 3, "{verdict:?}");
}

#[test]
fn without_hardware_hostile_code_is_refused_unless_policy_accepts_another_wall() {
    let hostile = CodeFacts { hostile: true, ..CodeFacts::default() };
    let verdict = choose(&hostile, &emulated());
    assert!(matches!(&verdict, Verdict::Refused { reason, .. } if reason.contains("no boundary")), "{verdict:?}");
    let accepting = Host { substitute: Some(WallKind::Gvisor), ..emulated() };
    let verdict = choose(&hostile, &accepting);
    assert_eq!(wall(&verdict), Some(WallKind::Gvisor));
    assert!(said(&verdict).contains("policy accepts `gvisor` in its place"), "{verdict:?}");
    // One that is not there is none.
    let absent = Host { substitute: Some(WallKind::Gvisor), ..Host::with_cages() };
    let verdict = choose(&hostile, &absent);
    assert!(matches!(&verdict, Verdict::NotInstalled { wall: WallKind::Microvm, .. }), "{verdict:?}");
}

/// Every combination of what is asked, on every kind of host.
#[test]
fn nothing_falls_silently_to_a_weaker_wall() {
    let hosts =
        [everything(), emulated(), Host::with_cages(), Host { substitute: Some(WallKind::Gvisor), ..emulated() }];
    for bits in 0_u32..1 << 10 {
        let is = |bit: u32| bits >> bit & 1 == 1;
        let facts = CodeFacts {
            provenance: if is(0) { Provenance::Reviewed } else { Provenance::Unreviewed },
            place: if is(1) { Place::CallersProcess } else { Place::Sandbox },
            language: is(2).then_some(CodeLanguage::Javascript),
            hostile: is(3),
            latency_ms: is(4).then_some(5),
            files_and_processes: is(5),
            session_minutes: if is(6) { 120 } else { 0 },
            private_network: is(7),
            untrusted_files: is(8),
            memory_bytes: is(9).then_some(1 << 40),
            ..CodeFacts::default()
        };
        let needs_machine = facts.hostile || facts.private_network || facts.untrusted_files || (is(5) && is(6));
        for host in &hosts {
            let verdict = choose(&facts, host);
            let Verdict::Wall { wall, reason, .. } = &verdict else { continue };
            assert!(!is(0) && !is(1), "{facts:?} {verdict:?}");
            assert!(!reason.is_empty() && facts.memory_bytes.is_none_or(|bytes| bytes <= host.memory_bytes));
            assert!(host.walls.contains_key(wall), "{verdict:?}");
            if needs_machine {
                let accelerated = *wall == WallKind::Microvm && host.walls[wall] == Some(true);
                let accepted = host.substitute == Some(*wall) && reason.contains("policy accepts");
                assert!(accelerated || accepted, "{facts:?} {verdict:?}");
            }
        }
    }
}
