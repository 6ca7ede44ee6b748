//! What the kernel counted for a group.

use bailey_protocol::jail::StopFacts;
use rustix::io::Errno;

use super::detect::Controller;
use super::group::Group;
use super::tree::Tree;
use crate::files;

/// Reads the counters; what the tmpfs counted is not among them.
pub(crate) fn read(tree: &Tree, group: &Group) -> Result<StopFacts, Errno> {
    let pids = group.folder_of(tree, Controller::Pids).unwrap_or(group.v2());
    let (oom_kills, memory_peak_bytes) = match group.folder_of(tree, Controller::Memory) {
        Some(memory) => (
            counter(&files::read(memory, "memory.oom_control")?, "oom_kill"),
            number(&files::read(memory, "memory.max_usage_in_bytes")?),
        ),
        None => (
            counter(&files::read(group.v2(), "memory.events")?, "oom_kill"),
            files::read(group.v2(), "memory.peak").map_or(0, |text| number(&text)),
        ),
    };
    Ok(StopFacts {
        oom_kills,
        pids_refused: counter(&files::read(pids, "pids.events")?, "max"),
        disk_full: false,
        files_full: false,
        // Counted by the v2 tree whatever its controllers.
        cpu_us: counter(&files::read(group.v2(), "cpu.stat")?, "usage_usec"),
        memory_peak_bytes,
    })
}

/// The value of `key` in a file of `key value` lines; 0 if it has none.
fn counter(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.map_or(0, number)
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\noom_group_kill 9\n";
        assert_eq!(counter(text, "oom_kill"), 3);
        assert_eq!(counter("max 17\n", "max"), 17);
        assert_eq!(counter("", "max"), 0);
        assert_eq!(counter("max x", "max"), 0);
        assert_eq!(number("4096\n"), 4096);
    }
}
