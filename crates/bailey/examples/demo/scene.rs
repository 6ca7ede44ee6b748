//! What the audience sees.

use std::io::{IsTerminal as _, Write as _};

fn paint(code: &str, text: &str) -> String {
    if std::io::stdout().is_terminal() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever closed standard output does not watch; the exit code still counts.
    writeln!(out, "{text}").and_then(|()| out.flush()).ok();
}

pub(crate) fn title(text: &str) {
    line(&format!("\n{}", paint("1;36", &format!("== {text}"))));
}

pub(crate) fn say(text: &str) {
    line(&format!("   {text}"));
}

/// A command as someone would type it.
pub(crate) fn typed(arguments: &[&str]) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,…".contains(c);
    let quoted = |word: &&str| if word.chars().all(plain) { (*word).to_owned() } else { format!("'{word}'") };
    let words: Vec<String> = arguments.iter().map(quoted).collect();
    line(&format!("{} {}", paint("1", " $ bailey"), words.join(" ")));
}

pub(crate) fn output(text: &[u8]) {
    for row in String::from_utf8_lossy(text).lines() {
        line(&format!("   {row}"));
    }
}

/// One row of the last table.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) sandbox: Cell,
    pub(crate) bare: Cell,
}

/// What the search gave.
pub(crate) enum Cell {
    /// Not among all the bytes.
    Absent,
    /// There, in these forms.
    Found(Vec<&'static str>),
    /// Not asked.
    NotApplicable,
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Absent => "not found".to_owned(),
            Self::Found(forms) => format!("FOUND ({})", forms.join(", ")),
            Self::NotApplicable => "–".to_owned(),
        }
    }
}

pub(crate) fn table(rows: &[Row]) {
    line(&format!("   {:<34} {:<14} {}", "planted in", "in Bailey", "bare child of an API process"));
    for row in rows {
        let sandbox = format!("{:<14}", row.sandbox.text());
        let sandbox = match row.sandbox {
            Cell::Absent => paint("32", &sandbox),
            Cell::Found(_) | Cell::NotApplicable => sandbox,
        };
        let bare = match row.bare {
            Cell::Found(_) => paint("31", &row.bare.text()),
            Cell::Absent | Cell::NotApplicable => row.bare.text(),
        };
        line(&format!("   {:<34} {sandbox} {bare}", row.what));
    }
}
