//! Which packs to merge: so that few are left, and each byte is copied a few times at most.

use std::collections::BTreeSet;

use gix_hash::ObjectId;

use crate::objects::PackInfo;

/// Packs beyond which the small ones are merged.
const MANY: usize = 50;
/// Packs that are left as they are, each at least as large as all smaller ones together.
const LEFT: usize = 20;
/// A pack of this size is not merged: it is worth the one look.
const LARGE: u64 = 256 << 20;

/// The packs to make one of; none when there are few.
pub(super) fn choose<'a>(packs: impl Iterator<Item = &'a PackInfo>) -> BTreeSet<ObjectId> {
    let mut packs: Vec<&PackInfo> = packs.filter(|info| info.bytes < LARGE).collect();
    if packs.len() <= MANY {
        return BTreeSet::new();
    }
    packs.sort_unstable_by_key(|info| info.bytes);
    let must = packs.len() - LEFT;
    let mut total = 0;
    let chosen = packs.iter().enumerate().take_while(|(at, info)| {
        let take = *at < must || info.bytes <= total;
        total += info.bytes;
        take
    });
    chosen.map(|(_, info)| info.pack).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(number: u32, bytes: u64) -> PackInfo {
        let pack = crate::object::hash(crate::object::Kind::Blob, &number.to_be_bytes()).unwrap();
        PackInfo { pack, objects: 1, bytes, born: 0 }
    }

    proptest! {
        #[test]
        fn few_are_left_and_each_is_larger_than_what_was_merged(sizes in proptest::collection::vec(1_u64..1 << 20, 0..200)) {
            let packs: Vec<_> = (0..).zip(&sizes).map(|(number, bytes)| info(number, *bytes)).collect();
            let chosen = choose(packs.iter());
            prop_assert!(packs.len() - chosen.len() <= MANY);
            if !chosen.is_empty() {
                let merged: u64 = packs.iter().filter(|pack| chosen.contains(&pack.pack)).map(|pack| pack.bytes).sum();
                let left: Vec<_> = packs.iter().filter(|pack| !chosen.contains(&pack.pack)).collect();
                prop_assert!(left.len() <= LEFT && left.iter().all(|pack| pack.bytes > merged));
            }
        }
    }

    #[test]
    fn a_byte_is_copied_a_few_times_only() {
        let (mut packs, mut copied, mut written) = (Vec::new(), 0, 0);
        for number in 0..20_000 {
            packs.push(info(number, 100));
            written += 100;
            let chosen = choose(packs.iter());
            if !chosen.is_empty() {
                let bytes = packs.iter().filter(|pack| chosen.contains(&pack.pack)).map(|pack| pack.bytes).sum();
                packs.retain(|pack| !chosen.contains(&pack.pack));
                packs.push(info(number + 1_000_000, bytes));
                copied += bytes;
            }
            assert!(packs.len() <= MANY);
        }
        assert!(copied < written * 12, "{} times", copied / written);
    }
}
