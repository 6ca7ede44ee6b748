//! `bailey advise`.

use std::time::Duration;

use clap::Args;

use super::value;

#[derive(Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct AdviseArgs {
    /// Somebody who answers for the code has read it
    #[arg(long)]
    pub(crate) reviewed: bool,
    /// It would run inside an existing process of the product
    #[arg(long)]
    pub(crate) in_process: bool,
    /// What it is written in: `javascript`, `python` or `other`
    #[arg(long, value_parser = value::code_language)]
    pub(crate) language: Option<bailey_protocol::wall::CodeLanguage>,
    /// Its author may mean harm
    #[arg(long)]
    pub(crate) hostile: bool,
    /// What its start may take, such as `10ms`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) latency: Option<Duration>,
    /// It needs real files and processes
    #[arg(long)]
    pub(crate) files: bool,
    /// For how long a user goes on with one sandbox, such as `30m`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) session: Option<Duration>,
    /// Its processes have to survive a pause
    #[arg(long)]
    pub(crate) survives_pause: bool,
    /// Where it has to stay
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// That holds for one tenant alone
    #[arg(long, requires = "region")]
    pub(crate) one_tenant: bool,
    /// It reaches a private network
    #[arg(long)]
    pub(crate) private_network: bool,
    /// Cores that it needs, such as `0.5`
    #[arg(long, value_name = "CORES", value_parser = value::cores)]
    pub(crate) cpu: Option<u32>,
    /// Memory that it needs, such as `2G`
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) memory: Option<u64>,
    /// It opens files because nobody trusts them
    #[arg(long)]
    pub(crate) untrusted_files: bool,
    /// A government's assessment is required
    #[arg(long)]
    pub(crate) assessment: bool,
}
