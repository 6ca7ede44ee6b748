//! Who goes first where there is not enough CPU time: by weights, since all cages are siblings.
//!
//! A parked cage has no tenant, and a group cannot be moved below another once it is known, so a tenant has no group of its
//! own. Its one weight is divided among its cages instead, anew with each that comes or goes.

/// What one tenant has, on the scale of `cpu.weight`; and a cage without a tenant, in which only the jail and the agent are
/// at work, and somebody waits for it.
pub(crate) const WHOLE: u32 = 1_000;
/// What the server has where it is a sibling of the cages: the most that there is.
pub(crate) const SERVER: u32 = 10_000;

/// The weight of each of so many cages of one tenant. With more than [`WHOLE`], none could have less.
pub(crate) fn of_each(cages: usize) -> u32 {
    let cages = u32::try_from(cages).unwrap_or(u32::MAX).max(1);
    (WHOLE / cages).max(1)
}

/// The same on the scale of v1's `cpu.shares`.
pub(crate) fn as_shares(weight: u32) -> u64 {
    u64::from(weight) * 1024 / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_cages_share_one_weight_they_have_no_more_than_it_and_not_much_less() {
        assert_eq!((of_each(0), of_each(1), of_each(2)), (WHOLE, WHOLE, WHOLE / 2));
        for cages in 1..=1000_u32 {
            let all = of_each(cages as usize) * cages;
            assert!(all <= WHOLE && all > WHOLE / 2, "{cages} cages have {all}");
        }
        assert_eq!(of_each(usize::MAX), 1);
        // Both versions refuse, or silently change, what is out of their range.
        for weight in [1, WHOLE, SERVER] {
            assert!((1..=10_000).contains(&weight) && (2..=262_144).contains(&as_shares(weight)), "{weight}");
        }
    }
}
