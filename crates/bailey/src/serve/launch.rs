//! The root half: check the host, prepare the template, become `bailey-jail`.

use std::convert::Infallible;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use bailey_control::clock::Clock;
use bailey_protocol::jail::{ServerLaunch, SupervisorConfig, TemplateImage};

use super::host::{require_kernel, require_root};
use super::{Binaries, ServeError, handover, machines};
use crate::cli::ServeArgs;
use crate::config::{GvisorServed, ServeConfig, ServerConfig};
use crate::template::sentry::{self, Runsc};
use crate::template::{self, machine};
use crate::terminal::note;

/// What the server needs beyond the time that runs get: to answer, and to close what is open.
const CLOSE_MS: u64 = 25_000;

/// The server's whole environment.
fn environment() -> Vec<(String, String)> {
    let fixed = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value.to_owned()));
    fixed.into_iter().chain(bailey_crash::environment()).collect()
}

/// Returns only when the server cannot start.
pub(crate) fn launch(args: ServeArgs, json: bool) -> Result<Infallible, ServeError> {
    // What was typed wrong is said before what the machine lacks.
    let config = ServeConfig::read(args)?;
    require_root()?;
    require_kernel()?;
    let binaries = Binaries::find()?;
    let template = template::ensure(&config.cache)?;
    let gvisor = config.gvisor.map(|wall| {
        let runsc = Runsc::find(wall.runsc.as_deref())?;
        if let Some(aged) = sentry::aged(&runsc.version, Clock::system().now_ms()) {
            note!("bailey: {aged}");
        }
        sentry::ensure(&config.cache, &template, &binaries.guest, &runsc).map(|image| (image, wall.parked))
    });
    let gvisor = gvisor.transpose()?;
    let machine = config.microvm.map(|wall| {
        let own = crate::config::guest_kernel()?;
        let machine = machine::ensure(&config.cache, &template, &binaries.guest, own.as_deref())?;
        machines::served(&machine, wall.parked, wall.memory_bytes).map(|served| (machine.as_image(), served))
    });
    let (machine_image, microvm) = machine.transpose()?.unzip();
    let server = ServerConfig {
        template: template.digest.clone(),
        policies: config.policies,
        follow_policies: config.policy_folder.is_some(),
        policy_cache_mib: config.policy_cache_mib,
        parked: config.parked,
        gvisor: gvisor.as_ref().map(|(sentry, parked)| GvisorServed {
            image: sentry.digest.clone(),
            version: sentry.version.clone(),
            parked: *parked,
        }),
        microvm,
        drain_ms: u64::try_from(config.drain.as_millis()).unwrap_or(u64::MAX),
        log: config.log,
        limits: config.limits,
        quota: config.quota,
        large_disks: config.large_disks,
        identity: config.identity,
        json,
    };
    let supervisor = SupervisorConfig {
        data: config.data,
        guest_binary: binaries.guest,
        guest_sha256: binaries.guest_sha256,
        templates: vec![TemplateImage { digest: template.digest, image: template.image }],
        images: gvisor.iter().map(|(sentry, _)| sentry.as_image()).chain(machine_image).collect(),
        large_disks: config.large_disks,
        server: Some(ServerLaunch {
            listen: config.listen,
            binary: binaries.server,
            policies: config.policy_folder,
            args: vec!["serve".to_owned(), "--supervised".to_owned()],
            env: environment(),
            drain_ms: server.drain_ms.saturating_add(CLOSE_MS),
            config: serde_json::to_value(&server).map_err(|e| ServeError::system("write the configuration", e))?,
        }),
    };
    let fd = handover::sealed(&supervisor)?;
    let error = Command::new(&binaries.jail).arg0("bailey-jail").arg(fd.as_raw_fd().to_string()).exec();
    Err(ServeError::system("start bailey-jail", error))
}
