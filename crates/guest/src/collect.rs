//! The collector: what a run changed below one mount, as a change stream.
//!
//! It runs after everything else in the sandbox is dead, in the sandbox's own user namespace, and walks the upper
//! layer for what was touched. Overlay's own marks are invisible there, so it does not look for them: each touched
//! path is compared as it is in the merged view with what it was in the lower layer. Every path is opened below a
//! descriptor, and no link, magic link or other mount is followed.
//!
//! Order: depth first, parents before children, and within a folder first its entries by name, then its subfolders
//! by name. Memory holds the names of the folders on the way, and nothing of the files.

use std::os::fd::OwnedFd;

use anyhow::Context;
use bailey_protocol::guest::{COLLECT_LOWER_FD, COLLECT_MERGED_FD, COLLECT_OUT_FD, COLLECT_UPPER_FD};
use bailey_sys::descriptors::inherit;

mod layer;
mod output;
pub(crate) mod walk;

/// Collects from the inherited descriptors.
///
/// # Errors
/// When a descriptor is missing or the stream cannot be completed. The stream then has no end, or says so.
pub fn main() -> anyhow::Result<()> {
    let take = |number: i32, what: &'static str| inherit(number).with_context(|| format!("take over {what}"));
    let output = take(COLLECT_OUT_FD, "the output pipe")?;
    let layers = walk::Layers {
        upper: take(COLLECT_UPPER_FD, "the upper layer")?,
        merged: take(COLLECT_MERGED_FD, "the merged view")?,
        lower: take(COLLECT_LOWER_FD, "the lower layer")?,
    };
    collect(layers, output)
}

/// Writes the change stream of these layers.
pub(crate) fn collect(layers: walk::Layers, output: OwnedFd) -> anyhow::Result<()> {
    let disk = rustix::fs::fstatvfs(&layers.upper).context("ask for the size of the upper layer's file system")?;
    let mut output = output::Output::new(output, disk.f_blocks.saturating_mul(disk.f_frsize));
    let result = walk::walk(&layers, &mut output);
    output.finish(&result).context("finish the change stream")?;
    Ok(result?)
}
