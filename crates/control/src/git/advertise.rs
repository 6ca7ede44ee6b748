//! What a client is told before it asks: the branches of a store, in each version of the protocol.
//!
//! It is written here, from the database, so that no sandbox is needed to list branches. The capabilities are those
//! that the template's git answers to in [`crate::ops::git_fetch`].

use bailey_protocol::git::GitProtocol;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::BranchName;

use super::pkt;

const AGENT: &str = concat!("agent=bailey/", env!("CARGO_PKG_VERSION"));
/// What the template's git does for fetches, in versions 0 and 1.
const FETCH: &str = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
                     deepen-relative no-progress multi_ack_detailed no-done object-format=sha1";
/// What is done with pushes.
const PUSH: &str = "report-status delete-refs side-band-64k quiet atomic ofs-delta object-format=sha1";
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// Branches with their heads, in the order of their names.
pub(crate) type Heads = [(BranchName, VersionId)];

/// Which of the two services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// `git-upload-pack`
    Fetch,
    /// `git-receive-pack`
    Push,
}

impl Service {
    /// As it is named in URLs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fetch => "git-upload-pack",
            Self::Push => "git-receive-pack",
        }
    }
}

/// The answer to `GET …/info/refs?service=…`. `cut` are the versions at which history ends early.
pub(crate) fn advertisement(service: Service, protocol: GitProtocol, heads: &Heads, cut: &[VersionId]) -> Vec<u8> {
    let mut out = Vec::new();
    pkt::line(&mut out, format!("# service={}\n", service.name()).as_bytes());
    pkt::flush(&mut out);
    match (service, protocol) {
        (Service::Fetch, GitProtocol::V2) => {
            for line in
                ["version 2\n", &format!("{AGENT}\n"), "ls-refs=unborn\n", "fetch=shallow\n", "object-format=sha1\n"]
            {
                pkt::line(&mut out, line.as_bytes());
            }
            pkt::flush(&mut out);
        }
        // Pushes have no second version: git falls back to the first by itself.
        (Service::Push, GitProtocol::V0 | GitProtocol::V2) | (Service::Fetch, GitProtocol::V0) => {
            refs(&mut out, service, heads, cut);
        }
        (_, GitProtocol::V1) => {
            pkt::line(&mut out, b"version 1\n");
            refs(&mut out, service, heads, cut);
        }
    }
    out
}

fn refs(out: &mut Vec<u8>, service: Service, heads: &Heads, cut: &[VersionId]) {
    let main = heads.iter().find(|(branch, _)| *branch == BranchName::main());
    let capabilities = match (service, main) {
        (Service::Push, _) => format!("{PUSH} {AGENT}"),
        (Service::Fetch, Some(_)) => format!("{FETCH} symref=HEAD:refs/heads/main {AGENT}"),
        (Service::Fetch, None) => format!("{FETCH} {AGENT}"),
    };
    let head = main.filter(|_| service == Service::Fetch).map(|(_, version)| (version.as_str(), "HEAD".to_owned()));
    let branches = heads.iter().map(|(branch, version)| (version.as_str(), format!("refs/heads/{branch}")));
    let mut rows: Vec<(&str, String)> = head.into_iter().chain(branches).collect();
    if rows.is_empty() {
        rows.push((NOTHING, "capabilities^{}".to_owned()));
    }
    for (number, (id, name)) in rows.iter().enumerate() {
        let line = match number {
            0 => format!("{id} {name}\0{capabilities}\n"),
            _ => format!("{id} {name}\n"),
        };
        pkt::line(out, line.as_bytes());
    }
    for version in cut {
        pkt::line(out, format!("shallow {version}\n").as_bytes());
    }
    pkt::flush(out);
}

/// What `ls-refs` asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListRefs {
    pub(crate) symrefs: bool,
    pub(crate) unborn: bool,
    /// Any of these, or all refs when there is none.
    pub(crate) prefixes: Vec<Vec<u8>>,
}

/// The answer to `ls-refs`.
pub(crate) fn list(asked: &ListRefs, heads: &Heads) -> Vec<u8> {
    let wanted = |name: &str| {
        asked.prefixes.is_empty() || asked.prefixes.iter().any(|prefix| name.as_bytes().starts_with(prefix))
    };
    let mut out = Vec::new();
    let target = if asked.symrefs { " symref-target:refs/heads/main" } else { "" };
    if wanted("HEAD") {
        match heads.iter().find(|(branch, _)| *branch == BranchName::main()) {
            Some((_, version)) => pkt::line(&mut out, format!("{version} HEAD{target}\n").as_bytes()),
            None if asked.unborn => pkt::line(&mut out, format!("unborn HEAD{target}\n").as_bytes()),
            None => {}
        }
    }
    for (branch, version) in heads {
        let name = format!("refs/heads/{branch}");
        if wanted(&name) {
            pkt::line(&mut out, format!("{version} {name}\n").as_bytes());
        }
    }
    pkt::flush(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";

    fn heads(names: &[&str]) -> Vec<(BranchName, VersionId)> {
        names.iter().map(|name| (name.parse().unwrap(), A.parse().unwrap())).collect()
    }

    fn told(service: Service, protocol: GitProtocol, names: &[&str], cut: &[VersionId]) -> String {
        String::from_utf8(advertisement(service, protocol, &heads(names), cut)).unwrap()
    }

    #[test]
    fn branches_head_and_early_ends_are_told_in_the_first_versions() {
        let text = told(Service::Fetch, GitProtocol::V0, &["a", "main"], &[A.parse().unwrap()]);
        assert!(text.starts_with("001e# service=git-upload-pack\n0000"), "{text}");
        assert!(text.contains(&format!("{A} HEAD\0")) && text.contains(" symref=HEAD:refs/heads/main "), "{text}");
        assert!(text.ends_with(&format!("003d{A} refs/heads/main\n0035shallow {A}\n0000")), "{text}");
        let push = told(Service::Push, GitProtocol::V1, &["a"], &[]);
        assert!(
            push.contains("000eversion 1\n") && push.contains(&format!("{A} refs/heads/a\0report-status")),
            "{push}"
        );
        let empty = told(Service::Fetch, GitProtocol::V0, &[], &[]);
        assert!(empty.contains(&format!("{NOTHING} capabilities^{{}}\0")), "{empty}");
        assert!(told(Service::Fetch, GitProtocol::V2, &["a"], &[]).contains("000eversion 2\n"));
    }

    #[test]
    fn a_list_has_what_was_asked_for() {
        let text = |asked: &ListRefs, names: &[&str]| String::from_utf8(list(asked, &heads(names))).unwrap();
        let all = ListRefs { symrefs: true, unborn: true, prefixes: Vec::new() };
        assert_eq!(
            text(&all, &["main"]),
            format!("0050{A} HEAD symref-target:refs/heads/main\n003d{A} refs/heads/main\n0000")
        );
        assert_eq!(text(&all, &[]), "002eunborn HEAD symref-target:refs/heads/main\n0000");
        let some = ListRefs { prefixes: vec![b"refs/heads/b".to_vec()], ..ListRefs::default() };
        assert_eq!(text(&some, &["a", "b"]), format!("003a{A} refs/heads/b\n0000"));
    }
}
