//! The two words in which zip keeps a time.

/// Time and date, in UTC, of seconds since 1970: to two seconds, from 1980 to 2107.
pub(super) fn words(seconds: u64) -> (u16, u16) {
    const FIRST: u64 = 315_532_800;
    const LAST: u64 = 4_354_819_198;
    let seconds = seconds.clamp(FIRST, LAST);
    let (year, month, day) = date(seconds / 86_400);
    let time = (seconds / 3600 % 24) << 11 | (seconds / 60 % 60) << 5 | (seconds % 60 / 2);
    let date = (year - 1980) << 9 | month << 5 | day;
    (u16::try_from(time).unwrap_or(0), u16::try_from(date).unwrap_or(0))
}

/// The date of a day since 1970 (Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_their_words() {
        assert_eq!(words(0), (0, 1 << 5 | 1));
        assert_eq!(words(1_772_384_709), (17 << 11 | 5 << 5 | 4, 46 << 9 | 3 << 5 | 1));
        assert_eq!(words(u64::MAX).1 >> 9, 127);
    }
}
