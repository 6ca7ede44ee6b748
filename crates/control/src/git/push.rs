//! What a `git-receive-pack` request asks for, and the report on it.

use std::collections::HashSet;
use std::io::Read;

use bailey_protocol::id::VersionId;
use bailey_protocol::path::BranchName;

use super::pkt::{self, Pkt, PktError, PktReader, text};

/// Most bytes of commands.
const MAX_COMMANDS_BYTES: usize = 1 << 20;
/// Most refs that one push may move.
const MAX_COMMANDS: usize = 256;
const NOTHING: &str = "0000000000000000000000000000000000000000";
/// Longest reason in a report.
const MAX_REASON: usize = 400;

/// The commands of a push.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PushRequest {
    pub(crate) commands: Vec<Command>,
    /// Whether the client reads the report on a band of its own.
    pub(crate) side_band: bool,
    /// Whether it wants a report at all.
    pub(crate) report: bool,
}

/// One ref's move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// As the client named it.
    pub(crate) name: String,
    pub(crate) from: Option<VersionId>,
    pub(crate) to: Option<VersionId>,
}

/// Why a push is not understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// It is not made of lines.
    #[error("{0}")]
    Pkt(#[from] PktError),
    /// A command that is none.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Reads the commands; what follows in `source` is the pack.
pub(crate) fn parse<R: Read>(source: R) -> Result<(PushRequest, R), PushError> {
    let mut lines = PktReader::new(source, MAX_COMMANDS_BYTES);
    let mut request = PushRequest::default();
    let mut names = HashSet::new();
    loop {
        let line = match lines.next()? {
            None | Some(Pkt::Flush) => return Ok((request, lines.into_source())),
            Some(Pkt::Data(line)) => line,
            Some(Pkt::Delim | Pkt::End) => return Err(PushError::Invalid("a command is none")),
        };
        // What a client cut off is checked with everything else: each version has to be whole here.
        if line.starts_with(b"shallow ") {
            continue;
        }
        let mut halves = line.splitn(2, |byte| *byte == 0);
        let command = command(text(halves.next().unwrap_or_default()))?;
        if let Some(capabilities) = halves.next() {
            if !request.commands.is_empty() {
                return Err(PushError::Invalid("capabilities come with the first command"));
            }
            take_capabilities(&mut request, text(capabilities))?;
        }
        if !names.insert(command.name.clone()) {
            return Err(PushError::Invalid("a ref is named twice"));
        }
        request.commands.push(command);
        if request.commands.len() > MAX_COMMANDS {
            return Err(PushError::Invalid("a push moves at most 256 refs"));
        }
    }
}

fn take_capabilities(request: &mut PushRequest, text: &[u8]) -> Result<(), PushError> {
    for word in text.split(|byte| *byte == b' ') {
        match word {
            b"side-band-64k" => request.side_band = true,
            b"report-status" => request.report = true,
            b"push-options" => return Err(PushError::Invalid("push options are not taken")),
            word if word.starts_with(b"object-format=") && word != b"object-format=sha1" => {
                return Err(PushError::Invalid("objects are named by SHA-1 here"));
            }
            word if word.starts_with(b"push-cert=") => return Err(PushError::Invalid("signed pushes are not taken")),
            _ => {}
        }
    }
    Ok(())
}

fn command(line: &[u8]) -> Result<Command, PushError> {
    let invalid = || PushError::Invalid("a command is not `old new ref`");
    let line = std::str::from_utf8(line).map_err(|_cause| PushError::Invalid("a ref's name is not UTF-8"))?;
    let mut words = line.splitn(3, ' ');
    let mut id = || {
        let word = words.next().ok_or_else(invalid)?;
        match word {
            NOTHING => Ok(None),
            word => word.parse::<VersionId>().map(Some).map_err(|_cause| invalid()),
        }
    };
    let (from, to) = (id()?, id()?);
    let name = words.next().filter(|name| !name.is_empty()).ok_or_else(invalid)?.to_owned();
    Ok(Command { name, from, to })
}

impl Command {
    /// The branch that the ref is.
    ///
    /// # Errors
    /// Says why it is none that can be pushed to.
    pub(crate) fn branch(&self) -> Result<BranchName, String> {
        let Some(name) = self.name.strip_prefix("refs/heads/") else {
            return Err("only branches are kept here: push to refs/heads/…".to_owned());
        };
        if name == "runs" || name.starts_with("runs/") {
            return Err("branches below `runs/` are made by runs alone: choose another name".to_owned());
        }
        name.parse().map_err(|error: bailey_protocol::id::IdError| format!("no name for a branch: {}", error.rule))
    }
}

/// What became of a push.
#[derive(Debug)]
pub(crate) struct Report {
    /// Why no object was taken in, if so.
    pub(crate) unpack: Result<(), String>,
    /// Each ref, and why it did not move.
    pub(crate) refs: Vec<(String, Result<(), String>)>,
    /// For people.
    pub(crate) notices: Vec<String>,
}

impl Report {
    /// Nothing moved, because of the objects.
    pub(crate) fn not_unpacked(commands: &[Command], reason: &str) -> Self {
        let told = |command: &Command| (command.name.clone(), Err("unpacker error".to_owned()));
        Self { unpack: Err(reason.to_owned()), refs: commands.iter().map(told).collect(), notices: Vec::new() }
    }

    /// Nothing moved: those for their reasons, the others because of them.
    pub(crate) fn refused(commands: &[Command], reasons: &[(usize, String)]) -> Self {
        let told = |(number, command): (usize, &Command)| {
            let own = reasons.iter().find(|(at, _)| *at == number).map(|(_, reason)| reason.clone());
            let reason = own.unwrap_or_else(|| "not moved: another ref of this push was refused".to_owned());
            (command.name.clone(), Err(reason))
        };
        Self { unpack: Ok(()), refs: commands.iter().enumerate().map(told).collect(), notices: Vec::new() }
    }

    /// All moved.
    pub(crate) fn moved(commands: &[Command]) -> Self {
        let refs = commands.iter().map(|command| (command.name.clone(), Ok(()))).collect();
        Self { unpack: Ok(()), refs, notices: Vec::new() }
    }

    /// Whether anything was refused.
    pub(crate) fn is_refusal(&self) -> bool {
        self.unpack.is_err() || self.refs.iter().any(|(_, outcome)| outcome.is_err())
    }

    /// As the client reads it.
    pub(crate) fn encode(&self, request: &PushRequest) -> Vec<u8> {
        let mut lines = Vec::new();
        let unpack = self.unpack.as_ref().map_or_else(|reason| shown(reason), |()| "ok".to_owned());
        pkt::line(&mut lines, format!("unpack {unpack}\n").as_bytes());
        for (name, outcome) in &self.refs {
            let line = match outcome {
                Ok(()) => format!("ok {name}\n"),
                Err(reason) => format!("ng {name} {}\n", shown(reason)),
            };
            pkt::line(&mut lines, line.as_bytes());
        }
        pkt::flush(&mut lines);
        let mut out = Vec::new();
        match (request.side_band, request.report) {
            (true, report) => {
                for notice in &self.notices {
                    pkt::band(&mut out, 2, format!("{}\n", shown(notice)).as_bytes());
                }
                if report {
                    pkt::band(&mut out, 1, &lines);
                }
                pkt::flush(&mut out);
            }
            (false, true) => out = lines,
            (false, false) => {}
        }
        out
    }
}

/// In one line, without what a terminal acts on.
fn shown(reason: &str) -> String {
    let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";

    fn wire(lines: &[String]) -> Vec<u8> {
        let mut out = Vec::new();
        lines.iter().for_each(|line| pkt::line(&mut out, line.as_bytes()));
        pkt::flush(&mut out);
        out.extend_from_slice(b"PACK");
        out
    }

    #[test]
    fn commands_are_read_and_the_pack_is_left() {
        let lines = [
            format!("shallow {A}"),
            format!("{A} {B} refs/heads/main\0 report-status side-band-64k object-format=sha1 agent=git/2"),
            format!("{B} {NOTHING} refs/heads/a/b"),
        ];
        let wire = wire(&lines);
        let (request, rest) = parse(&*wire).unwrap();
        assert!(request.side_band && request.report);
        assert_eq!(rest, b"PACK");
        let [first, second] = &*request.commands else { panic!("{request:?}") };
        assert_eq!((first.from.as_ref().unwrap().as_str(), first.branch().unwrap().as_str()), (A, "main"));
        assert_eq!((&second.to, second.branch().unwrap().as_str()), (&None, "a/b"));
        assert_eq!(parse(&b"0000"[..]).unwrap().0, PushRequest::default());
    }

    #[test]
    fn what_is_no_push_is_refused() {
        for lines in [
            vec![format!("{A} refs/heads/main")],
            vec![format!("{A} {B}")],
            vec![format!("{A} {B} ")],
            vec![format!("{A} zz refs/heads/main")],
            vec![format!("{A} {B} refs/heads/main"), format!("{A} {B} refs/heads/main")],
            vec![format!("{A} {B} refs/heads/a"), format!("{A} {B} refs/heads/b\0 report-status")],
            vec![format!("{A} {B} refs/heads/a\0 push-options")],
            vec![format!("{A} {B} refs/heads/a\0 object-format=sha256")],
            (0..257).map(|n| format!("{A} {B} refs/heads/b{n}")).collect(),
            (0..20).map(|n| format!("{A} {B} refs/heads/{n}{}", "x".repeat(60_000))).collect(),
        ] {
            assert!(parse(&*wire(&lines)).is_err(), "{:?}", lines.first());
        }
        assert!(parse(&b"00010000"[..]).is_err());
        assert!(parse(&b"fff1"[..]).is_err());
    }

    #[test]
    fn only_branches_of_people_can_be_pushed() {
        for (name, fine) in [
            ("refs/heads/main", true),
            ("refs/heads/feature/x", true),
            ("refs/tags/v1", false),
            ("refs/notes/commits", false),
            ("HEAD", false),
            ("refs/heads/", false),
            ("refs/heads/runs/run_1", false),
            ("refs/heads/runs", false),
            ("refs/heads/../x", false),
            ("refs/heads/a..b", false),
            ("refs/heads/a b", false),
            ("refs/heads/-x", false),
            ("refs/heads/x.lock", false),
            ("refs/for/main", false),
        ] {
            let command = Command { name: name.to_owned(), from: None, to: None };
            assert_eq!(command.branch().is_ok(), fine, "{name}");
        }
    }

    #[test]
    fn a_report_is_one_line_each_whatever_the_reason_holds() {
        let commands = [Command { name: "refs/heads/a".to_owned(), from: None, to: None }];
        let request = PushRequest { report: true, ..PushRequest::default() };
        let text = |report: &Report| String::from_utf8(report.encode(&request)).unwrap();
        let refused = text(&Report::refused(&commands, &[(0, "a\nok refs/heads/b\x1b[2J".to_owned())]));
        assert_eq!(refused, "000eunpack ok\n002ang refs/heads/a a ok refs/heads/b [2J\n0000");
        assert_eq!(text(&Report::moved(&commands)), "000eunpack ok\n0014ok refs/heads/a\n0000");
        let broken = text(&Report::not_unpacked(&commands, "bad"));
        assert_eq!(broken, "000funpack bad\n0023ng refs/heads/a unpacker error\n0000");
    }
}
