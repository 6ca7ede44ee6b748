//! What the node's machines are made with.

use std::io;
use std::num::TryFromIntError;
use std::path::Path;
use std::sync::Arc;

use bailey_control::clock::{Clock, Rng};
use bailey_node::Microvm;
use bailey_node::wall::gvisor::GvisorConfig;
use bailey_node::wall::microvm::{Accelerator, Host, MicrovmConfig, Patience};
use bailey_node::wall::streamed::{Origin, Origins};
use bailey_protocol::id::TemplateDigest;

use crate::config::{GvisorServed, MicrovmServed};
use crate::serve::ServeError;
use crate::template::machine::Machine;

/// What leaves warm pages in every machine: what most code begins with.
const WARM: [&[&str]; 1] = [&["python3", "-c", "import json, random, uuid, secrets"]];
/// Where the saved machine and the key to it are, in the data folder.
const FOLDER: &str = "machines";

/// Origins by this host's clock and its kernel's generator.
pub(crate) fn origins(clock: &Clock, rng: &Rng) -> Origins {
    let (clock, rng) = (clock.clone(), rng.clone());
    Arc::new(move || {
        let random = rng.bytes().map_err(io::Error::other)?;
        Ok(Origin { now_ns: clock.now_ms().saturating_mul(1_000_000), random })
    })
}

/// gVisor for the one template.
pub(crate) fn gvisor(template: &TemplateDigest, served: &GvisorServed) -> Result<GvisorConfig, TryFromIntError> {
    Ok(GvisorConfig {
        images: [(template.clone(), served.image.clone())].into(),
        version: served.version.clone(),
        parked: usize::try_from(served.parked)?,
    })
}

/// What the server is told of machines. Called on the host, whose files the server does not see.
pub(crate) fn served(machine: &Machine, parked: u32, memory_bytes: u64) -> Result<MicrovmServed, ServeError> {
    let read = |path| std::fs::read_to_string(path).map_err(|error| ServeError::system("look at the processor", error));
    let host = Host::read(&read("/proc/cpuinfo")?, Accelerator::Tcg).ok_or(ServeError::Processor)?;
    // What a host is called by is told to no machine.
    let names = match std::fs::read_to_string("/etc/machine-id") {
        Ok(id) => vec![id.trim().to_owned()],
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(ServeError::system("read the host's machine id", error)),
    };
    Ok(MicrovmServed {
        image: machine.digest.clone(),
        kernel: machine.kernel.clone(),
        vmm: machine.vmm.clone(),
        parked,
        memory_bytes,
        processor: host.processor,
        khz: host.khz,
        names: names.into_iter().filter(|name| !name.is_empty()).collect(),
    })
}

/// Machines for the one template, kept in the data folder.
pub(crate) fn microvm(
    template: &TemplateDigest,
    served: &MicrovmServed,
    data: &Path,
) -> Result<Microvm, TryFromIntError> {
    let warm = WARM.iter().map(|words| words.iter().map(|&word| word.to_owned()).collect()).collect();
    Ok(Microvm {
        config: MicrovmConfig {
            template: template.clone(),
            image: served.image.clone(),
            kernel: served.kernel.clone(),
            vmm: served.vmm.clone(),
            memory_bytes: served.memory_bytes,
            folder: data.join(FOLDER),
            warm,
            canaries: served.names.iter().map(|name| name.clone().into_bytes()).collect(),
            cold: false,
            patience: Patience::default(),
        },
        host: Host { processor: served.processor.clone(), khz: served.khz, accelerator: Accelerator::Tcg },
        parked: usize::try_from(served.parked)?,
    })
}
