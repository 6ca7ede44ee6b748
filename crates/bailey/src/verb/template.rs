//! `bailey template prepare`.

use std::process::ExitCode;

use super::{VerbError, say};
use crate::cli::{Common, TemplateArgs, TemplateVerb};
use crate::{config, template};

pub(super) fn carry_out(args: TemplateArgs, common: &Common) -> Result<ExitCode, VerbError> {
    let TemplateVerb::Prepare { cache } = args.verb;
    let ready = template::ensure(&config::cache(cache)?)?;
    say(common, &ready, || format!("{} {} {}", ready.name, ready.digest, ready.image.display()))
}
