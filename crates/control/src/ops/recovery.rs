//! The first thing after a start: runs that an earlier life of the server left are over.

use crate::api_error::ApiError;
use crate::control::Control;
use crate::db::RunEnd;
use crate::threads::blocking;

/// Ends every run that was going, in the database and in its log, and takes away the logs of those that never were.
pub(crate) async fn end_lost_runs(control: &Control) -> Result<(), ApiError> {
    let now = control.now_ms();
    let lost = control.db().abandon_running(now).await?;
    if !lost.is_empty() {
        tracing::warn!(runs = lost.len(), "runs of an earlier life are over");
    }
    let logs = control.logs().clone();
    blocking(control.threads(), move || {
        for (tenant, run) in lost {
            // A log that cannot be completed now is completed for its first reader.
            if let Err(error) = logs.complete(&tenant, &run, now, RunEnd::node_restarted().into()) {
                tracing::warn!(%run, error = &error as &dyn std::error::Error, "the end is not in the log");
            }
        }
        // They take no room, and the next start looks again.
        if let Err(error) = logs.sweep() {
            tracing::warn!(error = &error as &dyn std::error::Error, "empty logs are left");
        }
        Ok(())
    })
    .await
}
