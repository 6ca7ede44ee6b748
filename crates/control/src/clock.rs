//! Time and chance, handed in: the only place in control that reads the clock or draws randomness.

use std::fmt;
use std::sync::Arc;

/// Tells the time. Clones tell the same time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn system() -> Self {
        Self(Arc::new(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        }))
    }

    /// A clock that asks `now_ms`, for tests and simulations.
    #[must_use]
    pub fn from_fn(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes")]
pub struct RngError;

/// Draws random bytes. Clones draw from the same source.
#[derive(Clone)]
pub struct Rng(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) -> Result<(), RngError> + Send + Sync;

impl Rng {
    /// The system's cryptographic source.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(|bytes| aws_lc_rs::rand::fill(bytes).map_err(|_unspecified| RngError)))
    }

    /// A source that asks `fill`, for tests and simulations.
    #[must_use]
    pub fn from_fn(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |bytes| {
            fill(bytes);
            Ok(())
        }))
    }

    /// `N` fresh bytes.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn bytes<const N: usize>(&self) -> Result<[u8; N], RngError> {
        let mut bytes = [0; N];
        (self.0)(&mut bytes)?;
        Ok(bytes)
    }
}

impl fmt::Debug for Rng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rng")
    }
}
