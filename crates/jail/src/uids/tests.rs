use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const START: Duration = Duration::from_secs(1000);

#[test]
fn a_chunk_has_distinct_ranges_above_the_base_and_below_the_last_uid() {
    let mut ranges = Ranges::default();
    ranges.add_chunk(0);
    ranges.add_chunk(CHUNKS - 1);
    let mut seen = BTreeSet::new();
    while let Some(Base(base)) = ranges.take(START) {
        assert!(base >= CAGE_UID_BASE);
        assert_eq!((base - CAGE_UID_BASE) % RANGE, 0);
        assert!(u64::from(base) + u64::from(RANGE) < u64::from(u32::MAX));
        assert!(seen.insert(base));
    }
    assert_eq!(seen.len(), 2048);
}

#[test]
fn a_range_rests_before_it_is_used_again_and_the_oldest_comes_first() {
    let mut ranges = Ranges::default();
    ranges.add_chunk(3);
    let all: Vec<Base> = std::iter::from_fn(|| ranges.take(START)).collect();
    let [_, _, third, _, _, sixth, ..] = all.as_slice() else { panic!("too few ranges") };
    ranges.give_back(*sixth, START);
    ranges.give_back(*third, START + Duration::from_secs(1));
    assert_eq!(ranges.take(START + QUARANTINE - Duration::from_millis(1)), None);
    assert_eq!(ranges.take(START + QUARANTINE), Some(*sixth));
    assert_eq!(ranges.take(START + QUARANTINE), None);
    assert_eq!(ranges.take(START + QUARANTINE + Duration::from_secs(1)), Some(*third));
}

proptest! {
    #[test]
    fn no_range_is_ever_held_twice_or_taken_within_its_quarantine(steps in prop::collection::vec((any::<bool>(), 0_u64..4000), 1..2000)) {
        let mut ranges = Ranges::default();
        ranges.add_chunk(0);
        let mut now = START;
        let mut held: Vec<Base> = Vec::new();
        let mut freed: std::collections::BTreeMap<Base, Duration> = std::collections::BTreeMap::new();
        for (take, wait) in steps {
            now += Duration::from_millis(wait);
            if take {
                if let Some(base) = ranges.take(now) {
                    prop_assert!(!held.contains(&base));
                    if let Some(at) = freed.get(&base) {
                        prop_assert!(now >= *at + QUARANTINE);
                    }
                    held.push(base);
                }
            } else if let Some(base) = held.pop() {
                ranges.give_back(base, now);
                freed.insert(base, now);
            }
        }
    }
}
