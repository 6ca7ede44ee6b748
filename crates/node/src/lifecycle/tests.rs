use bailey_protocol::node::NodeFaultKind;
use proptest::prelude::*;

use super::*;

fn plan(writable: Vec<u32>, output_bytes: u64) -> Plan {
    Plan { writable, output_bytes }
}

fn fault() -> NodeFault {
    NodeFault { kind: NodeFaultKind::Internal, message: "x".to_owned() }
}

/// Feeds events; returns all effects and the last state.
fn play(plan: &Plan, events: impl IntoIterator<Item = Event>) -> (State, Vec<Effect>) {
    let mut state = State::Claiming;
    let mut all = Vec::new();
    for event in events {
        let (next, effects) = state.on(event, plan);
        state = next;
        all.extend(effects);
    }
    (state, all)
}

fn ending_of(effects: &[Effect]) -> Option<&Ended> {
    effects.iter().find_map(|effect| match effect {
        Effect::ReportStopped(ended) => Some(ended),
        _ => None,
    })
}

#[test]
fn a_whole_run_reports_in_order() {
    let plan = plan(vec![1, 2], 100);
    let events = [
        Event::Claimed,
        Event::Started,
        Event::Output(60),
        Event::Ended(Ending::Exited { code: 3 }),
        Event::Killed(StopFacts::default()),
        Event::Collected,
        Event::Collected,
    ];
    let (state, effects) = play(&plan, events);
    assert_eq!(state, State::Over);
    let stopped = Ended {
        ending: Ending::Exited { code: 3 },
        limits_hit: vec![],
        output_dropped: 0,
        facts: StopFacts::default(),
    };
    let expected = [
        Effect::Start,
        Effect::ReportStarted,
        Effect::Keep(60),
        Effect::Kill,
        Effect::ReportStopped(stopped),
        Effect::Collect(1),
        Effect::Collect(2),
        Effect::ReportDone,
        Effect::Release,
    ];
    assert_eq!(effects, expected);
}

#[test]
fn r11_output_over_the_limit_is_cut_counted_and_ends_the_run() {
    let events = [Event::Claimed, Event::Started, Event::Output(90), Event::Output(30), Event::Output(5)];
    let killed = [Event::Killed(StopFacts::default())];
    let (_, effects) = play(&plan(vec![], 100), events.into_iter().chain(killed));
    assert_eq!(effects[2..6], [Effect::Keep(90), Effect::Keep(10), Effect::Kill, Effect::Keep(0)]);
    let ended = ending_of(&effects).unwrap();
    assert_eq!((ended.ending, ended.output_dropped), (Ending::OutputLimit, 25));
    assert_eq!(ended.limits_hit, [LimitHit::Output]);
}

#[test]
fn r03_any_memory_kill_makes_the_ending_oom() {
    let facts = StopFacts { oom_kills: 1, ..StopFacts::default() };
    for ending in [Ending::Exited { code: 0 }, Ending::Signaled { signal: 9 }, Ending::GuestLost] {
        let (_, effects) =
            play(&plan(vec![], 1), [Event::Claimed, Event::Started, Event::Ended(ending), Event::Killed(facts)]);
        let ended = ending_of(&effects).unwrap();
        assert_eq!((ended.ending, ended.limits_hit.as_slice()), (Ending::Oom, &[LimitHit::Memory][..]));
    }
}

#[test]
fn the_first_reason_wins_and_output_from_before_the_kill_is_kept() {
    let events = [
        Event::Claimed,
        Event::Started,
        Event::StopAsked(Ending::Timeout),
        Event::StopAsked(Ending::Cancelled),
        Event::Killed(StopFacts::default()),
        Event::Output(7),
        Event::Ended(Ending::GuestLost),
    ];
    let (state, effects) = play(&plan(vec![], 100), events);
    assert_eq!(state, State::Over);
    assert_eq!(ending_of(&effects).unwrap().ending, Ending::Timeout);
    let kept = effects.iter().position(|effect| *effect == Effect::Keep(7)).unwrap();
    let stopped = effects.iter().position(|effect| matches!(effect, Effect::ReportStopped(_))).unwrap();
    assert!(kept < stopped, "{effects:?}");
}

#[test]
fn a_run_stopped_before_its_claim_still_ends_whole() {
    let (state, effects) = play(&plan(vec![0], 1), [Event::StopAsked(Ending::Cancelled)]);
    assert_eq!(state, State::Over);
    assert!(matches!(effects[0], Effect::ReportStopped(_)));
    assert_eq!(effects[1..], [Effect::ReportUnchanged(0), Effect::ReportDone, Effect::Release]);
}

fn any_event() -> impl Strategy<Value = Event> {
    let ending = prop_oneof![
        Just(Ending::Exited { code: 0 }),
        Just(Ending::Signaled { signal: 9 }),
        Just(Ending::GuestLost),
        Just(Ending::Cancelled),
        Just(Ending::Timeout),
        Just(Ending::NodeRestarted),
    ];
    let facts = (0_u64..2, 0_u64..2, any::<bool>(), any::<bool>());
    let facts = facts.prop_map(|(oom_kills, pids_refused, disk_full, files_full)| StopFacts {
        oom_kills,
        pids_refused,
        disk_full,
        files_full,
        ..StopFacts::default()
    });
    prop_oneof![
        4 => Just(Event::Claimed),
        4 => Just(Event::Started),
        6 => (0_u64..40).prop_map(Event::Output),
        2 => ending.clone().prop_map(Event::Ended),
        2 => ending.prop_map(Event::StopAsked),
        3 => facts.prop_map(Event::Killed),
        2 => Just(Event::Drained),
        3 => Just(Event::Collected),
        1 => Just(Event::Refused(fault())),
        1 => Just(Event::Fault(fault())),
        1 => Just(Event::Abandoned),
    ]
}

/// Position of an effect in the order that callers are promised; `None` for effects that nobody sees.
fn rank(effect: &Effect) -> Option<u32> {
    Some(match effect {
        Effect::ReportStarted => 1,
        Effect::Keep(_) => 2,
        Effect::ReportStopped(_) => 3,
        Effect::Collect(mount) | Effect::ReportUnchanged(mount) => 4 + *mount,
        Effect::ReportDone | Effect::ReportFailed(_) => 100,
        Effect::Start | Effect::Kill | Effect::Release => return None,
    })
}

proptest! {
    #[test]
    fn any_history_keeps_the_promises(
        events in proptest::collection::vec(any_event(), 0..40),
        mounts in 0_u32..4,
        limit in 0_u64..80,
    ) {
        let plan = plan((0..mounts).collect(), limit);
        let (state, effects) = play(&plan, events);
        let count = |wanted: fn(&Effect) -> bool| effects.iter().filter(|effect| wanted(effect)).count();

        let ranks: Vec<u32> = effects.iter().filter_map(rank).collect();
        prop_assert!(ranks.is_sorted(), "out of order: {effects:?}");
        let kept: u64 = effects.iter().map(|effect| if let Effect::Keep(bytes) = effect { *bytes } else { 0 }).sum();
        prop_assert!(kept <= limit);
        prop_assert!(count(|e| matches!(e, Effect::ReportStarted)) <= 1);
        prop_assert!(count(|e| matches!(e, Effect::Kill)) <= 1);
        prop_assert!(count(|e| matches!(e, Effect::ReportStopped(_))) <= 1);
        prop_assert!(count(|e| matches!(e, Effect::ReportDone | Effect::ReportFailed(_))) <= 1);

        let over = state == State::Over;
        prop_assert_eq!(count(|e| matches!(e, Effect::Release)), usize::from(over));
        if over {
            prop_assert_eq!(effects.last(), Some(&Effect::Release));
        }
        if count(|e| matches!(e, Effect::ReportDone)) == 1 {
            let changes = count(|e| matches!(e, Effect::Collect(_) | Effect::ReportUnchanged(_)));
            prop_assert_eq!(changes, plan.writable.len());
            prop_assert_eq!(count(|e| matches!(e, Effect::ReportStopped(_))), 1);
        }
        if count(|e| matches!(e, Effect::Start)) == 1 && count(|e| matches!(e, Effect::ReportStopped(_))) == 1 {
            prop_assert_eq!(count(|e| matches!(e, Effect::Kill)), 1, "an ending without a kill");
        }
    }
}
