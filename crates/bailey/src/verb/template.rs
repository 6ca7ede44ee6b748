//! `bailey template prepare`.

use std::process::ExitCode;

use super::{VerbError, say};
use crate::cli::{Common, PreparedWall, TemplateArgs, TemplateVerb};
use crate::serve::Binaries;
use crate::template::machine;
use crate::template::sentry::{self, Runsc};
use crate::{config, template};

pub(super) fn carry_out(args: TemplateArgs, common: &Common) -> Result<ExitCode, VerbError> {
    let TemplateVerb::Prepare { wall, cache } = args.verb;
    let cache = config::cache(cache)?;
    let ready = template::ensure(&cache)?;
    match wall {
        None => say(common, &ready, || format!("{} {} {}", ready.name, ready.digest, ready.image.display())),
        Some(PreparedWall::Microvm) => {
            let kernel = config::guest_kernel()?;
            let ready = machine::ensure(&cache, &ready, &Binaries::find()?.guest, kernel.as_deref())?;
            say(common, &ready, || format!("{} {} {}", ready.wall, ready.digest, ready.image.display()))
        }
        Some(PreparedWall::Gvisor) => {
            let ready = sentry::ensure(&cache, &ready, &Binaries::find()?.guest, &Runsc::find(None)?)?;
            say(common, &ready, || format!("{} {} {}", ready.wall, ready.digest, ready.image.display()))
        }
    }
}
