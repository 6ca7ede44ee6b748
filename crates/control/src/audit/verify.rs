//! Says whether a chain is whole, and where it breaks: rows that were edited, removed, reordered or cut off, names and
//! details that are not those of then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bailey_protocol::audit::{AuditCheckpoint, AuditDetail, AuditEnd, AuditRow, AuditSubject, Digest};
use serde::Serialize;

use super::chain::{detail_commitment, genesis, pseudonym, row_hash};
use super::signer::AuditKeys;

/// Most faults that are told of one chain.
const MAX_FAULTS: usize = 100;
/// How far from its place an edited row is looked for.
const NEARBY: u64 = 64;
/// How a row begins its outcome that says how many details it let be forgotten.
pub(crate) const ERASED: &str = "erased=";

/// What is wrong with a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Fault {
    /// A row's content is not what its hash is of.
    Edited {
        /// The row.
        seq: u64,
    },
    /// Rows are missing.
    Removed {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// A row is not in its place.
    Reordered {
        /// Its number now.
        seq: u64,
    },
    /// A row does not follow the one before: that one was replaced, or this one was put in.
    Unlinked {
        /// The row.
        seq: u64,
    },
    /// Rows at the end are missing that the server signed for.
    Truncated {
        /// The last row that is there.
        last: u64,
        /// The last that was signed for.
        signed: u64,
    },
    /// The export breaks off before its end.
    CutOff {
        /// The last row that is there.
        last: u64,
    },
    /// The chain was written anew: its row is not the one that the server signed for.
    Rewritten {
        /// The row.
        seq: u64,
    },
    /// A checkpoint is not signed by a key that is trusted.
    Unsigned {
        /// The row that it claims to seal.
        seq: u64,
    },
    /// Checkpoints that the operator's chain sealed together are not all there as they were: a chain was cut off
    /// together with its checkpoints.
    RoundBroken {
        /// The row of the operator's chain.
        seq: u64,
    },
    /// What the row says apart from the chain is not what it commits to.
    DetailEdited {
        /// The row.
        seq: u64,
    },
    /// What the row commits to is gone, and no row says that it was to be forgotten.
    DetailRemoved {
        /// The row.
        seq: u64,
    },
    /// More or fewer details are gone than this row let be forgotten.
    ErasedOther {
        /// The row.
        seq: u64,
        /// As it says.
        said: u64,
        /// As it is.
        found: u64,
    },
    /// A pseudonym was given to another name.
    SubjectEdited {
        /// The pseudonym.
        id: Digest,
    },
    /// What is there cannot be read.
    Unreadable {
        /// The row, or the line of an export.
        at: u64,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edited { seq } => write!(f, "row {seq} was edited"),
            Self::Removed { from, to } if from == to => write!(f, "row {from} was removed"),
            Self::Removed { from, to } => write!(f, "rows {from} to {to} were removed"),
            Self::Reordered { seq } => write!(f, "row {seq} is not in its place: rows were reordered"),
            Self::Unlinked { seq } => {
                write!(f, "row {seq} does not follow the row before it: that one was replaced, or this one put in")
            }
            Self::Truncated { last, signed } => {
                write!(f, "the end was cut off: the last row is {last}, the server signed for {signed}")
            }
            Self::CutOff { last } => write!(f, "the export breaks off after row {last}"),
            Self::Rewritten { seq } => write!(f, "row {seq} is not the one that the server signed for"),
            Self::Unsigned { seq } => write!(f, "what seals row {seq} is not signed by a trusted key"),
            Self::RoundBroken { seq } => {
                write!(f, "checkpoints that row {seq} seals are gone: a chain was cut off together with them")
            }
            Self::DetailEdited { seq } => write!(f, "what row {seq} was about was edited"),
            Self::DetailRemoved { seq } => write!(f, "what row {seq} was about was removed, and no row says why"),
            Self::ErasedOther { seq, said, found } => {
                write!(f, "row {seq} let {said} details be forgotten, {found} are gone")
            }
            Self::SubjectEdited { id } => write!(f, "pseudonym {id} was given to another name"),
            Self::Unreadable { at, why } => write!(f, "row or line {at} cannot be read: {why}"),
        }
    }
}

/// What was found about one chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The chain.
    pub chain: String,
    /// Rows that are there.
    pub rows: u64,
    /// The number of the last.
    pub last: u64,
    /// The hash of the last.
    pub head: Digest,
    /// The last row that a trusted key signed for; what comes after it could be cut off unseen.
    pub signed: u64,
    /// Details that were forgotten, as rows of the chain say.
    pub forgotten: u64,
    /// Details that an export without names leaves out: nothing is said about those.
    pub withheld: u64,
    /// What is wrong; at most 100.
    pub faults: Vec<Fault>,
    /// Faults beyond those.
    pub more_faults: u64,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Takes a chain row by row, in order. A checkpoint comes after the row that it seals.
#[derive(Debug)]
pub struct Verifier {
    keys: AuditKeys,
    after: u64,
    /// Whether names and details are left out.
    unnamed: bool,
    report: Report,
    /// Whether the last row is not what it was: then what follows need not follow it.
    doubt: bool,
    /// Rows that were skipped.
    gaps: Vec<(u64, u64)>,
    /// Signed heads that have not come yet.
    ahead: Option<u64>,
    /// Details that each row let be forgotten, as found.
    erased: BTreeMap<u64, u64>,
    /// As said.
    receipts: BTreeMap<u64, u64>,
    subjects: BTreeSet<Digest>,
}

impl Verifier {
    /// Begins with the row that follows `after`; 0 is the beginning of the chain.
    #[must_use]
    pub fn new(chain: &str, after: u64, keys: AuditKeys) -> Self {
        let report = Report {
            chain: chain.to_owned(),
            rows: 0,
            last: after,
            head: genesis(chain),
            signed: 0,
            forgotten: 0,
            withheld: 0,
            faults: Vec::new(),
            more_faults: 0,
        };
        let (gaps, erased, receipts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let subjects = BTreeSet::new();
        Self { keys, after, unnamed: false, report, doubt: false, gaps, ahead: None, erased, receipts, subjects }
    }

    /// Takes it as right that names and details are left out, or not.
    pub fn expect_unnamed(&mut self, unnamed: bool) {
        self.unnamed = unnamed;
    }

    /// The number of the last row.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.report.last
    }

    /// The hash of the last row.
    #[must_use]
    pub fn head(&self) -> Digest {
        self.report.head
    }

    /// Notes a fault that is not seen from a single chain.
    pub fn fault(&mut self, fault: Fault) {
        if self.report.faults.len() < MAX_FAULTS {
            self.report.faults.push(fault);
        } else {
            self.report.more_faults += 1;
        }
    }

    /// A pseudonym and whose it is.
    pub fn subject(&mut self, subject: &AuditSubject) {
        let id = pseudonym(&self.report.chain, subject.salt.as_bytes(), &subject.kind, &subject.name);
        if id != subject.id {
            self.fault(Fault::SubjectEdited { id: subject.id });
        }
        self.subjects.insert(subject.id);
    }

    /// The next row, what it commits to, and where that is gone the row that says so.
    pub fn row(&mut self, row: &AuditRow, detail: Option<&AuditDetail>, erased_by: Option<u64>) {
        let seq = row.seq;
        let expected = self.report.last + 1;
        self.report.rows += 1;
        if seq < expected {
            self.filled(seq);
            self.fault(Fault::Reordered { seq });
            return;
        }
        if seq > expected {
            self.gaps.push((expected, seq - 1));
        }
        let is_itself = row.chain == self.report.chain && row_hash(row) == row.hash;
        let is_linked = row.prev == self.report.head || (self.report.rows == 1 && self.after > 0);
        if !is_itself {
            let moved = is_from_nearby(row);
            self.fault(if moved { Fault::Reordered { seq } } else { Fault::Edited { seq } });
        } else if seq == expected && !is_linked && !self.doubt {
            self.fault(Fault::Unlinked { seq });
        }
        self.doubt = !is_itself;
        self.detail(row, detail, erased_by);
        (self.report.last, self.report.head) = (seq, row.hash);
    }

    fn detail(&mut self, row: &AuditRow, detail: Option<&AuditDetail>, erased_by: Option<u64>) {
        let seq = row.seq;
        if let Some(count) = row.outcome.strip_prefix(ERASED).and_then(|count| count.parse().ok()) {
            self.receipts.insert(seq, count);
        }
        match (detail, erased_by) {
            (Some(detail), None) if detail_commitment(detail) == row.detail => {}
            (Some(_), _) => self.fault(Fault::DetailEdited { seq }),
            (None, Some(by)) => {
                self.report.forgotten += 1;
                *self.erased.entry(by).or_default() += 1;
            }
            (None, None) if self.unnamed => self.report.withheld += 1,
            (None, None) => self.fault(Fault::DetailRemoved { seq }),
        }
    }

    /// The server's word about the last row.
    pub fn checkpoint(&mut self, checkpoint: &AuditCheckpoint) {
        let seq = checkpoint.seq;
        if checkpoint.chain != self.report.chain || !self.keys.signed_checkpoint(checkpoint) {
            self.fault(Fault::Unsigned { seq });
        } else if seq > self.report.last {
            self.ahead = self.ahead.max(Some(seq));
        } else {
            self.report.signed = self.report.signed.max(seq);
            if seq < self.report.last {
                self.fault(Fault::Reordered { seq });
            } else if checkpoint.hash != self.report.head {
                self.fault(Fault::Rewritten { seq });
            }
        }
    }

    /// The server's word that an export is whole.
    pub fn end(&mut self, end: &AuditEnd, is_signed: bool) {
        let (last, seq) = (self.report.last, end.seq);
        if end.chain != self.report.chain || end.after != self.after || end.unnamed != self.unnamed || !is_signed {
            self.fault(Fault::Unsigned { seq });
        } else if seq > last {
            self.ahead = self.ahead.max(Some(seq));
        } else if seq < last || end.hash != self.report.head {
            self.fault(Fault::Rewritten { seq });
        } else {
            self.report.signed = seq;
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Report {
        for (from, to) in std::mem::take(&mut self.gaps) {
            self.fault(Fault::Removed { from, to });
        }
        let last = self.report.last;
        if let Some(signed) = self.ahead.filter(|signed| *signed > last) {
            self.fault(Fault::Truncated { last, signed });
        }
        let said = std::mem::take(&mut self.receipts);
        let found = std::mem::take(&mut self.erased);
        for seq in said.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            // What came before the first row here, or comes after the last, is not seen.
            let is_seen = *seq <= last && *seq > self.after && self.after == 0;
            let (said, found) = (said.get(seq).copied().unwrap_or(0), found.get(seq).copied().unwrap_or(0));
            if is_seen && said != found {
                self.fault(Fault::ErasedOther { seq: *seq, said, found });
            }
        }
        self.report
    }

    /// A row has come that was taken to be removed.
    fn filled(&mut self, seq: u64) {
        let Some(at) = self.gaps.iter().position(|(from, to)| (*from..=*to).contains(&seq)) else { return };
        let (from, to) = self.gaps.swap_remove(at);
        let rest = [(from, seq - 1), (seq + 1, to)];
        self.gaps.extend(rest.into_iter().filter(|(from, to)| from <= to));
    }
}

/// Whether a row whose hash does not fit would fit with another number: then it was moved.
fn is_from_nearby(row: &AuditRow) -> bool {
    let mut moved = row.clone();
    (row.seq.saturating_sub(NEARBY).max(1)..=row.seq.saturating_add(NEARBY)).any(|seq| {
        moved.seq = seq;
        seq != row.seq && row_hash(&moved) == row.hash
    })
}

#[cfg(test)]
mod tests;
