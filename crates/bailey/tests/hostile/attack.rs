//! The attack programs: Python text, run by the template's own interpreter, inside and outside.

use std::fmt::Write as _;

const PRELUDE: &str = include_str!("../../attacks/prelude.py");

macro_rules! programs {
    ($($name:literal),* $(,)?) => {
        const PROGRAMS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../attacks/", $name, ".py")))),*];
    };
}

programs![
    "bomb",
    "cgroup",
    "devices",
    "empty_room",
    "files",
    "holder",
    "integrity",
    "leavings",
    "links",
    "marks",
    "namespaces",
    "neighbour",
    "network",
    "overwrite",
    "settings",
    "shim",
    "sockets",
    "stand_in",
    "stubborn",
    "sweep",
    "sysctl",
    "trophies",
];

/// The text of one program, with the prelude before it.
pub(crate) fn text(name: &str) -> String {
    let found = PROGRAMS.iter().find(|(known, _)| *known == name);
    let (_, body) = found.unwrap_or_else(|| panic!("no attack program `{name}`"));
    let mut text = String::from(PRELUDE);
    writeln!(text, "{body}").expect("a string grows");
    text
}
