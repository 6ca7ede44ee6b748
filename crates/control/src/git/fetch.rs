//! What a `git-upload-pack` request asks for.
//!
//! Stock git answers it, but is never asked for what no branch leads to: in version 2 of the protocol git gives out
//! any object whose id is known, so the wants are read here first.

use bailey_protocol::git::GitProtocol;
use bailey_protocol::id::VersionId;

use super::advertise::ListRefs;
use super::pkt::{Pkt, PktError, PktReader, text};

/// Most bytes of one request: what a client has is told in lines of fifty bytes.
pub(crate) const MAX_REQUEST: usize = 16 << 20;
/// Most prefixes of one `ls-refs`.
const MAX_PREFIXES: usize = 64;
/// Most versions that one fetch may name.
const MAX_WANTS: usize = 100_000;

/// A request, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FetchRequest {
    /// Nothing: git asks so whether its credential is good.
    Probe,
    /// The branches.
    ListRefs(ListRefs),
    /// A pack that leads to these.
    Wants(Vec<VersionId>),
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// It is not made of lines.
    #[error("{0}")]
    Pkt(#[from] PktError),
    /// A line that means nothing here.
    #[error("the request asks for what is not served: `{0}`")]
    Unknown(String),
}

/// Understands the body of a request.
pub(crate) fn parse(protocol: GitProtocol, body: &[u8]) -> Result<FetchRequest, FetchError> {
    let mut lines = PktReader::new(body, MAX_REQUEST);
    match protocol {
        GitProtocol::V0 | GitProtocol::V1 => first(&mut lines),
        GitProtocol::V2 => second(&mut lines),
    }
}

fn first(lines: &mut PktReader<&[u8]>) -> Result<FetchRequest, FetchError> {
    let mut wants = Vec::new();
    while let Some(line) = lines.next()? {
        let Pkt::Data(bytes) = line else { continue };
        let line = text(&bytes);
        if let Some(rest) = line.strip_prefix(b"want ") {
            // The first one carries capabilities.
            want(&mut wants, rest.split(|byte| *byte == b' ').next().unwrap_or_default())?;
        } else if ![&b"have "[..], b"shallow ", b"deepen", b"done"].iter().any(|word| line.starts_with(word)) {
            return Err(unknown(line));
        }
    }
    Ok(if wants.is_empty() { FetchRequest::Probe } else { FetchRequest::Wants(wants) })
}

fn second(lines: &mut PktReader<&[u8]>) -> Result<FetchRequest, FetchError> {
    let command = match lines.next()? {
        None | Some(Pkt::Flush) => return Ok(FetchRequest::Probe),
        Some(Pkt::Data(line)) => line,
        Some(Pkt::Delim | Pkt::End) => return Err(unknown(b"")),
    };
    let is_fetch = match text(&command) {
        b"command=ls-refs" => false,
        b"command=fetch" => true,
        other => return Err(unknown(other)),
    };
    loop {
        match lines.next()? {
            Some(Pkt::Data(line)) => {
                let known = [&b"agent="[..], b"object-format=sha1", b"session-id="];
                if !known.iter().any(|word| text(&line).starts_with(word)) {
                    return Err(unknown(&line));
                }
            }
            Some(Pkt::Delim) => break,
            None | Some(Pkt::Flush | Pkt::End) if is_fetch => return Ok(FetchRequest::Probe),
            None | Some(Pkt::Flush | Pkt::End) => return Ok(FetchRequest::ListRefs(ListRefs::default())),
        }
    }
    if is_fetch { second_fetch(lines) } else { list_refs(lines) }
}

fn second_fetch(lines: &mut PktReader<&[u8]>) -> Result<FetchRequest, FetchError> {
    const KNOWN: [&[u8]; 8] =
        [b"have ", b"done", b"thin-pack", b"no-progress", b"include-tag", b"ofs-delta", b"shallow ", b"deepen"];
    let mut wants = Vec::new();
    while let Some(Pkt::Data(bytes)) = lines.next()? {
        let line = text(&bytes);
        if let Some(id) = line.strip_prefix(b"want ") {
            want(&mut wants, id)?;
        } else if !KNOWN.iter().any(|word| line.starts_with(word)) {
            return Err(unknown(line));
        }
    }
    nothing_more(lines)?;
    if wants.is_empty() { Err(unknown(b"a fetch of nothing")) } else { Ok(FetchRequest::Wants(wants)) }
}

fn list_refs(lines: &mut PktReader<&[u8]>) -> Result<FetchRequest, FetchError> {
    let mut asked = ListRefs::default();
    while let Some(Pkt::Data(bytes)) = lines.next()? {
        match text(&bytes) {
            b"symrefs" => asked.symrefs = true,
            b"unborn" => asked.unborn = true,
            // There are no tags that could be peeled.
            b"peel" => {}
            line => {
                let prefix = line.strip_prefix(b"ref-prefix ").ok_or_else(|| unknown(line))?;
                asked.prefixes.push(prefix.to_vec());
            }
        }
    }
    nothing_more(lines)?;
    if asked.prefixes.len() > MAX_PREFIXES {
        // As the protocol says: prefixes are a wish.
        asked.prefixes.clear();
    }
    Ok(FetchRequest::ListRefs(asked))
}

/// That a second command does not follow, which nobody would have looked at.
fn nothing_more(lines: &mut PktReader<&[u8]>) -> Result<(), FetchError> {
    match lines.next()? {
        None => Ok(()),
        Some(_) => Err(unknown(b"a second command")),
    }
}

fn want(wants: &mut Vec<VersionId>, id: &[u8]) -> Result<(), FetchError> {
    let version = std::str::from_utf8(id).ok().and_then(|text| text.parse().ok()).ok_or_else(|| unknown(id))?;
    if wants.len() >= MAX_WANTS {
        return Err(FetchError::Pkt(PktError::TooMany));
    }
    wants.push(version);
    Ok(())
}

fn unknown(line: &[u8]) -> FetchError {
    let shown = String::from_utf8_lossy(text(line));
    FetchError::Unknown(shown.chars().take(100).flat_map(char::escape_default).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "1111111111111111111111111111111111111111";

    fn wire(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match *line {
                "0000" | "0001" | "0002" => out.extend_from_slice(line.as_bytes()),
                line => super::super::pkt::line(&mut out, line.as_bytes()),
            }
        }
        out
    }

    #[test]
    fn both_protocols_say_what_they_want() {
        let wants = FetchRequest::Wants(vec![ID.parse().unwrap()]);
        let (want, have) = (format!("want {ID}"), format!("have {ID}\n"));
        let body =
            wire(&[&format!("{want} multi_ack_detailed agent=x\n"), &want, "deepen 1\n", "0000", &have, "done\n"]);
        let two = FetchRequest::Wants(vec![ID.parse().unwrap(); 2]);
        assert_eq!(parse(GitProtocol::V0, &body).unwrap(), two);
        let body =
            wire(&["command=fetch", "agent=git/2", "0001", "thin-pack", "ofs-delta", &want, &have, "done\n", "0000"]);
        assert_eq!(parse(GitProtocol::V2, &body).unwrap(), wants);
        let body = wire(&["command=ls-refs\n", "0001", "peel\n", "symrefs\n", "unborn\n", "ref-prefix HEAD\n", "0000"]);
        let asked = ListRefs { symrefs: true, unborn: true, prefixes: vec![b"HEAD".to_vec()] };
        assert_eq!(parse(GitProtocol::V2, &body).unwrap(), FetchRequest::ListRefs(asked));
        assert_eq!(parse(GitProtocol::V2, b"0000").unwrap(), FetchRequest::Probe);
        assert_eq!(parse(GitProtocol::V0, b"0000").unwrap(), FetchRequest::Probe);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let want = format!("want {ID}");
        for lines in [
            &["command=object-info", "0001", "size", "0000"][..],
            &["command=fetch", "0001", &want, "filter blob:none", "0000"],
            &["command=fetch", "0001", "want-ref refs/heads/main", "0000"],
            &["command=fetch", "0001", &want, "packfile-uris https", "0000"],
            &["command=fetch", "server-option=x", "0001", &want, "0000"],
            &["command=fetch", "0001", "want main", "0000"],
            &["command=fetch", "0001", &want, "0000", "command=fetch", "0001", &want, "0000"],
            &["command=ls-refs", "0001", "0000", "command=fetch", "0001", &want, "0000"],
        ] {
            assert!(parse(GitProtocol::V2, &wire(lines)).is_err(), "{lines:?}");
        }
        assert!(parse(GitProtocol::V0, &wire(&[&want, "filter blob:none", "0000"])).is_err());
        assert!(parse(GitProtocol::V0, &wire(&["want x"])).is_err());
    }
}
