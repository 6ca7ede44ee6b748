//! The first thing after a start: runs that an earlier life of the server left are over.

use super::decide::blocking;
use crate::api_error::ApiError;
use crate::control::Control;
use crate::db::RunEnd;

/// Ends every run that was going, in the database and in its log.
pub(crate) async fn end_lost_runs(control: &Control) -> Result<(), ApiError> {
    let now = control.now_ms();
    let lost = control.db().abandon_running(now).await?;
    if lost.is_empty() {
        return Ok(());
    }
    tracing::warn!(runs = lost.len(), "runs of an earlier life are over");
    let logs = control.logs().clone();
    blocking(move || {
        for (tenant, run) in lost {
            // A log that cannot be completed now is completed for its first reader.
            if let Err(error) = logs.complete(&tenant, &run, now, RunEnd::node_restarted().into()) {
                tracing::warn!(%run, error = &error as &dyn std::error::Error, "the end is not in the log");
            }
        }
        Ok(())
    })
    .await
}
