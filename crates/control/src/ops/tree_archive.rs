//! Handing out a folder as an archive.

use std::io::Write;
use std::time::Duration;

use bailey_policy::{Denied, ReadAction};
use bailey_protocol::id::VersionId;
use bailey_tree::Store;
use bailey_tree::archive::Format;

use super::readable::Readable;
use super::tree::ReadAsk;
use super::tree_access::{self, Opened};
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::live_guard::LiveGuard;
use crate::pace::Pace;
use crate::turns::Turn;

/// How long a request waits for a thread that writes its archive.
const PATIENCE: Duration = Duration::from_secs(10);

/// An archive that was allowed and has not been written yet.
#[derive(Debug)]
pub struct Packing {
    opened: Opened,
    version: VersionId,
    format: Format,
    watched: Watched,
    _turn: Turn,
}

/// An archive that is being sent, and when it has to be decided on again.
#[derive(Debug, Clone)]
pub struct Watched {
    guard: LiveGuard,
    ask: ReadAsk,
    store: Store,
    version: VersionId,
}

/// Prepares what is at and below a path for being packed. Everything is decided before the first byte: an archive cannot
/// say that something is missing in it.
///
/// # Errors
/// When reading is denied, at the path or below it, or nothing is there.
pub async fn pack(control: &Control, caller: &Caller, ask: ReadAsk, format: Format) -> Result<Packing, ApiError> {
    let guard = control.early_guard(&caller.principal.tenant);
    let permit = control.may_read(caller, ReadAction::Read, &ask.path, &ask.revision).await?;
    let list = control.may_read(caller, ReadAction::List, &ask.path, &ask.revision).await?;
    let readable = Readable::new(control, caller, ReadAction::Read, &ask.path, &ask.revision).await?;
    let result = async {
        let turn = control.downloads().take(&caller.principal.tenant, PATIENCE).await.ok_or_else(too_many)?;
        let opened = tree_access::open(control, &permit).await?;
        // Only until all is decided: who reads slowly keeps nobody from asking.
        let asks = readable.decides();
        let work = move |pace: &Pace| {
            let missing = || tree_access::nothing_there(&opened.path);
            let version = opened.version.clone().ok_or_else(missing)?;
            opened.store.entry(Some(&version), opened.path.inner())?.ok_or_else(missing)?;
            readable.all(pace, &opened.store, &version)?;
            let watched = Watched { guard, ask, store: opened.store.clone(), version: version.clone() };
            Ok(Packing { opened, version, format, watched, _turn: turn })
        };
        control.asking_many(caller, asks, work).await
    };
    control.audited(caller, [permit.grant(), list.grant()], result.await).await
}

fn too_many() -> ApiError {
    let message = "too many archives are being read at once";
    ApiError::new(ErrorKind::Exhausted, "too_many_downloads", message, "Try again after the time in `Retry-After`.")
}

impl Packing {
    /// The version that is packed.
    #[must_use]
    pub fn version(&self) -> &VersionId {
        &self.version
    }

    /// Writes the archive. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read, or `out` fails.
    pub fn write(self, out: &mut dyn Write) -> Result<(), ApiError> {
        let Opened { store, path, .. } = &self.opened;
        self.opened.named(store.archive(&self.version, path.inner(), self.format, out))
    }

    /// What is to be watched while it is written.
    #[must_use]
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }
}

impl Watched {
    /// Waits until policy no longer lets the caller read all that is packed. The denial is on the audit.
    ///
    /// CANCEL: no further path is asked about.
    pub async fn until_unreadable(self, control: Control, caller: Caller) -> Denied {
        let Self { guard, ask, store, version } = &self;
        let again = || async {
            for action in [ReadAction::Read, ReadAction::List] {
                if let Err(denied) = control.ask_to_read(&caller, action, &ask.path, &ask.revision).await? {
                    return Ok(Some(denied));
                }
            }
            let readable = Readable::again(&control, &caller, ReadAction::Read, &ask.path, &ask.revision).await?;
            let (store, version) = (store.clone(), version.clone());
            control.asking_many(&caller, false, move |pace| readable.first_denied(pace, &store, &version)).await
        };
        let denied = guard.clone().until_refused(caller.principal.tenant.as_str(), again).await;
        control.record_denial(&caller, &denied).await;
        denied
    }
}
