//! Whether an attack was held, by what the host saw. Each judge can say that it was not, and says of what it could not
//! judge that it was not tried.

use std::collections::BTreeSet;

use bailey_protocol::jail::CAGE_UID_BASE;
use bailey_protocol::limits::Limits;
use bailey_protocol::node::{Ending, LimitHit};

use super::look::{self, Look, Mount, NAMESPACES, RANGE, Seen};
use super::sandbox::Ran;

/// What became of an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    Broken(String),
    NotTried(String),
}

/// Everything that the host knows of one attack.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) ran: Ran,
    pub(crate) limits: Limits,
    /// The sandbox while the attack held what it had got.
    pub(crate) look: Option<Look>,
    /// Mounts of a sandbox that nobody attacks.
    pub(crate) usual_mounts: BTreeSet<Mount>,
    /// Namespaces of the host.
    pub(crate) host_namespaces: BTreeSet<String>,
    /// How many processors there are.
    pub(crate) processors: u64,
    /// The run that went on beside it.
    pub(crate) beside: Option<Ran>,
    /// Names below the mount that the tree took for what they are: those that are something else, in words.
    pub(crate) tree: Option<Vec<String>>,
    /// Harm beyond the sandbox: to the host, to another tenant's sandbox, to what all sandboxes share, or what is left.
    pub(crate) harm: Vec<String>,
    /// What could not be looked at.
    pub(crate) blind: Vec<String>,
}

/// Why an attack does not count as held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    Broken(String),
    NotTried(String),
}

pub(crate) type Judge = fn(&Facts) -> Result<(), Objection>;

fn broken(what: impl Into<String>) -> Result<(), Objection> {
    Err(Objection::Broken(what.into()))
}

fn not_tried<T>(why: impl Into<String>) -> Result<T, Objection> {
    Err(Objection::NotTried(why.into()))
}

/// The judge's verdict, after what no attack may do. What is broken outweighs what could not be tried.
pub(crate) fn verdict(judge: Judge, facts: &Facts) -> Verdict {
    let mut found = facts.harm.clone();
    if facts.ran.survivors > 0 {
        found.push(format!("{} processes outlived the run", facts.ran.survivors));
    }
    if facts.ran.overdue {
        found.push("the run did not end when its time was up".to_owned());
    }
    let own = judge(facts);
    if let Err(Objection::Broken(what)) = &own {
        found.push(what.clone());
    }
    if !found.is_empty() {
        return Verdict::Broken(found.join("; "));
    }
    if let Some(fault) = &facts.ran.fault {
        return Verdict::NotTried(format!("the run could not be carried out: {fault}"));
    }
    if facts.ran.started.is_none() || facts.ran.stopped.is_none() {
        return Verdict::NotTried("the node did not tell how the run began and ended".to_owned());
    }
    if let Some(why) = facts.blind.first() {
        return Verdict::NotTried(why.clone());
    }
    match own {
        Err(Objection::NotTried(why)) => Verdict::NotTried(why),
        Ok(()) | Err(Objection::Broken(_)) => Verdict::Held,
    }
}

/// What the host saw while the attack held what it had got.
fn seen(facts: &Facts) -> Result<&Look, Objection> {
    let Some(look) = &facts.look else {
        return not_tried(format!("the attack did not come to its end: {:?}", facts.ran.ending()));
    };
    if look.code.is_empty() { not_tried("no process of the attack was left to look at") } else { Ok(look) }
}

/// Nothing beyond what no attack may do.
pub(crate) fn harmless(facts: &Facts) -> Result<(), Objection> {
    seen(facts).map(drop)
}

/// A program that is through when it ends.
pub(crate) fn through(facts: &Facts) -> Result<(), Objection> {
    match facts.ran.ending() {
        Some(Ending::Exited { code: 0 }) => Ok(()),
        other => not_tried(format!("the attack did not come to its end: {other:?}")),
    }
}

/// K01: no capability, no way to one, every filter, a user of this sandbox alone.
pub(crate) fn posture(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    for one in &look.code {
        let who = |what: &str| broken(format!("a process {what}"));
        match one {
            _ if one.capabilities != [0; 5] => return who("has capabilities"),
            _ if one.no_new_privs != "1" => return who("may gain privileges"),
            _ if one.seccomp != "2" || one.filters < 4 => return who("is without a filter"),
            _ if one.uid % RANGE != 1000 => return who("is not the sandbox's user"),
            _ => {}
        }
    }
    if look.all().any(|one| one.uid < CAGE_UID_BASE) { broken("a process is a user of the host") } else { Ok(()) }
}

/// K03: all namespaces are those of PID 1, and none is the host's.
pub(crate) fn namespaces(facts: &Facts) -> Result<(), Objection> {
    const LEAST: usize = 40;
    let look = seen(facts)?;
    for one in &look.code {
        for (kind, name) in &one.namespaces {
            let kind = kind.trim_end_matches("_for_children");
            if look.init.namespaces.get(kind) != Some(name) {
                return broken(format!("a process has a {kind} namespace of its own"));
            }
        }
    }
    for one in look.all() {
        if let Some((kind, _)) = one.namespaces.iter().find(|(_, name)| facts.host_namespaces.contains(*name)) {
            return broken(format!("a process is in the host's {kind} namespace"));
        }
    }
    if look.init.namespaces.len() < NAMESPACES.len() || look.code.len() < LEAST {
        return not_tried(format!("only {} processes of the attack are left to look at", look.code.len()));
    }
    Ok(())
}

/// K05: no descriptor of a kind that only a kernel interface beyond the allowance hands out.
pub(crate) fn trophies(facts: &Facts) -> Result<(), Objection> {
    const KINDS: [&str; 9] =
        ["io_uring", "userfaultfd", "perf_event", "bpf", "fanotify", "secretmem", "fscontext", "/mem", "/environ"];
    let look = seen(facts)?;
    let won = |one: &Seen| {
        let mut links = one.descriptors.values().map(|descriptor| &descriptor.link);
        links.find_map(|link| KINDS.into_iter().find(|kind| link.contains(kind)))
    };
    if let Some(kind) = look.code.iter().find_map(won) {
        return broken(format!("the attack has a descriptor of `{kind}`"));
    }
    let links = |one: &Seen| -> BTreeSet<String> {
        let sockets = one.descriptors.values().filter(|descriptor| descriptor.socket.is_some());
        sockets.map(|descriptor| descriptor.link.clone()).collect()
    };
    let own = links(&look.init);
    if look.code.iter().any(|one| !links(one).is_disjoint(&own)) {
        broken("a socket of PID 1 was taken")
    } else {
        Ok(())
    }
}

/// K06: nobody traces PID 1, and none of its descriptors was taken.
pub(crate) fn traced(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    if look.init.tracer != 0 { broken("PID 1 is traced") } else { unmarked(facts) }
}

/// K06: the kernel keeps no key for the sandbox's users.
pub(crate) fn keys(facts: &Facts) -> Result<(), Objection> {
    match seen(facts)?.keys {
        0 => Ok(()),
        count => broken(format!("the kernel keeps {count} keys for the sandbox")),
    }
}

/// K06: mounts and roots are those that an untouched sandbox has.
pub(crate) fn mounts(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    if facts.usual_mounts.is_empty() {
        return not_tried("there is no untouched sandbox to compare with");
    }
    if let Some(mount) = look.mounts.symmetric_difference(&facts.usual_mounts).next() {
        return broken(format!("the mount at `{}` is not what it was", mount.at));
    }
    let root = look.all().find(|one| one.root != "/");
    if root.is_some() { broken("a process has a root folder of its own") } else { Ok(()) }
}

/// K06: none of the descriptors that mark a call which should have failed.
pub(crate) fn unmarked(facts: &Facts) -> Result<(), Objection> {
    const MARK: u32 = 200;
    let won = seen(facts)?.code.iter().any(|one| one.descriptors.keys().any(|number| *number >= MARK));
    if won { broken("the attack holds a descriptor that it should not have got") } else { Ok(()) }
}

/// K08: nobody's file mode mask is one that only a closed entry could have set.
pub(crate) fn masks(facts: &Facts) -> Result<(), Objection> {
    let won = seen(facts)?.all().find(|one| ["0123", "0124"].contains(&one.umask.as_str()));
    if won.is_some() { broken("a call went through an entry that is closed") } else { Ok(()) }
}

/// K10, N01: plain sockets, and no network device but the loopback.
pub(crate) fn sockets(facts: &Facts) -> Result<(), Objection> {
    const ALLOWED: [(u16, u32); 7] = [(1, 1), (1, 2), (1, 5), (2, 1), (2, 2), (10, 1), (10, 2)];
    let look = seen(facts)?;
    if look.links != ["lo"] {
        return broken(format!("the sandbox has the network devices {:?}", look.links));
    }
    let got: BTreeSet<(u16, u32)> =
        look.code.iter().flat_map(|one| one.descriptors.values().filter_map(|one| one.socket)).collect();
    match got.iter().find(|kind| !ALLOWED.contains(kind)) {
        Some((family, kind)) => broken(format!("the attack has a socket of family {family}, type {kind}")),
        None if got.is_empty() => not_tried("not even a plain socket opened"),
        None => Ok(()),
    }
}

/// N01: no network device but the loopback. Who was reached is harm.
pub(crate) fn apart(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    if look.links == ["lo"] { Ok(()) } else { broken(format!("the sandbox has the network devices {:?}", look.links)) }
}

/// K15: no device beyond the harmless ones, open or made, and nothing mounted on which one would work.
pub(crate) fn devices(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    let foreign =
        |one: &Seen| one.descriptors.values().filter_map(|one| one.device).find(|device| !look::is_harmless(*device));
    if let Some(device) = look.all().find_map(foreign) {
        return broken(format!("a process has the device {:?} open", device.number));
    }
    if let Some(node) = look.nodes.first() {
        return broken(format!("there is a device node at {node}"));
    }
    let lacks = |mount: &Mount, option: &str| !mount.options.split(',').any(|has| has == option);
    let on_dev = |mount: &Mount| mount.at == "/dev" || mount.at.starts_with("/dev/");
    match look.mounts.iter().find(|mount| lacks(mount, "nosuid") || (lacks(mount, "nodev") && !on_dev(mount))) {
        Some(mount) => broken(format!("devices or setuid programs work at `{}`", mount.at)),
        None if look.mounts.is_empty() => not_tried("no mount was seen"),
        None => Ok(()),
    }
}

/// K16: code has three descriptors, of pipes and the null device; PID 1 has none of a file of the host.
pub(crate) fn descriptors(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    for one in &look.code {
        let known = |link: &str| link.starts_with("pipe:") || link.starts_with("socket:") || link == "/dev/null";
        if let Some((number, of)) = one.descriptors.iter().find(|(number, of)| **number > 2 || !known(&of.link)) {
            return broken(format!("a process began with descriptor {number}, of `{}`", of.link));
        }
    }
    let planted = |link: &str| link.starts_with("/etc/") || link.contains(super::world::PLANTED);
    let leaked = look.init.descriptors.values().any(|of| planted(&of.link));
    if leaked { broken("PID 1 has a descriptor of a file of the host") } else { Ok(()) }
}

/// K20, K21: nothing of the kernel's own files can be written to, and no control group is mounted.
pub(crate) fn settings(facts: &Facts) -> Result<(), Objection> {
    let look = seen(facts)?;
    for one in &look.code {
        if let Some(of) = one.descriptors.values().find(|of| of.writes_to.is_some()) {
            return broken(format!("`{}` is open for writing, on {}", of.link, of.writes_to.unwrap_or_default()));
        }
        if one.cgroup_mounts {
            return broken("a control group file system is mounted");
        }
    }
    Ok(())
}

/// R01: the limit was met, and kept.
pub(crate) fn pids(facts: &Facts) -> Result<(), Objection> {
    let most = u64::from(facts.limits.pids);
    match facts.ran.tasks {
        tasks if tasks > most => broken(format!("{tasks} processes and threads with a limit of {most}")),
        0 => not_tried("no control group counted processes"),
        _ if facts.ran.hit(LimitHit::Pids) => Ok(()),
        tasks => not_tried(format!("the attack made only {tasks} processes and threads")),
    }
}

/// R03: the kernel ended the sandbox at its limit, and it never had more.
pub(crate) fn memory(facts: &Facts) -> Result<(), Objection> {
    const SLACK: u64 = 4 << 20;
    let most = facts.limits.memory_bytes;
    let Some(stopped) = &facts.ran.stopped else { return not_tried("the node did not tell how the run ended") };
    match stopped.facts.memory_peak_bytes {
        peak if peak > most + SLACK => broken(format!("{peak} bytes of memory with a limit of {most}")),
        _ if stopped.ending == Ending::Oom => Ok(()),
        peak => not_tried(format!("the attack took only {peak} of {most} bytes of memory")),
    }
}

/// R05: the writable layer was full at its limit, and nothing else was.
pub(crate) fn disk(facts: &Facts) -> Result<(), Objection> {
    let (look, most) = (seen(facts)?, facts.limits.disk_bytes);
    match look.grown {
        size if size > most => broken(format!("a file of {size} bytes with a limit of {most}")),
        _ if facts.ran.ending() == Some(Ending::Oom) => broken("a full disk ended the sandbox"),
        _ if facts.ran.hit(LimitHit::Disk) => Ok(()),
        size => not_tried(format!("the attack wrote only {size} bytes")),
    }
}

/// R06: so many files, and no more.
pub(crate) fn files(facts: &Facts) -> Result<(), Objection> {
    // The layers' own folders have some on top of the limit.
    const SLACK: u64 = 128;
    let (look, most) = (seen(facts)?, facts.limits.disk_inodes);
    match look.files {
        count if count > most + SLACK => broken(format!("{count} files with a limit of {most}")),
        _ if facts.ran.hit(LimitHit::Files) => Ok(()),
        count => not_tried(format!("the attack made only {count} files")),
    }
}

/// R10: the time was kept, whoever did not want to end.
pub(crate) fn time(facts: &Facts) -> Result<(), Objection> {
    const SLACK_MS: u64 = 3000;
    let most = facts.limits.timeout_ms;
    match &facts.ran.stopped {
        Some(stopped) if stopped.wall_ms > most + SLACK_MS => {
            broken(format!("the run went on for {} ms with a limit of {most}", stopped.wall_ms))
        }
        Some(stopped) if stopped.ending == Ending::Timeout && !facts.ran.stdout.is_empty() => Ok(()),
        other => not_tried(format!("the attack ended before its time: {:?}", other.as_ref().map(|end| end.ending))),
    }
}

/// R11: the limit was met, and no byte more was kept.
pub(crate) fn output(facts: &Facts) -> Result<(), Objection> {
    let most = facts.limits.output_bytes;
    let kept = (facts.ran.stdout.len() + facts.ran.stderr.len()) as u64;
    match kept {
        kept if kept > most => broken(format!("{kept} bytes of output with a limit of {most}")),
        _ if facts.ran.ending() == Some(Ending::OutputLimit) => Ok(()),
        kept => not_tried(format!("the attack wrote only {kept} bytes")),
    }
}

/// R25: many processes that spin get no more than their limit, and leave one of another tenant as much as they may have.
pub(crate) fn share(facts: &Facts) -> Result<(), Objection> {
    let Some(own) = &facts.ran.stopped else { return not_tried("the node did not tell how the run ended") };
    let Some(other) = facts.beside.as_ref().and_then(|beside| beside.stopped.as_ref()) else {
        return not_tried("nothing went on beside it");
    };
    let granted = own.wall_ms.saturating_mul(u64::from(facts.limits.cpu_millis));
    let (used, left) = (own.facts.cpu_us, other.facts.cpu_us);
    // A quota is kept by periods of 100 ms, and what begins and ends one counts, too.
    match used {
        used if used > granted / 4 * 5 + 300_000 => {
            broken(format!("{used} µs of processor time where {granted} were granted"))
        }
        // Two that may have a processor each, and hardly get half of that together, are not alone.
        used if (used + left).saturating_mul(2) < granted.saturating_mul(facts.processors.min(2)) => {
            not_tried(format!("{used} and {left} µs of processor time for two sandboxes: the host is busy"))
        }
        used if used > left.saturating_mul(3) => {
            broken(format!("{used} µs of processor time left {left} for another tenant"))
        }
        _ => Ok(()),
    }
}

/// F03: what the tree took is what was left, and no link in it was followed.
pub(crate) fn links(facts: &Facts) -> Result<(), Objection> {
    through(facts)?;
    match &facts.tree {
        None => not_tried("what the run left was not taken into a tree"),
        Some(wrong) if wrong.is_empty() => Ok(()),
        Some(wrong) => broken(wrong.join("; ")),
    }
}

#[cfg(test)]
mod tests;
