//! The command line of a monitor, and what decides about it.

use std::os::fd::OwnedFd;

use bailey_protocol::guest::PORT_NAME;
use bailey_protocol::id::TemplateDigest;
use bailey_protocol::limits::Limits;

const MIB: u64 = 1024 * 1024;

/// Descriptors that every monitor finds: the guest's stream, its own control, the machine's memory; and the state that it
/// begins with, if any.
const STREAM: u32 = 3;
const CONTROL: u32 = 4;
const MEMORY: u32 = 5;
const STATE: u32 = 6;

/// MiB of translated code that an interpreter keeps.
const TRANSLATED: u32 = 128;

/// What machines are made on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What the host's processor calls itself.
    pub processor: String,
    /// Ticks of its counter in a millisecond.
    pub khz: u32,
    /// Whether the hardware runs the guest.
    pub accelerator: Accelerator,
}

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// A program that translates them.
    Tcg,
}

impl Accelerator {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
        }
    }
}

impl Host {
    /// Reads what the kernel says of the processor (`/proc/cpuinfo`). Nothing if that has no counter of known speed.
    #[must_use]
    pub fn read(cpuinfo: &str, accelerator: Accelerator) -> Option<Self> {
        let value = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            line.split_once(": ").map(|(_, value)| value.trim())
        };
        let (whole, rest) = value("cpu MHz")?.split_once('.')?;
        let khz = format!("{whole}{rest:0<3}").parse().ok()?;
        Some(Self { processor: value("model name")?.to_owned(), khz, accelerator })
    }

    /// Whether the hardware runs the guest.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        match self.accelerator {
            Accelerator::Tcg => false,
        }
    }
}

/// How a machine begins.
#[derive(Debug)]
pub(super) enum Start {
    /// From nothing, and others begin with what it becomes.
    Template,
    /// From nothing, for itself.
    Cold,
    /// With the state of a template, over a private view of its memory.
    Clone {
        /// The state of its devices.
        state: OwnedFd,
    },
}

/// What a monitor is started for.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) image: TemplateDigest,
    pub(super) memory_bytes: u64,
    pub(super) host: Host,
    pub(super) limits: Limits,
}

/// The monitor's path and arguments.
pub(super) fn command(order: &Order, start: &Start) -> Vec<String> {
    let megabytes = order.memory_bytes / MIB;
    let share = match start {
        Start::Template => "on",
        Start::Cold | Start::Clone { .. } => "off",
    };
    let accelerator = match order.host.accelerator {
        Accelerator::Tcg => format!("tcg,tb-size={TRANSLATED}"),
    };
    // The interpreted counter ticks as the host's does. How fast, a kernel finds out by a timer that a busy host serves too
    // late.
    let words = format!("console=ttyS0 quiet panic=-1 tsc=reliable tsc_early_khz={}", order.host.khz);
    let mut line = Line::default();
    line.add(&["-M", "microvm,rtc=on,memory-backend=m", "-cpu", "max", "-nodefaults", "-no-user-config"]);
    line.add(&["-nographic", "-no-reboot", "-L", "/usr/share/qemu", "-accel", &accelerator]);
    line.add(&["-sandbox", "on,spawn=deny,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny"]);
    line.add(&["-m", &megabytes.to_string(), "-object"]);
    line.add(&[&format!("memory-backend-file,id=m,size={megabytes}M,mem-path=/proc/self/fd/{MEMORY},share={share}")]);
    line.add(&["-chardev", "ringbuf,id=l,size=65536", "-serial", "chardev:l"]);
    line.add(&["-chardev", &format!("socket,id=q,fd={CONTROL}"), "-mon", "chardev=q,mode=control"]);
    line.add(&["-drive", "if=none,id=d,file=/template,format=raw,readonly=on"]);
    line.add(&["-device", "virtio-blk-device,drive=d", "-device", "virtio-serial-device"]);
    line.add(&["-chardev", &format!("socket,id=s,fd={STREAM}")]);
    line.add(&["-device", &format!("virtserialport,chardev=s,name={PORT_NAME}")]);
    line.add(&["-kernel", "/kernel", "-initrd", "/initramfs", "-append", &words]);
    if matches!(start, Start::Clone { .. }) {
        line.add(&["-incoming", "defer"]);
    }
    line.0
}

/// Where a clone finds its state, as its control names it.
pub(super) fn state_address() -> String {
    format!("fd:{STATE}")
}

struct Line(Vec<String>);

impl Default for Line {
    fn default() -> Self {
        Self(vec!["/usr/bin/qemu-system-x86_64".to_owned()])
    }
}

impl Line {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(|&word| word.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_a_known_speed_is_none() {
        let host = |text: &str| Host::read(text, Accelerator::Tcg);
        let good = "processor\t: 0\nmodel name\t: A CPU @ 2.10GHz\ncpu MHz\t\t: 2100.05\n";
        let read = host(good).unwrap();
        assert_eq!((read.processor.as_str(), read.khz), ("A CPU @ 2.10GHz", 2_100_050));
        assert!(!read.is_accelerated());
        for bad in ["", "model name\t: A\n", "model name\t: A\ncpu MHz\t\t: fast\n", "cpu MHz\t\t: 2100.050\n"] {
            assert_eq!(host(bad), None, "{bad}");
        }
    }
}
