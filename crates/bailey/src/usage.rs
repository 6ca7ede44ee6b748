//! A command line that makes no sense: told to people as clap tells it, and to programs as every other error.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::exit;
use crate::terminal::{self, note};

/// Says what is wrong, or shows the help that was asked for.
pub(crate) fn tell(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    if error.use_stderr() && wants_json(arguments) {
        let (message, hint) = told(error);
        note!("{}", terminal::error("usage", &message, &hint));
        return ExitCode::from(exit::USAGE);
    }
    match (error.use_stderr(), error.print()) {
        (false, Ok(())) => ExitCode::SUCCESS,
        (false, Err(_)) => ExitCode::from(exit::UNREAD),
        (true, _) => ExitCode::from(exit::USAGE),
    }
}

/// Whether `--json` is there before what belongs to a program that is run. What does not parse is not asked further.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// What is wrong, and what there is to do.
fn told(error: &clap::Error) -> (String, String) {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return ("a verb is missing".to_owned(), "Add `--help` to see those there are.".to_owned());
    }
    let text = error.render().to_string();
    let (message, hint) = text.split_once("\n\n").unwrap_or((&text, ""));
    let words: Vec<&str> = message.trim_start_matches("error: ").split_whitespace().collect();
    (words.join(" "), hint.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parse;

    #[test]
    fn a_message_and_a_hint_are_apart() {
        let said = |arguments: &[&str]| told(&parse([&["bailey"], arguments].concat()).unwrap_err());
        let (message, hint) = said(&["share", "/tenants/acme"]);
        assert_eq!(message, "the following required arguments were not provided: <--read|--write>");
        assert!(hint.starts_with("Usage: bailey share ") && hint.ends_with("try '--help'."), "{hint}");
        let (message, hint) = said(&["run", "--timeout", "30x", "--", "true"]);
        assert!(message.starts_with("invalid value '30x' for '--timeout <TIME>': `30x` is no time"), "{message}");
        assert!(!hint.is_empty());
        assert_eq!(said(&["policy"]).0, "a verb is missing");
    }

    #[test]
    fn json_is_wanted_before_a_programs_own_arguments() {
        let wants = |line: &str| wants_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(wants("bailey ls --json") && wants("bailey --json run -- true"));
        assert!(!wants("bailey run -- true --json") && !wants("bailey ls"));
    }
}
