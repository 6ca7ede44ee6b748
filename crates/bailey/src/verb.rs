//! One module per verb, or per group of verbs that speak of one thing.

mod run;
mod runs;
mod template;
mod token;
mod tree;

use std::process::ExitCode;

use crate::cli::{Cli, Common, Verb};
use crate::client::{Client, ClientError};
use crate::config::{ClientConfig, ConfigError};
use crate::serve::ServeError;
use crate::template::TemplateError;
use crate::{doctor, exit, serve, terminal};
use token::TokenError;

/// Why a verb was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerbError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the server cannot go on: {0:#}")]
    Supervised(#[from] anyhow::Error),
    #[error("cannot read `{path}`: {source}")]
    ReadLocal { path: String, source: std::io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(#[from] std::io::Error),
    #[error("{what}")]
    Input { what: &'static str },
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error("the run `{run}` is not over, but its events broke off: {source}")]
    Lost { run: String, source: ClientError },
}

/// Carries out what the command line asks for.
pub(crate) fn carry_out(cli: Cli) -> ExitCode {
    let Cli { common, verb } = cli;
    let json = common.json;
    let is_run = matches!(verb, Verb::Run(_));
    match dispatch(common, verb) {
        Ok(code) => code,
        Err(error) => {
            report(&error, json);
            ExitCode::from(if is_run { exit::NO_RESULT } else { exit::FAILED })
        }
    }
}

fn dispatch(common: Common, verb: Verb) -> Result<ExitCode, VerbError> {
    match verb {
        Verb::Serve(args) if args.supervised => Ok(serve::supervised::supervised()?),
        Verb::Serve(args) => match serve::launch::launch(args, common.json)? {},
        Verb::Doctor(args) => doctor::carry_out(args.cache, common.json),
        Verb::Token(args) => token::carry_out(args, common.json),
        Verb::Template(args) => template::carry_out(args, common.json),
        Verb::Run(args) => block_on(run::carry_out(*args, common)),
        Verb::Ls(args) => block_on(tree::list(args, common)),
        Verb::Cat(args) => block_on(tree::cat(args, common)),
        Verb::Put(args) => block_on(tree::put(args, common)),
        Verb::Rm(args) => block_on(tree::remove(args, common)),
        Verb::Log(args) => block_on(tree::log(args, common)),
        Verb::Diff(args) => block_on(tree::diff(args, common)),
        Verb::Runs(args) => block_on(runs::carry_out(args, common)),
    }
}

fn block_on(work: impl Future<Output = Result<ExitCode, VerbError>>) -> Result<ExitCode, VerbError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(VerbError::Runtime)?;
    let result = runtime.block_on(work);
    // A thread that still waits for standard input must not keep the process.
    runtime.shutdown_background();
    result
}

fn connect(common: &Common) -> Result<Client, VerbError> {
    Ok(Client::new(ClientConfig::read(common)?)?)
}

/// Says on standard error what went wrong and what to do.
fn report(error: &VerbError, json: bool) {
    let refused = match error {
        VerbError::Client(ClientError::Refused(body)) => Some(body),
        _ => None,
    };
    if json {
        let value = match refused {
            Some(body) => serde_json::json!(body),
            None => serde_json::json!({ "error": "failed", "message": chain(error) }),
        };
        eprintln!("{value}");
        return;
    }
    let paint = terminal::Paint::stderr();
    eprintln!("{} {}", paint.red("bailey:"), terminal::printable_lines(&chain(error)));
    if let Some(body) = refused {
        if !body.policies.is_empty() {
            eprintln!("  decided by: {}", terminal::printable(&body.policies.join(", ")));
        }
        if !body.hint.is_empty() {
            eprintln!("  {}", terminal::printable(&body.hint));
        }
        eprintln!("  {}", paint.dim(&format!("{} ({}, {})", body.error, body.code, body.request_id)));
    }
}

/// The message with those of its causes that it does not already contain.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}
