//! Text and JSON on standard output; notes and errors on standard error.

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

use crate::config;

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes lines to standard output; none for an empty text.
pub(crate) fn lines(text: &str) -> std::io::Result<()> {
    if text.is_empty() { Ok(()) } else { line(text) }
}

/// One line for each entry.
pub(crate) fn rows<T>(entries: impl IntoIterator<Item = T>, row: impl FnMut(T) -> String) -> String {
    entries.into_iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json<T: Serialize>(value: &T) -> std::io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// An error that no server told, as `--json` shows it: with the fields of a server's that it has.
pub(crate) fn error(error: &str, message: &str, hint: &str) -> serde_json::Value {
    serde_json::json!({ "error": error, "message": message, "hint": hint })
}

/// Writes a line to standard error. That nobody reads it any more is no reason to fail, or to panic as `eprintln!` does.
pub(crate) fn note_line(text: std::fmt::Arguments<'_>) {
    let _nobody_reads = writeln!(std::io::stderr(), "{text}").is_err();
}

/// [`note_line`], formatted.
macro_rules! note {
    ($($text:tt)*) => { $crate::terminal::note_line(format_args!($($text)*)) };
}
pub(crate) use note;

/// What the server warned of, on standard error.
pub(crate) fn warn(warnings: &[String]) {
    let paint = Paint::stderr();
    for warning in warnings {
        note!("{}", paint.yellow(&format!("bailey: warning: {}", printable(warning))));
    }
}

/// Paints text where a terminal shows it and nobody asked for plain text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn stdout() -> Self {
        Self(std::io::stdout().is_terminal() && !config::no_color())
    }

    pub(crate) fn stderr() -> Self {
        Self(std::io::stderr().is_terminal() && !config::no_color())
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Text from a server or a tenant with its control characters made visible, so that it cannot drive the terminal, and with
/// what turns its direction round or takes no room, so that it cannot pose as another.
pub(crate) fn printable(text: &str) -> String {
    let poses = |c| matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let escape = |c: char| c.is_control() && c != '\t' || poses(c);
    text.chars().flat_map(|c| if escape(c) { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

/// [`printable`], line by line.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// `1.5 KiB`, `12 MiB`: sizes for people.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = bytes;
    let mut tenths = 0;
    let mut unit = 0;
    while shown >= 1024 && unit + 1 < units.len() {
        tenths = shown % 1024 * 10 / 1024;
        shown /= 1024;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or("B");
    if unit == 0 || shown >= 10 { format!("{shown} {name}") } else { format!("{shown}.{tenths} {name}") }
}

/// `2026-03-01 17:05:09` in UTC, from milliseconds since 1970.
pub(crate) fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date of a day since 1970 (Howard Hinnant's `civil_from_days`, for days not before 1970).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
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
    fn times_and_sizes_are_for_people() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(time(1_772_384_709_123), "2026-03-01 17:05:09");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(12 << 20), "12 MiB");
    }

    #[test]
    fn names_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("é\tx"), "é\tx");
        assert_eq!(printable("a\u{202e}gpj.exe\u{200b}"), "a\\u{202e}gpj.exe\\u{200b}");
    }
}
