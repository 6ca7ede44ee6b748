//! The system call table as code inside meets it, against a golden file: K06, K08, K11, K13.
//!
//! The probes measure error numbers, so here the attacker's print-out is the measurement. The same probes in the bad
//! jail show that each refusal is ours and not the kernel's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::bare::Bare;
use crate::run::Order;
use crate::server::{beside_others, shared};

type Answers = BTreeMap<String, String>;

fn parse(text: &str) -> Answers {
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    lines.map(|(probe, answer)| (probe.to_owned(), answer.to_owned())).collect()
}

/// What the bad jail answers. It has its own host name and IPC: the probes change some of that.
fn outside(section: &str) -> Answers {
    let bare = Bare::start_with(&["--uts", "--ipc", "--pid", "--fork"], "sweep", &[section], &[]);
    parse(&String::from_utf8(bare.output()).unwrap())
}

fn inside(section: &str) -> Answers {
    let server = shared();
    let outcome = server.run(&server.user("acme", "ana"), &Order::attack("sweep", &[section])).succeeded();
    parse(&outcome.text())
}

/// Compares with the golden file's section, or rewrites it.
fn golden(section: &str, answers: &Answers) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hostile/golden/{section}.txt"));
    let mut text = String::new();
    for (probe, answer) in answers {
        writeln!(text, "{probe}: {answer}").unwrap();
    }
    if std::env::var_os("BAILEY_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let wanted = parse(&std::fs::read_to_string(&path).unwrap());
    let keys = wanted.keys().chain(answers.keys());
    let mut differences: Vec<String> = keys
        .filter(|probe| wanted.get(*probe) != answers.get(*probe))
        .map(|probe| format!("{probe}: golden {:?}, got {:?}", wanted.get(probe), answers.get(probe)))
        .collect();
    differences.dedup();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Asserts that each probe is refused inside, whatever the golden file says, and was not refused outside for at least
/// one way of asking.
fn refused(inside: &Answers, outside: &Answers, probes: &[String]) {
    let mut toothless = Vec::new();
    for probe in probes {
        let answer = inside.get(probe).unwrap_or_else(|| panic!("`{probe}` was not probed"));
        assert!(["ENOSYS", "EPERM", "SIGSYS"].contains(&answer.as_str()), "`{probe}` is allowed");
        if outside.get(probe).is_none_or(|answer| answer != "allow") {
            toothless.push(probe.as_str());
        }
    }
    if !toothless.is_empty() {
        eprintln!("refused by this kernel anyway, so shown by the golden file alone: {}", toothless.join(", "));
    }
    assert!(toothless.len() * 2 < probes.len().max(1) || probes[0].starts_with("x32"), "the arm has no teeth");
}

/// Calls that no filter change may ever let through, by number on x86-64.
const NEVER: [u32; 62] = [
    101, 103, 105, 106, 154, 155, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 212, 227,
    246, 248, 249, 250, 272, 278, 298, 300, 303, 304, 305, 308, 310, 311, 312, 313, 320, 321, 323, 425, 426, 427, 428,
    429, 430, 431, 432, 433, 435, 438, 440, 442, 443, 447, 237, 238, 256, 279, 456,
];

/// Of those, the ones that a cage must allow after all: none that is dangerous without capabilities.
const HARMLESS: [u32; 2] = [105, 106];

#[test]
fn k06_every_system_call_is_answered_as_the_golden_file_says() {
    let _guard = beside_others();
    let (outside, inside) = (outside("numbers"), inside("numbers"));
    let probed: std::collections::BTreeSet<u32> =
        inside.keys().map(|probe| probe.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(probed, (0..=600).collect(), "not every number was probed");
    let never: Vec<String> = NEVER
        .iter()
        .filter(|number| !HARMLESS.contains(number))
        .flat_map(|number| [format!("{number} zero"), format!("{number} plausible")])
        .filter(|probe| inside.contains_key(probe))
        // `unshare(0)` and the like with no argument ask for nothing, but are refused all the same.
        .collect();
    refused(&inside, &outside, &never);
    for number in 470..=600 {
        assert_eq!(inside[&format!("{number} zero")], "ENOSYS", "an unknown number is not ENOSYS");
    }
    golden("numbers", &inside);
}

#[test]
fn k08_the_x32_and_32_bit_entries_are_closed() {
    let _guard = beside_others();
    let (outside, inside) = (outside("entries"), inside("entries"));
    assert_eq!(outside["int80 getpid"], "allow", "the arm has no teeth");
    for (probe, answer) in &inside {
        assert!(["ENOSYS", "SIGSYS"].contains(&answer.as_str()), "`{probe}`: {answer}");
    }
    assert_eq!(inside["int80 getpid"], "SIGSYS");
    golden("entries", &inside);
}

#[test]
fn k11_no_upper_layer_protocol_transform_or_multicast_can_be_switched_on() {
    let _guard = beside_others();
    let (outside, inside) = (outside("options"), inside("options"));
    let (plain, hostile): (Vec<String>, Vec<String>) =
        inside.keys().cloned().partition(|probe| probe.starts_with("plain"));
    assert!(plain.iter().all(|probe| inside[probe] == "allow"), "ordinary options are refused: {inside:?}");
    let must: Vec<String> = hostile
        .into_iter()
        .filter(|probe| {
            let starts = [
                "tcp ulp",
                "tcp md5",
                "tcp ao",
                "udp encap",
                "ip xfrm",
                "ipv6 xfrm",
                "ip add",
                "ipv6 join",
                "mcast",
                "attach",
                "send out",
            ];
            starts.iter().any(|start| probe.starts_with(start))
        })
        .collect();
    assert!(must.len() >= 12);
    refused(&inside, &outside, &must);
    golden("options", &inside);
}

#[test]
fn k13_priority_inheriting_futexes_are_closed_in_every_disguise() {
    let _guard = beside_others();
    let (outside, inside) = (outside("futexes"), inside("futexes"));
    let inheriting = |probe: &&String| {
        let op = probe.split(' ').nth(1).unwrap();
        ["6", "7", "8", "11", "12", "13"].contains(&op)
    };
    let hostile: Vec<String> = inside.keys().filter(inheriting).cloned().collect();
    assert_eq!(hostile.len(), 30);
    for probe in &hostile {
        assert_eq!(inside[probe], "ENOSYS", "`{probe}`");
    }
    refused(&inside, &outside, &hostile);
    for op in ["0", "1", "9", "10"] {
        assert_eq!(inside[&format!("futex {op}")], "allow", "ordinary waiting and waking is refused");
    }
    golden("futexes", &inside);
}

#[test]
fn k06_dangerous_requests_of_allowed_calls_are_told_apart() {
    let _guard = beside_others();
    let (outside, inside) = (outside("requests"), inside("requests"));
    let must: Vec<String> = inside
        .keys()
        .filter(|probe| {
            let starts = ["tiocsti", "tioclinux", "tiocsetd", "tioccons", "siocs", "prctl set mm", "prctl set ptracer"];
            let clone = probe.starts_with("clone ") && *probe != "clone plain";
            let personality = probe.starts_with("personality");
            clone
                || personality
                || *probe == "prlimit of another"
                || starts.iter().any(|start| probe.starts_with(start))
        })
        .cloned()
        .collect();
    refused(&inside, &outside, &must);
    for probe in ["tcgets", "tiocgwinsz", "prctl name", "prlimit of itself", "clone plain"] {
        assert_eq!(inside[probe], "allow", "`{probe}` is refused");
    }
    golden("requests", &inside);
}
