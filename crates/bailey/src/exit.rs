//! Exit codes. `bailey run` passes on the program's own; these are the rest.

use bailey_protocol::node::Ending;

/// Shown by `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done
  1    refused or failed
  2    wrong usage, of `bailey run` as well
  141  nobody reads the output any more, as in `bailey log … | head -1`
of `bailey run`:
  N    the program's own exit code; 128+N when signal N ended it
  124  the time limit ended it
  125  Bailey could not carry it out or lost it: refused, output limit, broken stream
  130  cancelled (Ctrl-C)
  137  the memory limit ended it";

/// A verb was refused or failed.
pub(crate) const FAILED: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;
/// Standard output is a pipe that nobody reads any more: what a shell shows for SIGPIPE.
pub(crate) const UNREAD: u8 = 141;
/// `bailey run` has no code of the program to give.
pub(crate) const NO_RESULT: u8 = 125;
/// Cancelled by the caller.
pub(crate) const CANCELLED: u8 = 130;

/// The code of `bailey run` for a run that ended this way.
pub(crate) fn of_ending(ending: Ending) -> u8 {
    match ending {
        Ending::Exited { code } => u8::try_from(code).unwrap_or(NO_RESULT),
        Ending::Signaled { signal } => u8::try_from(signal).map_or(NO_RESULT, |signal| 128_u8.saturating_add(signal)),
        Ending::Timeout => 124,
        Ending::Oom => 137,
        Ending::Cancelled => CANCELLED,
        Ending::OutputLimit | Ending::GuestLost | Ending::NodeRestarted => NO_RESULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ending_but_exit_0_is_a_success() {
        assert_eq!(of_ending(Ending::Exited { code: 0 }), 0);
        assert_eq!(of_ending(Ending::Exited { code: 7 }), 7);
        assert_eq!(of_ending(Ending::Exited { code: 256 }), NO_RESULT);
        assert_eq!(of_ending(Ending::Exited { code: -1 }), NO_RESULT);
        assert_eq!(of_ending(Ending::Signaled { signal: 9 }), 137);
        for ending in [
            Ending::Timeout,
            Ending::Oom,
            Ending::OutputLimit,
            Ending::Cancelled,
            Ending::GuestLost,
            Ending::NodeRestarted,
        ] {
            assert_ne!(of_ending(ending), 0, "{ending:?}");
        }
    }
}
