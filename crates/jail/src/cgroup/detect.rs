//! Which controller lives where.

use std::collections::BTreeSet;

/// Controllers without which no cage is built.
pub(crate) const REQUIRED: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

/// A controller that cages need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    /// The kernel's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// Where the controllers of this host are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// v1 hierarchies that carry a required controller, each as the list of all its controllers.
    pub(crate) v1: Vec<Vec<String>>,
    /// Required controllers that the v2 tree carries.
    pub(crate) v2: BTreeSet<Controller>,
}

/// Finds the required controllers, from `/proc/self/cgroup` and the v2 root's `cgroup.controllers`.
///
/// # Errors
/// The names of those that are in neither.
pub(crate) fn layout(own_groups: &str, v2_controllers: &str) -> Result<Layout, Vec<&'static str>> {
    let hierarchies: Vec<Vec<String>> = own_groups.lines().filter_map(v1_controllers).collect();
    let in_v2: BTreeSet<&str> = v2_controllers.split_whitespace().collect();
    let mut found = Layout { v1: Vec::new(), v2: BTreeSet::new() };
    let mut missing = Vec::new();
    for controller in REQUIRED {
        let hierarchy = hierarchies.iter().find(|names| names.iter().any(|name| name == controller.name()));
        match hierarchy {
            Some(names) if !found.v1.contains(names) => found.v1.push(names.clone()),
            Some(_) => {}
            None if in_v2.contains(controller.name()) => {
                found.v2.insert(controller);
            }
            None => missing.push(controller.name()),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(missing) }
}

/// The controllers of one line such as `4:cpu,cpuacct:/path`; nothing for the v2 tree and for named hierarchies.
fn v1_controllers(line: &str) -> Option<Vec<String>> {
    let names = line.split(':').nth(1)?;
    if names.is_empty() || names.starts_with("name=") {
        return None;
    }
    Some(names.split(',').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_host_mixes_both_versions() {
        let found = layout("9:name=systemd:/\n4:memory:/x\n1:cpu,cpuacct:/\n0::/\n", "pids io").unwrap();
        assert_eq!(found.v1, [vec!["memory".to_owned()], vec!["cpu".to_owned(), "cpuacct".to_owned()]]);
        assert_eq!(found.v2, BTreeSet::from([Controller::Pids]));
    }

    #[test]
    fn controllers_that_share_a_hierarchy_are_one_folder() {
        let found = layout("2:cpu,memory,pids:/\n0::/\n", "").unwrap();
        assert_eq!(found.v1.len(), 1);
    }

    #[test]
    fn a_v2_host_needs_no_v1() {
        let found = layout("0::/user.slice\n", "cpuset cpu io memory hugetlb pids").unwrap();
        assert!(found.v1.is_empty());
        assert_eq!(found.v2.len(), 3);
    }

    #[test]
    fn g01_missing_controllers_are_named() {
        assert_eq!(layout("0::/\n", "memory").unwrap_err(), ["pids", "cpu"]);
        assert_eq!(layout("3:pids:/\n2:cpuset:/\n0::/\n", "cpu").unwrap_err(), ["memory"]);
        assert_eq!(layout("not a cgroup file", "").unwrap_err().len(), 3);
        assert_eq!(layout("2:name=memory:/\n", "pids cpu").unwrap_err(), ["memory"]);
    }
}
