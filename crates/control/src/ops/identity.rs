//! Who may ask: users and tenants disabled and enabled, API keys, tokens exchanged, and what is written down of those seen.

pub mod accounts;
pub mod exchange;
pub mod forget;
pub mod keys;
pub mod standing;
mod system;
pub mod webhook;

use std::time::Duration;

use bailey_protocol::id::TenantId;

use crate::api_error::ApiError;
use crate::control::Control;

/// Time between two times that what was seen is written down.
const NOTES: Duration = Duration::from_secs(5);

/// Writes down who was seen, again and again.
pub(crate) async fn keep_notes(control: Control) {
    loop {
        tokio::time::sleep(NOTES).await;
        // What could not be written is tried again, and was told.
        drop(write_notes(&control).await);
    }
}

/// Writes down who was seen and which keys were used. Once it is done, what is known of anybody is in the database.
///
/// CANCEL: goes on.
///
/// # Errors
/// When who was seen cannot be written down: it is tried again.
pub(crate) async fn write_notes(control: &Control) -> Result<(), ApiError> {
    let of = control.clone();
    let task = async move {
        let standing = of.standing();
        // One at a time: what another has taken is written as well, before this says so.
        let _turn = standing.notes_turn.lock().await;
        let used = standing.keys.take_uses();
        if !used.is_empty()
            && let Err(error) = of.db().note_key_use(used).await
        {
            tracing::warn!(%error, "the use of keys is not written down");
        }
        let seen = standing.seen.take(of.now_ms());
        if seen.is_empty() {
            return Ok(());
        }
        let written = of.db().note_subjects(seen.clone()).await;
        if let Err(error) = &written {
            tracing::warn!(%error, "who was seen is not written down");
            standing.seen.again(&seen);
        }
        Ok(written?)
    };
    control.own(task).await.map_err(ApiError::internal)?
}

/// Changes who may ask: one change at a time, so that memory follows the database, and to its end whoever waits for it.
/// However many changes a tenant asks for, one of them waits beside those of others and of the operator (`None`).
async fn change<T: Send + 'static>(
    control: &Control,
    whose: Option<&TenantId>,
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let standing = std::sync::Arc::clone(control.standing());
    let whose = whose.cloned();
    let task = control.own(async move {
        let _turn =
            standing.turn.wait(&whose).await.ok_or_else(|| ApiError::internal("no turns are given any more"))?;
        work.await
    });
    task.await.map_err(ApiError::internal)?
}
