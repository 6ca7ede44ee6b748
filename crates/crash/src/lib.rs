//! Named steps of a launch, of a commit and of what goes on behind them, at which tests kill a process.
//!
//! Without the feature `crash-points`, [`point`] is nothing, and nothing of this crate is in a product. With it, a process
//! that reaches a step stands still there until a test that listens lets it go on. The test kills whom it likes meanwhile,
//! from outside: the process itself, the jail, the first process of a sandbox, a collector. See docs/adr/0012-crash-points.md.

mod points;

pub use points::Point;

#[cfg(feature = "crash-points")]
mod rendezvous;

/// A step is reached: everything before it is done, nothing after it has begun.
///
/// Not between fork and exec. In the server it blocks its thread, which only a build for tests does.
#[cfg(feature = "crash-points")]
pub fn point(point: Point) {
    rendezvous::stand_still(point);
}

/// A step is reached.
#[cfg(not(feature = "crash-points"))]
#[inline]
pub fn point(_point: Point) {}

/// What a process that is started with an environment of its own needs in it, so that its steps are heard of, too.
#[cfg(feature = "crash-points")]
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    rendezvous::environment()
}

/// What a process that is started with an environment of its own needs in it: nothing.
#[cfg(not(feature = "crash-points"))]
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    Vec::new()
}
