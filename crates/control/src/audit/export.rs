//! Verifies an export: the lines of `GET /v1/audit-export`, with nothing else at hand.

use std::io::{BufRead, Read as _};

use bailey_protocol::audit::AuditLine;

use super::signer::{AuditKeys, FORMAT};
use super::verify::{Fault, Report, Verifier};

/// Longest line.
const MAX_LINE: u64 = 1024 * 1024;

/// What was found in an export.
#[derive(Debug)]
pub struct Checked {
    /// About the chain.
    pub report: Report,
    /// The id of the key that signed it.
    pub key: String,
    /// Whether the caller gave that key. If not, it is the export's own, and only the caller can tell whose that is.
    pub is_trusted: bool,
}

/// Why an export cannot even be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It cannot be read.
    #[error("cannot read the export")]
    Read {
        /// Why.
        source: std::io::Error,
    },
    /// Its first line is not the beginning of one.
    #[error("this is no audit export of a format that is known")]
    Format,
}

/// Verifies `export`. Without keys, the one that it names itself is taken.
///
/// # Errors
/// When it cannot be read or is no export.
pub fn verify_export(mut export: impl BufRead, keys: Option<&AuditKeys>) -> Result<Checked, ExportError> {
    let Some(Ok(AuditLine::Begin { format: FORMAT, chain, after, unnamed, key, public_key })) = next(&mut export)?
    else {
        return Err(ExportError::Format);
    };
    let trusted = keys.cloned().unwrap_or_else(|| AuditKeys::of(public_key.as_bytes()));
    let mut verifier = Verifier::new(&chain, after, trusted.clone());
    verifier.expect_unnamed(unnamed);
    let mut number = 1;
    let mut is_ended = false;
    while let Some(line) = next(&mut export)? {
        number += 1;
        match line {
            Ok(_) if is_ended => verifier.fault(Fault::Unreadable { at: number, why: "it comes after the end".into() }),
            Ok(AuditLine::Subject(subject)) => verifier.subject(&subject),
            Ok(AuditLine::Row { row, detail, erased_by }) => verifier.row(&row, detail.as_ref(), erased_by),
            Ok(AuditLine::Checkpoint(checkpoint)) => verifier.checkpoint(&checkpoint),
            Ok(AuditLine::End(end)) => {
                is_ended = true;
                verifier.end(&end, trusted.signed_end(&end));
            }
            Ok(AuditLine::Begin { .. }) => {
                verifier.fault(Fault::Unreadable { at: number, why: "a second beginning".into() });
            }
            Err(why) => verifier.fault(Fault::Unreadable { at: number, why }),
        }
    }
    if !is_ended {
        verifier.fault(Fault::CutOff { last: verifier.last() });
    }
    Ok(Checked { report: verifier.finish(), key, is_trusted: keys.is_some() })
}

/// The next line, if it is one of an export.
fn next(export: &mut impl BufRead) -> Result<Option<Result<AuditLine, String>>, ExportError> {
    let mut line = Vec::new();
    let read = export.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
    match read.map_err(|source| ExportError::Read { source })? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_slice(&line).map_err(|error| error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aws_lc_rs::signature::Ed25519KeyPair;

    use super::*;
    use crate::audit::AuditSigner;
    use crate::audit::chain::genesis;
    use crate::db::AuditHead;

    /// An export without rows, signed by `signer`.
    fn export(signer: &AuditSigner) -> String {
        let head = AuditHead { chain: "operator".to_owned(), seq: 0, hash: genesis("operator") };
        let lines = [signer.begin("operator", 0, false), AuditLine::End(signer.end(head, 0, false, 1))];
        lines.map(|line| serde_json::to_string(&line).unwrap()).join("\n")
    }

    #[test]
    fn an_export_is_not_signed_by_a_key_under_anothers_id() {
        let server = AuditSigner::ephemeral().unwrap();
        let checked = verify_export(export(&server).as_bytes(), None).unwrap();
        assert_eq!((checked.report.faults, checked.key.as_str()), (vec![], server.key()));
        let own = Ed25519KeyPair::generate().unwrap();
        let forged = AuditSigner::new(server.key().to_owned(), Arc::new(own));
        let checked = verify_export(export(&forged).as_bytes(), None).unwrap();
        assert!(!checked.report.is_whole(), "whoever compares the key's id takes it for the server's");
    }
}
