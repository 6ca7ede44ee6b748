//! The table of attacks. Each runs in a sandbox of its own; ids are those of the threats.
//!
//! An attack that succeeds leaves a mark for the host to see, and as little else as can be: what goes beyond a limit has a
//! bound of its own, and what is opened is not written to. To add one: a program in `crates/bailey/attacks/`, a judge, a row here, and an arm in the hostile suite in
//! which the program succeeds.

use bailey_protocol::limits::Limits;

use super::judge::{self, Judge};

const PRELUDE: &str = include_str!("../../attacks/prelude.py");

/// One attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    /// Arguments; those in braces are filled in by the world.
    pub(crate) args: &'static [&'static str],
    /// With `sudo`, as root of its sandbox.
    pub(crate) root: bool,
    /// With a writable folder of the tree at `/data`.
    pub(crate) mount: bool,
    /// Whether it holds what it got until it has been looked at; else it goes on to its end.
    pub(crate) holds: bool,
    /// Arguments of the same program that another tenant runs beside it.
    pub(crate) beside: Option<&'static [&'static str]>,
    pub(crate) limits: fn(&mut Limits),
    pub(crate) judge: Judge,
}

impl Case {
    const fn root(self) -> Self {
        Self { root: true, ..self }
    }

    const fn mount(self) -> Self {
        Self { mount: true, ..self }
    }

    const fn to_its_end(self) -> Self {
        Self { holds: false, ..self }
    }

    const fn beside(self, args: &'static [&'static str]) -> Self {
        Self { beside: Some(args), ..self }
    }

    const fn limits(self, limits: fn(&mut Limits)) -> Self {
        Self { limits, ..self }
    }
}

/// A program's whole text.
pub(crate) fn text(program: &str) -> String {
    format!("{PRELUDE}\n{program}")
}

const fn case(
    id: &'static str,
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    judge: Judge,
) -> Case {
    Case { id, name, program, args, root: false, mount: false, holds: true, beside: None, limits: |_| {}, judge }
}

macro_rules! program {
    ($name:literal) => {
        include_str!(concat!("../../attacks/", $name, ".py"))
    };
}

const BOMB: &str = program!("bomb");
const CGROUP: &str = program!("cgroup");
const DEVICES: &str = program!("devices");
const HOLDER: &str = program!("holder");
const HUNT: &str = program!("empty_room");
const INTEGRITY: &str = program!("integrity");
const LINKS: &str = program!("links");
const MARKS: &str = program!("marks");
const NAMESPACES: &str = program!("namespaces");
const NETWORK: &str = program!("network");
const OVERWRITE: &str = program!("overwrite");
const SETTINGS: &str = program!("settings");
const SOCKETS: &str = program!("sockets");
const STUBBORN: &str = program!("stubborn");
const TROPHIES: &str = program!("trophies");
/// Also what a well-behaved tenant runs, for attacks to look for.
pub(crate) const NEIGHBOUR: &str = program!("neighbour");
/// What an earlier run leaves wherever it can.
pub(crate) const LEAVINGS: &str = program!("leavings");

const MIB: u64 = 1 << 20;

/// Everything that is tried, in this order.
pub(crate) const CASES: &[Case] = &[
    case("K01", "capabilities and privileges of code", HOLDER, &[], judge::posture),
    case("K03", "a namespace of one's own", NAMESPACES, &[], judge::namespaces),
    case("K05", "io_uring, userfaultfd, bpf, perf and their kin", TROPHIES, &[], judge::trophies),
    case("K05", "io_uring, userfaultfd, bpf, perf and their kin", TROPHIES, &[], judge::trophies).root(),
    case("K06", "tracing PID 1 and taking its descriptors", MARKS, &["trace"], judge::traced),
    case("K06", "tracing PID 1 and taking its descriptors", MARKS, &["trace"], judge::traced).root(),
    case("K06", "keys in the kernel", MARKS, &["keys"], judge::keys),
    case("K06", "mounting, unmounting and another root", MARKS, &["mounts"], judge::mounts),
    case("K06", "mounting, unmounting and another root", MARKS, &["mounts"], judge::mounts).root(),
    case("K06", "files by handle", MARKS, &["handles"], judge::unmarked).root(),
    case("K08", "system calls by the x32 and 32-bit entries", MARKS, &["entries"], judge::masks),
    case("K10", "sockets of every family", SOCKETS, &[], judge::sockets),
    case("K15", "devices, made and opened", DEVICES, &[], judge::devices),
    case("K15", "devices, made and opened", DEVICES, &[], judge::devices).root(),
    case("K16", "descriptors that the host left open", HOLDER, &[], judge::descriptors),
    case("K18", "overwriting the agent", OVERWRITE, &[""], judge::harmless),
    case("K18", "overwriting the agent", OVERWRITE, &[""], judge::harmless).root(),
    case("K20", "settings of the kernel", SETTINGS, &[], judge::settings),
    case("K20", "settings of the kernel", SETTINGS, &[], judge::settings).root(),
    case("K21", "control groups and release agents", CGROUP, &[], judge::settings),
    case("K21", "control groups and release agents", CGROUP, &[], judge::settings).root(),
    case("K25", "reading and killing another tenant's processes", NEIGHBOUR, &["seek", "{pids}"], judge::harmless),
    case("K25", "reading and killing another tenant's processes", NEIGHBOUR, &["seek", "{pids}"], judge::harmless)
        .root(),
    case("K26", "IPC objects of the host", NEIGHBOUR, &["keep", "nothing"], judge::harmless),
    case("K31", "writing to what all sandboxes start from", INTEGRITY, &["", "{shared}"], judge::harmless),
    case("K33", "setting the host's clock and name", MARKS, &["clock"], judge::harmless).root(),
    case("N01", "sockets that listen on the host", NETWORK, &["{listeners}"], judge::apart),
    case("O1", "secrets of the host and of other tenants", HUNT, &["{told}"], judge::through).to_its_end(),
    case("O1", "secrets of the host and of other tenants", HUNT, &["{told}"], judge::through).root().to_its_end(),
    case("F03", "links out of a mounted folder", LINKS, &["{told}"], judge::links).mount().to_its_end(),
    case("F03", "links out of a mounted folder", LINKS, &["{told}"], judge::links).mount().root().to_its_end(),
    case("R01", "more processes than there may be", BOMB, &["fork", "2000"], judge::pids).to_its_end().limits(
        |limits| {
            limits.pids = 64;
            limits.timeout_ms = 3000;
        },
    ),
    case("R03", "more memory than there may be", BOMB, &["memory", "300000000"], judge::memory)
        .to_its_end()
        .limits(small),
    case("R03", "memory in pipes", BOMB, &["pipes", "500"], judge::memory).to_its_end().limits(small),
    case("R05", "the whole disk, which is memory, too", BOMB, &["disk", "200000000"], judge::disk).limits(|limits| {
        limits.disk_bytes = 48 * MIB;
    }),
    case("R06", "more files than there may be", BOMB, &["inodes", "100000"], judge::files).limits(|limits| {
        limits.disk_inodes = 4000;
    }),
    case("R10", "processes that do not want to end", STUBBORN, &[], judge::time).to_its_end().limits(|limits| {
        limits.timeout_ms = 2500;
    }),
    case("R11", "more output than there may be", BOMB, &["output", "64000000"], judge::output).to_its_end(),
    case("R25", "processors that another tenant uses", BOMB, &["spin", "8"], judge::share)
        .beside(&["spin", "1"])
        .to_its_end()
        .limits(|limits| limits.timeout_ms = 2500),
];

fn small(limits: &mut Limits) {
    limits.memory_bytes = 96 * MIB;
    limits.disk_bytes = 16 * MIB;
    limits.timeout_ms = 20_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_granted_and_told_apart() {
        let mut seen = std::collections::BTreeSet::new();
        for case in CASES {
            assert!(seen.insert((case.id, case.name, case.root)), "{} {} comes twice", case.id, case.name);
            let mut limits = Limits::default();
            (case.limits)(&mut limits);
            limits.check(&Limits::default(), None).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert!(text(case.program).len() < 100_000, "{}", case.name);
        }
        let groups: std::collections::BTreeSet<&str> = CASES.iter().filter_map(|case| case.id.get(..1)).collect();
        assert_eq!(groups, ["F", "K", "N", "O", "R"].into());
    }
}
