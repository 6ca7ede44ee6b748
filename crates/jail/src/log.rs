//! Diagnostics: one line each on standard error, a fixed phrase and fields.

use std::fmt::Display;
use std::io::Write;

/// Writes one line. A full or closed standard error must not stop the jail.
pub(crate) fn line(level: &str, phrase: &str, fields: &[(&str, &dyn Display)]) {
    let mut text = format!("bailey-jail {level} {phrase}");
    for (name, value) in fields {
        text.push_str(&format!(" {name}={:?}", value.to_string()));
    }
    text.push('\n');
    drop(std::io::stderr().write_all(text.as_bytes()));
}

/// A lifecycle step.
pub(crate) fn info(phrase: &str, fields: &[(&str, &dyn Display)]) {
    line("info", phrase, fields);
}

/// Handled degradation.
pub(crate) fn warn(phrase: &str, fields: &[(&str, &dyn Display)]) {
    line("warn", phrase, fields);
}
