//! One module per verb, or per group of verbs that speak of one thing.

mod advise;
mod audit;
mod branch;
mod identity;
mod policy;
mod run;
mod runs;
mod storage;
mod template;
mod token;
mod transfer;
mod tree;
mod tree_change;
mod wording;

use std::process::ExitCode;

use crate::attest::AttestError;
use crate::cli::value::NoTarget;
use crate::cli::{Cli, Common, Verb};
use crate::client::{Client, ClientError};
use crate::config::{ClientConfig, ConfigError, SERVER_FLAG, TOKEN_FLAG};
use crate::local::LocalError;
use crate::serve::ServeError;
use crate::template::TemplateError;
use crate::terminal::note;
use crate::{attest, doctor, exit, serve, terminal};
use audit::AuditError;
use policy::PolicyVerbError;
pub(crate) use run::Interrupts;
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
    Attest(#[from] AttestError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Policy(#[from] PolicyVerbError),
    #[error("the server cannot go on: {0:#}")]
    Supervised(#[from] anyhow::Error),
    #[error(transparent)]
    Local(#[from] LocalError),
    #[error("cannot read `{path}`: {source}")]
    ReadLocal { path: String, source: std::io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(#[from] std::io::Error),
    #[error("{what}")]
    Input { what: &'static str },
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error("the run `{run}` is not over, but its events broke off: {source}")]
    Lost { run: String, source: ClientError },
}

/// What makes no sense on the command line, where it is not clap that sees it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("{what}")]
    Said { what: &'static str },
    #[error(transparent)]
    Target(#[from] NoTarget),
}

fn usage(what: &'static str) -> VerbError {
    UsageError::Said { what }.into()
}

impl VerbError {
    /// Whether the command line is what is wrong.
    fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Token(error) => error.is_usage(),
            Self::Config(ConfigError::Server { from, .. }) => from == SERVER_FLAG,
            Self::Config(ConfigError::Token { from }) => from == TOKEN_FLAG,
            _ => false,
        }
    }

    /// What to do next, where it is not the server who says it.
    fn hint(&self) -> &'static str {
        match self {
            Self::Client(error) | Self::Lost { source: error, .. } => error.hint().unwrap_or_default(),
            _ if self.is_usage() => "The verb's `--help` shows what it takes.",
            _ => "",
        }
    }

    /// Whether standard output is a pipe whose reader has gone: they have what they wanted, and nothing went wrong.
    fn is_unread(&self) -> bool {
        let error = match self {
            Self::Print(error) => error,
            Self::Local(LocalError::Write { source, .. }) | Self::Audit(AuditError::Write { source, .. }) => source,
            _ => return false,
        };
        error.kind() == std::io::ErrorKind::BrokenPipe
    }
}

/// Carries out what the command line asks for.
pub(crate) fn carry_out(cli: Cli) -> ExitCode {
    let Cli { common, verb } = cli;
    let json = common.json;
    let is_run = matches!(verb, Verb::Run(_));
    match dispatch(common, verb) {
        Ok(code) => code,
        Err(error) if error.is_unread() => ExitCode::from(exit::UNREAD),
        Err(error) => {
            report(&error, json);
            ExitCode::from(match is_run {
                _ if error.is_usage() => exit::USAGE,
                true => exit::NO_RESULT,
                false => exit::FAILED,
            })
        }
    }
}

fn dispatch(common: Common, verb: Verb) -> Result<ExitCode, VerbError> {
    match verb {
        Verb::Serve(args) if args.supervised => Ok(serve::supervised::supervised()?),
        Verb::Serve(args) => match serve::launch::launch(args, common.json)? {},
        Verb::Doctor(args) => doctor::carry_out(args.cache, common.json),
        Verb::Attest(args) => attest::carry_out(args, common.json),
        Verb::Advise(args) => advise::carry_out(*args, &common),
        Verb::Token(args) => token::carry_out(args, &common),
        Verb::Template(args) => template::carry_out(args, &common),
        Verb::User(args) => block_on(identity::user(args, common)),
        Verb::Tenant(args) => block_on(identity::tenant(args, common)),
        Verb::Account(args) => block_on(identity::account(args, common)),
        Verb::Key(args) => block_on(identity::key(args, common)),
        Verb::Openapi => {
            terminal::line(bailey_control::http::openapi::text().trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Run(args) => block_on(run::carry_out(*args, common)),
        Verb::Ls(args) => block_on(tree::list(args, common)),
        Verb::Cat(args) => block_on(tree::cat(args, common)),
        Verb::Put(args) if args.local.is_dir() => block_on(transfer::put_folder(args, common)),
        Verb::Put(args) => block_on(tree::put(args, common)),
        Verb::Get(args) => block_on(transfer::get(args, common)),
        Verb::Archive(args) => block_on(transfer::archive(args, common)),
        Verb::Extract(args) => block_on(transfer::extract(args, common)),
        Verb::Edit(args) => block_on(tree_change::edit(args, common)),
        Verb::Cp(args) => block_on(tree_change::copy(args, common)),
        Verb::Mv(args) => block_on(tree_change::rename(args, common)),
        Verb::Mkdir(args) => block_on(tree_change::make_folder(args, common)),
        Verb::Restore(args) => block_on(tree_change::restore(args, common)),
        Verb::Revert(args) => block_on(tree_change::revert(args, common)),
        Verb::Blame(args) => block_on(tree_change::blame(args, common)),
        Verb::Rm(args) => block_on(tree::remove(args, common)),
        Verb::Log(args) => block_on(tree::log(args, common)),
        Verb::Diff(args) => block_on(tree::diff(args, common)),
        Verb::Audit(args) => audit::carry_out(args, common),
        Verb::Policy(args) => block_on(policy::carry_out(args, common)),
        Verb::Purge(args) => block_on(storage::purge(args, common)),
        Verb::Quota(args) => block_on(storage::quota(args, common)),
        Verb::Gc(args) => block_on(storage::collect(args, common)),
        Verb::Fork(args) => block_on(branch::fork(args, common)),
        Verb::Branches(args) => block_on(branch::branches(args, common)),
        Verb::Promote(args) => block_on(branch::promote(args, common)),
        Verb::Protect(args) => block_on(branch::protect(args, common)),
        Verb::Unprotect(args) => block_on(branch::unprotect(args, common)),
        Verb::Label(args) => block_on(branch::label(args, common)),
        Verb::Share(args) => block_on(branch::share(args, common)),
        Verb::Baseline(args) => block_on(branch::baseline(args, common)),
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

/// Says what a verb found or did: `value` with `--json`, else the lines of `text`.
fn say<T: serde::Serialize>(common: &Common, value: &T, text: impl FnOnce() -> String) -> Result<ExitCode, VerbError> {
    if common.json {
        terminal::json(value)?
    } else {
        terminal::lines(&text())?
    }
    Ok(ExitCode::SUCCESS)
}

/// [`say`] of a list, of which people are told when nothing is in it: on standard error, as it is no row.
fn say_list<T: serde::Serialize>(
    common: &Common,
    value: &T,
    nothing: &str,
    text: impl FnOnce() -> String,
) -> Result<ExitCode, VerbError> {
    say(common, value, || {
        let text = text();
        if text.is_empty() {
            note!("bailey: {nothing}");
        }
        text
    })
}

/// Says on standard error what went wrong and what to do.
fn report(error: &VerbError, json: bool) {
    let refused = match error {
        VerbError::Client(ClientError::Refused(body) | ClientError::CutOff(body)) => Some(body),
        _ => None,
    };
    if json {
        let value = match refused {
            Some(body) => serde_json::json!(body),
            None => {
                let kind = if error.is_usage() { "usage" } else { "failed" };
                terminal::error(kind, &chain(error), error.hint())
            }
        };
        note!("{value}");
        return;
    }
    let paint = terminal::Paint::stderr();
    note!("{} {}", paint.red("bailey:"), terminal::printable_lines(&wording::of_cli(&chain(error))));
    if !error.hint().is_empty() {
        note!("  {}", error.hint());
    }
    if let Some(body) = refused {
        if !body.policies.is_empty() {
            note!("  decided by: {}", terminal::printable(&body.policies.join(", ")));
        }
        for path in &body.paths {
            note!("  {}", terminal::printable(path));
        }
        if !body.hint.is_empty() {
            note!("  {}", terminal::printable(&wording::of_cli(&body.hint)));
        }
        note!("  {}", paint.dim(&format!("{} ({}, {})", body.error, body.code, body.request_id)));
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
