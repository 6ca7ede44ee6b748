//! The task that has heads of chains signed: once many rows have come or some time has passed, and at the end.

use std::time::Duration;

use bailey_protocol::audit::AuditCheckpoint;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::chain::Chain;
use crate::api_error::ApiError;
use crate::control::Control;

/// How often it looks.
const LOOK: Duration = Duration::from_secs(2);
/// Time after which what has come is signed for.
const AGE: Duration = Duration::from_secs(60);
/// Rows after which what has come is signed for.
const ROWS: u64 = 1000;

/// Signs until `stop`, and once more then. What an earlier life of the server left unsigned is signed first.
pub(crate) async fn keep(control: Control, stop: CancellationToken) {
    let mut sealed = control.db().audit_appended();
    let mut since = Instant::now();
    report(seal(&control).await);
    loop {
        let stopped = tokio::time::timeout(LOOK, stop.cancelled()).await.is_ok();
        let appended = control.db().audit_appended();
        let rows = appended.saturating_sub(sealed);
        if rows == 0 {
            since = Instant::now();
        } else if is_due(rows, since.elapsed(), stopped) {
            if report(seal(&control).await) {
                sealed = appended;
            }
            since = Instant::now();
        }
        if stopped {
            return;
        }
    }
}

/// Whether what has come is signed for now.
fn is_due(rows: u64, age: Duration, stopped: bool) -> bool {
    rows > 0 && (stopped || rows >= ROWS || age >= AGE)
}

fn report(outcome: Result<(), ApiError>) -> bool {
    if let Err(error) = &outcome {
        tracing::error!(%error, cause = error.cause_chain(), "the audit's heads are not signed");
    }
    outcome.is_ok()
}

/// Signs every head that is not signed yet, and the operator's chain over all of them.
pub(crate) async fn seal(control: &Control) -> Result<(), ApiError> {
    let _turn = control.audit_signer().turn().await;
    let heads = control.db().audit_unsealed().await?;
    if heads.is_empty() {
        return Ok(());
    }
    let (signer, now) = (control.audit_signer().clone(), control.now_ms());
    let operator = Chain::Operator.to_string();
    let tenants = heads.into_iter().filter(|head| head.chain != operator);
    let checkpoints: Vec<AuditCheckpoint> =
        tenants.map(|head| signer.checkpoint(&head.chain, head.seq, head.hash, now)).collect();
    let sealed = control.db().audit_seal(checkpoints, signer, now).await?;
    // A second place for the head, beside the database: whoever keeps the log can tell that the end was cut off.
    tracing::info!(
        seq = sealed.seq,
        time_ms = sealed.time_ms,
        hash = %sealed.hash,
        key = sealed.key,
        signature = %sealed.signature,
        "audit checkpoint"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_are_signed_for_at_once_and_few_after_a_minute_or_at_the_end() {
        let young = AGE - LOOK;
        for (rows, age, stopped, due) in [
            (0, AGE, true, false),
            (1, young, false, false),
            (1, AGE, false, true),
            (1, young, true, true),
            (999, young, false, false),
            (1000, Duration::ZERO, false, true),
        ] {
            assert_eq!(is_due(rows, age, stopped), due, "{rows} rows after {age:?}");
        }
        assert_eq!(AGE, Duration::from_secs(60));
    }
}
