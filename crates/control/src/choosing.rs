//! Which wall a piece of code belongs behind: a pure function from what is known of the code and of the host to a verdict
//! with its reason. It answers `wall: "auto"` and `bailey advise` alike.
//!
//! The rules are read from the top. The first three answer without a wall; the others name the one that the code needs, and
//! then whether this host has it. What a host lacks is said, never made up for by a weaker wall.

use std::collections::BTreeMap;

use bailey_protocol::wall::{CodeFacts, CodeLanguage, Place, Provenance, WallKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A budget, in milliseconds, that only an isolate keeps.
const ISOLATE_MS: u32 = 10;
/// Minutes from which on a session with live processes is a long one.
const LONG_SESSION: u32 = 60;

/// What a host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Walls that were proven to work, and whether hardware helps, where that means something.
    pub walls: BTreeMap<WallKind, Option<bool>>,
    /// What all its processors do, in thousandths of one.
    pub cpu_millis: u64,
    /// Its memory.
    pub memory_bytes: u64,
    /// What an operator's policy accepts where a machine that hardware isolates is needed and not there.
    pub substitute: Option<WallKind>,
}

impl Host {
    /// A host with nothing but cages, as large as need be.
    #[must_use]
    pub fn with_cages() -> Self {
        let walls = BTreeMap::from([(WallKind::Container, None)]);
        Self { walls, cpu_millis: u64::MAX, memory_bytes: u64::MAX, substitute: None }
    }
}

/// How a question about code is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// A wall, and what goes with it.
    Wall {
        /// The wall.
        wall: WallKind,
        /// Why that one.
        reason: String,
        /// What else the case asks for.
        with: Vec<String>,
    },
    /// Reviewed code is an ordinary program of the product.
    NoSandbox {
        /// Why.
        reason: String,
    },
    /// It is not to be run like that at all.
    Refused {
        /// Why.
        reason: String,
        /// What to do in its place.
        instead: String,
    },
    /// The right wall is not on this host.
    NotInstalled {
        /// The right wall.
        wall: WallKind,
        /// Why that one.
        reason: String,
        /// How to get it.
        how: String,
    },
    /// It is larger than this host.
    HostCannot {
        /// What does not fit.
        reason: String,
        /// What to do.
        how: String,
    },
    /// Somebody has to be asked first.
    ConfirmFirst {
        /// Why.
        reason: String,
        /// What to ask.
        ask: Vec<String>,
    },
}

/// Chooses.
#[must_use]
pub fn choose(facts: &CodeFacts, host: &Host) -> Verdict {
    if facts.assessment {
        return confirm_first();
    }
    if facts.provenance == Provenance::Reviewed {
        let reason =
            "somebody who answers for it has reviewed the code: it needs no sandbox, it is part of the product";
        return Verdict::NoSandbox { reason: reason.to_owned() };
    }
    if facts.place == Place::CallersProcess {
        return Verdict::Refused {
            reason: "inside an existing process the code would keep the process's role, environment and leftover files"
                .to_owned(),
            instead: "Send it to a sandbox of its own, with the one slice that it needs mounted.".to_owned(),
        };
    }
    let too_large = [
        ("CPU", facts.cpu_millis.map(u64::from), host.cpu_millis, "thousandths of a core"),
        ("memory", facts.memory_bytes, host.memory_bytes, "bytes"),
    ];
    for (what, asked, has, unit) in too_large {
        if let Some(asked) = asked.filter(|asked| *asked > has) {
            return Verdict::HostCannot {
                reason: format!("it asks for {asked} {unit} of {what}, and this host has {has}"),
                how: "Ask for less, or run Bailey on a larger host: no wall gives code more than its host has."
                    .to_owned(),
            };
        }
    }
    let (wall, reason) = needed(facts);
    available(facts, host, wall, reason)
}

/// The wall that the code needs, wherever it runs.
fn needed(facts: &CodeFacts) -> (WallKind, String) {
    let live = facts.survives_pause || (facts.files_and_processes && facts.session_minutes >= LONG_SESSION);
    let machine = [
        (facts.hostile, "its author may mean harm"),
        (facts.untrusted_files, "it opens files that nobody trusts"),
        (facts.private_network, "it reaches a private network"),
        (live, "its processes live for long or have to survive a pause"),
    ];
    let causes: Vec<&str> = machine.into_iter().filter(|(applies, _)| *applies).map(|(_, cause)| cause).collect();
    if !causes.is_empty() {
        return (
            WallKind::Microvm,
            format!("unreviewed code needs a kernel of its own where {}", causes.join(", and ")),
        );
    }
    let quick = facts.latency_ms.is_some_and(|budget| budget <= ISOLATE_MS);
    let script = facts.language == Some(CodeLanguage::Javascript) && !facts.files_and_processes;
    if quick && script {
        let reason = "JavaScript over passed-in data, without files and processes, within the time of a new isolate";
        return (WallKind::Isolate, reason.to_owned());
    }
    (
        WallKind::Container,
        "unreviewed code in short runs, with nothing secret inside and nothing to reach but what it is given"
            .to_owned(),
    )
}

/// The verdict on a host that may have the wall or not.
fn available(facts: &CodeFacts, host: &Host, wall: WallKind, reason: String) -> Verdict {
    let with = with(facts);
    match (wall, host.walls.get(&wall)) {
        // Emulation is no boundary.
        (WallKind::Microvm, None | Some(Some(false) | None)) => {
            let substitute = host.substitute.filter(|substitute| host.walls.contains_key(substitute));
            if let Some(substitute) = substitute {
                let reason = format!(
                    "{reason}; there is no accelerated one here, and policy accepts `{substitute}` in its place"
                );
                return Verdict::Wall { wall: substitute, reason, with };
            }
            match host.walls.contains_key(&wall) {
                true => Verdict::Refused {
                    reason: format!("{reason}; the machines of this host are emulated, which is no boundary"),
                    instead: "Use a host with KVM, or have policy name a wall that it accepts in its place.".to_owned(),
                },
                false => Verdict::NotInstalled { wall, reason, how: how(wall).to_owned() },
            }
        }
        (_, Some(_)) => Verdict::Wall { wall, reason, with },
        (_, None) => Verdict::NotInstalled { wall, reason, how: how(wall).to_owned() },
    }
}

/// How a host gets a wall.
fn how(wall: WallKind) -> &'static str {
    match wall {
        WallKind::Container => "Run `bailey doctor`: it names what the host lacks for cages.",
        WallKind::Gvisor => {
            "Install `runsc`, write `[walls.gvisor]` into the server's configuration and start it again: `bailey doctor` tries it."
        }
        WallKind::Microvm => {
            "Where emulated machines are enough, which are no boundary for hostile code: install `qemu-system-x86`, write `[walls.microvm]` into the server's configuration and name the wall. This version of Bailey has no others."
        }
        WallKind::Isolate => "This version of Bailey does not have it: `bailey doctor` lists the walls that it has.",
    }
}

/// What else a case asks for.
fn with(facts: &CodeFacts) -> Vec<String> {
    let mut with = Vec::new();
    if let Some(region) = &facts.region {
        with.push(match facts.one_tenant {
            true => format!("by policy, this tenant's runs on a node in {region}, and everyone else's as before"),
            false => format!("on a node in {region}"),
        });
    }
    if facts.private_network {
        with.push("the private network as an explicit destination, and no other".to_owned());
    }
    with.push("nothing secret inside".to_owned());
    if facts.session_minutes > 0 {
        with.push("only the destinations that it needs".to_owned());
        with.push("one sandbox for the session, destroyed when the user leaves".to_owned());
    }
    with
}

fn confirm_first() -> Verdict {
    let ask = [
        "Which assessment is it, which level, and does it cover the host's kernel and hypervisor?",
        "May the code share a machine with other tenants, or does it take hosts of its own?",
        "Where must data, backups and audit stay, and for how long are they kept?",
        "Which cryptographic modules must be validated?",
    ];
    Verdict::ConfirmFirst {
        reason: "a government assessment decides about more than the wall: confirm with the client first".to_owned(),
        ask: ask.map(str::to_owned).into(),
    }
}

#[cfg(test)]
mod tests;
