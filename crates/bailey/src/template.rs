//! Templates: what a sandbox starts from.
//!
//! One read-only erofs image per recipe, named by its hash, in a cache that all servers of a host share:
//! `CACHE/templates/{sha256}.erofs`, and beside it `base.json`, which says which image the current recipe made.
//! Machines and gVisor's sandboxes are made from images of their own, in the same place: see [`machine`] and [`sentry`].
//! Start with [`ensure`].

mod build;
mod cache;
pub(crate) mod machine;
mod recipe;
pub(crate) mod sentry;

use std::path::{Path, PathBuf};

use bailey_protocol::id::TemplateDigest;
use serde::Serialize;

pub(crate) use cache::DEFAULT_CACHE;
pub(crate) use recipe::NAME;

/// A prepared template.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Template {
    /// How runs name it.
    pub(crate) name: &'static str,
    /// SHA-256 of the image.
    pub(crate) digest: TemplateDigest,
    /// SHA-256 of what made it.
    pub(crate) recipe: String,
    /// The image.
    pub(crate) image: PathBuf,
}

/// Why there is no template.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("preparing a template needs root: run it with sudo")]
    NotRoot,
    #[error("`{tool}` is missing: install it with `apt-get install {package}`")]
    MissingTool { tool: &'static str, package: &'static str },
    #[error("apt has no source for Debian {suite} here: configure one and run `apt-get update`")]
    NoSources { suite: &'static str },
    #[error(transparent)]
    Kernel(#[from] machine::KernelError),
    #[error("{step} failed:\n{output}")]
    Step { step: &'static str, output: String },
    #[error("cannot {action} `{path}`: {source}")]
    Cache { action: &'static str, path: PathBuf, source: std::io::Error },
}

impl TemplateError {
    fn cache(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Cache { action, path: path.to_owned(), source }
    }
}

/// The `base` template from the cache, built first if this recipe never was on this host.
///
/// # Errors
/// Names what is missing, or the step that failed.
pub(crate) fn ensure(cache: &Path) -> Result<Template, TemplateError> {
    if let Some(ready) = cache::find(cache) {
        return Ok(ready);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(TemplateError::NotRoot);
    }
    let lock = cache::lock(cache)?;
    // Another process may have built it while this one waited.
    if let Some(ready) = cache::find(cache) {
        return Ok(ready);
    }
    build::check_tools()?;
    let scratch = lock.scratch()?;
    let image = build::image(scratch.path())?;
    lock.publish(&image)
}
