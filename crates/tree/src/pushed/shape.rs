//! What one pushed object has to look like: exactly as git's own tools write it, and nothing else.

use std::collections::HashSet;

use gix_hash::ObjectId;

use crate::commit;
use crate::error::TreeError;
use crate::name;
use crate::object::{Mode, TreeItem};

/// What a pushed commit refers to.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    /// Whether its message says that a run made it.
    pub(super) claims_a_run: bool,
}

/// Most parents of one commit.
const MAX_PARENTS: usize = 64;

/// The entries of a folder: known modes in git's one spelling, in git's order, each name once.
pub(super) fn tree(id: &ObjectId, bytes: &[u8]) -> Result<Vec<TreeItem>, TreeError> {
    let fault = |rule: &'static str| TreeError::refused(format!("folder {id}"), rule);
    let mut items: Vec<TreeItem> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(|| fault("an entry is cut off"))?;
        let (mode, tail) = rest.split_at_checked(space).ok_or_else(|| fault("an entry is cut off"))?;
        let tail = tail.get(1..).unwrap_or_default();
        let end = tail.iter().position(|byte| *byte == 0).ok_or_else(|| fault("an entry is cut off"))?;
        let (name, tail) = tail.split_at_checked(end).ok_or_else(|| fault("an entry is cut off"))?;
        let (oid, tail) =
            tail.get(1..).and_then(|tail| tail.split_at_checked(20)).ok_or_else(|| fault("an entry is cut off"))?;
        let mode = match mode {
            b"40000" => Mode::Tree,
            b"100644" => Mode::Blob,
            b"100755" => Mode::BlobExecutable,
            b"120000" => Mode::Link,
            b"160000" => return Err(fault("submodules are not kept here: push their files instead")),
            _ => return Err(fault("an entry has a mode that git does not write any more")),
        };
        let oid = ObjectId::try_from(oid).map_err(|_cause| fault("an entry is cut off"))?;
        items.push(TreeItem { mode: mode.into(), filename: name.into(), oid });
        rest = tail;
    }
    if !items.is_sorted_by(|a, b| a < b) {
        return Err(fault("its entries are not in git's order"));
    }
    let names: HashSet<&[u8]> = items.iter().map(|item| item.filename.as_slice()).collect();
    if names.len() != items.len() {
        return Err(fault("it has a name twice"));
    }
    Ok(items)
}

/// Why a name that git stores cannot be one here.
pub(super) fn name(stored: &[u8]) -> Result<(), &'static str> {
    let real = name::unescape(stored);
    name::check(&real)?;
    if *name::escape(&real) == *stored {
        return Ok(());
    }
    Err(if real == stored {
        "git would act on that name, so it is kept as `bailey=` and the name: rename it so before you push"
    } else {
        "names that begin with `bailey=` stand for the name that follows: use another"
    })
}

/// What a commit refers to. Its lines come in git's order, and everything that is read from a commit later can be.
pub(super) fn commit(id: &ObjectId, bytes: &[u8]) -> Result<Links, TreeError> {
    let fault = |rule: &'static str| TreeError::refused(format!("commit {id}"), rule);
    let end = bytes.windows(2).position(|two| two == b"\n\n").ok_or_else(|| fault("it has no message"))?;
    let head = bytes.get(..end).unwrap_or_default();
    if head.contains(&0) {
        return Err(fault("its head has a NUL byte"));
    }
    let mut lines = head.split(|byte| *byte == b'\n').peekable();
    let id_of = |hex: &[u8]| ObjectId::from_hex(hex).ok().filter(|id| id.to_string().as_bytes() == hex);
    let tree = lines.next().and_then(|line| id_of(line.strip_prefix(b"tree ")?));
    let tree = tree.ok_or_else(|| fault("its first line is not `tree` and an id"))?;
    let mut parents = Vec::new();
    while let Some(hex) = lines.peek().and_then(|line| line.strip_prefix(b"parent ")) {
        parents.push(id_of(hex).ok_or_else(|| fault("a parent is no id"))?);
        lines.next();
    }
    if parents.len() > MAX_PARENTS {
        return Err(fault("it has more than 64 parents"));
    }
    for (start, rule) in [(&b"author "[..], "it has no author"), (b"committer ", "it has no committer")] {
        let line = lines.next().and_then(|line| line.strip_prefix(start)).ok_or_else(|| fault(rule))?;
        if !is_signature(line) {
            return Err(fault("its author or committer is not `name <mail> seconds zone`"));
        }
    }
    if lines.any(|line| [&b"tree "[..], b"parent ", b"author ", b"committer "].iter().any(|own| line.starts_with(own)))
    {
        return Err(fault("it has a line twice"));
    }
    let read = commit::decode(id, bytes).map_err(|_cause| fault("it cannot be read"))?;
    if read.tree != tree || read.parents != parents {
        return Err(fault("it can be read in two ways"));
    }
    Ok(Links { tree, parents, claims_a_run: read.run.is_some() })
}

/// `name <mail> seconds zone`, as git writes it.
fn is_signature(line: &[u8]) -> bool {
    let Some(end) = line.iter().rposition(|byte| *byte == b'>') else {
        return false;
    };
    let (who, when) = line.split_at_checked(end).unwrap_or_default();
    let Some(mail) = who.iter().position(|byte| *byte == b'<') else {
        return false;
    };
    let spaced = mail == 0 || who.get(mail - 1) == Some(&b' ');
    let once = !who.get(mail + 1..).unwrap_or_default().iter().any(|byte| matches!(byte, b'<' | b'>'))
        && !who.get(..mail).unwrap_or_default().contains(&b'>');
    let Some(when) = when.strip_prefix(b"> ") else {
        return false;
    };
    let mut words = when.split(|byte| *byte == b' ');
    let (seconds, zone) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let in_time = (1..=12).contains(&seconds.len()) && seconds.iter().all(u8::is_ascii_digit);
    let in_zone =
        matches!(zone, [b'+' | b'-', digits @ ..] if digits.len() == 4 && digits.iter().all(u8::is_ascii_digit));
    spaced && once && in_time && in_zone && words.next().is_none()
}
