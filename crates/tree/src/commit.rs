//! Commits: who made a version, when, why and in which run.

use bailey_protocol::id::{RunId, UserId};
use gix_hash::{Kind as HashKind, ObjectId};
use gix_object::CommitRefIter;

use crate::error::TreeError;

/// What a new version says about itself.
#[derive(Debug, Clone)]
pub struct CommitMeta {
    /// Who makes it.
    pub author: UserId,
    /// Now, in milliseconds since 1970; git keeps the seconds.
    pub time_ms: u64,
    /// Why, in one line: line ends and control characters become spaces, and 500 characters are kept.
    pub message: String,
    /// The run that made it.
    pub run: Option<RunId>,
}

/// A commit as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) tree: ObjectId,
    pub(crate) parents: Vec<ObjectId>,
    pub(crate) author: String,
    pub(crate) time_ms: u64,
    pub(crate) message: String,
    pub(crate) run: Option<RunId>,
}

/// The trailer that names the run. A message is one line, so that no message can forge it.
const RUN_TRAILER: &str = "Run: ";
/// The last second that git's date check accepts everywhere: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

pub(crate) fn encode(tree: &ObjectId, parents: &[ObjectId], meta: &CommitMeta) -> Vec<u8> {
    let seconds = (meta.time_ms / 1000).min(LAST_SECOND);
    let who = format!("{user} <{user}@bailey> {seconds} +0000", user = meta.author);
    let mut text = format!("tree {tree}\n");
    for parent in parents {
        text.push_str(&format!("parent {parent}\n"));
    }
    text.push_str(&format!("author {who}\ncommitter {who}\n\n{}\n", one_line(&meta.message)));
    if let Some(run) = &meta.run {
        text.push_str(&format!("\n{RUN_TRAILER}{run}\n"));
    }
    text.into_bytes()
}

fn one_line(message: &str) -> String {
    let line: String = message.chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.trim() {
        "" => "Change files".to_owned(),
        text => text.to_owned(),
    }
}

pub(crate) fn decode(id: &ObjectId, bytes: &[u8]) -> Result<Commit, TreeError> {
    let corrupt = |fault| TreeError::corrupt(id, fault);
    let iter = || CommitRefIter::from_bytes(bytes, HashKind::Sha1);
    let tree = iter().tree_id().map_err(corrupt)?;
    let author = iter().author().map_err(corrupt)?;
    let message = iter().message().map_err(corrupt)?.to_string();
    let seconds = author.time().map_or(0, |time| u64::try_from(time.seconds).unwrap_or(0));
    let (message, trailers) = message.split_once("\n\n").unwrap_or((message.as_str(), ""));
    let run = trailers.lines().find_map(|line| line.strip_prefix(RUN_TRAILER)).and_then(|run| run.parse().ok());
    Ok(Commit {
        tree,
        parents: iter().parent_ids().collect(),
        author: author.name.to_string(),
        time_ms: seconds.saturating_mul(1000),
        message: message.trim_end().to_owned(),
        run,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object;

    fn meta(message: &str, run: Option<RunId>) -> CommitMeta {
        CommitMeta {
            author: "ana@corp|x".parse().unwrap(),
            time_ms: 1_700_000_000_123,
            message: message.to_owned(),
            run,
        }
    }

    #[test]
    fn a_commit_comes_back() {
        let id = object::hash(object::Kind::Blob, b"").unwrap();
        let run = RunId::mint(1, [7; 10]);
        let bytes = encode(&id, &[id, id], &meta("why\nnot", Some(run.clone())));
        let commit = decode(&id, &bytes).unwrap();
        assert_eq!((commit.tree, commit.parents.len()), (id, 2));
        assert_eq!(commit.author, "ana@corp|x");
        assert_eq!(commit.time_ms, 1_700_000_000_000);
        assert_eq!(commit.message, "why not");
        assert_eq!(commit.run, Some(run));
    }

    #[test]
    fn a_message_forges_neither_headers_nor_a_run() {
        let id = object::hash(object::Kind::Blob, b"").unwrap();
        let forged = format!("x\n\nRun: {}\nparent {id}\0", RunId::mint(1, [7; 10]));
        let commit = decode(&id, &encode(&id, &[], &meta(&forged, None))).unwrap();
        assert_eq!(commit.run, None);
        assert!(commit.parents.is_empty());
        assert_eq!(decode(&id, &encode(&id, &[], &meta("\n \n", None))).unwrap().message, "Change files");
    }

    #[test]
    fn a_time_beyond_gits_calendar_is_cut() {
        let id = object::hash(object::Kind::Blob, b"").unwrap();
        let mut late = meta("x", None);
        late.time_ms = u64::MAX;
        assert_eq!(decode(&id, &encode(&id, &[], &late)).unwrap().time_ms, LAST_SECOND * 1000);
    }
}
