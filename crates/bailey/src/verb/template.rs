//! `bailey template prepare`.

use std::process::ExitCode;

use super::VerbError;
use crate::cli::{TemplateArgs, TemplateVerb};
use crate::{config, template, terminal};

pub(super) fn carry_out(args: TemplateArgs, json: bool) -> Result<ExitCode, VerbError> {
    let TemplateVerb::Prepare { cache } = args.verb;
    let ready = template::ensure(&config::cache(cache)?)?;
    if json {
        terminal::json(&ready)?;
    } else {
        terminal::line(&format!("{} {} {}", ready.name, ready.digest, ready.image.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
