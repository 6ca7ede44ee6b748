//! What arrives by HTTP: JSON bodies of each kind, forms, queries, paths, and the lines that git clients send. Each line
//! is tried as a path and as a query, the whole as everything else.

use std::collections::HashSet;
use std::fmt::Debug;

use bailey_protocol::api::identity::{IdentityEvent, KeyRequest, TenantNotes};
use bailey_protocol::api::policy::{DryRunRequest, ExplainRequest, PolicyText};
use bailey_protocol::api::{
    CopyRequest, ForkRequest, LabelRequest, PromotionRequest, RestoreRequest, RevertRequest, RunRequest, TreePatch,
    TreeTokenRequest,
};
use bailey_protocol::git::GitProtocol;
use bailey_protocol::limits::MAX_MOUNTS;
use bailey_protocol::path::TreePath;
use bailey_protocol::purge::PurgeRequest;
use bailey_protocol::quota::TenantQuota;
use bailey_tree::Patch;
use http::Uri;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    audit_routes, branch_routes, form, git_routes, identity_routes, json, query, run_routes, tree_change_routes,
    tree_path, tree_routes,
};
use crate::config::ControlConfig;
use crate::git::pkt::{self, Pkt, PktReader, PktTrack};
use crate::git::{fetch, push};
use crate::ops::tree_edit;
use crate::run_request;

/// What is understood is the same when it is said again, and within its bounds; what is not is an answer.
pub fn bodies(data: &[u8]) {
    json_bodies(data);
    if let Ok(form) = form::parse(data) {
        assert!(form.subject_token.len() <= data.len());
    }
    lines_of_git(data);
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(text) = std::str::from_utf8(line) {
            path(text);
            queries(text);
        }
    }
}

/// The body, if it is one of that kind.
fn body<T: DeserializeOwned + Serialize + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let parsed: T = json::parse(data).ok()?;
    let again = serde_json::to_vec(&parsed).expect("what was parsed can be written");
    assert_eq!(json::parse::<T>(&again).ok().as_ref(), Some(&parsed), "{}", again.escape_ascii());
    Some(parsed)
}

/// Which kinds of body it is one of.
fn json_bodies(data: &[u8]) -> [bool; 17] {
    let patch = body::<TreePatch>(data);
    let run = body::<RunRequest>(data);
    let kinds = [
        body::<CopyRequest>(data).is_some(),
        body::<RestoreRequest>(data).is_some(),
        body::<RevertRequest>(data).is_some(),
        body::<ForkRequest>(data).is_some(),
        body::<PromotionRequest>(data).is_some(),
        body::<LabelRequest>(data).is_some(),
        body::<TreeTokenRequest>(data).is_some(),
        body::<PolicyText>(data).is_some(),
        body::<ExplainRequest>(data).is_some(),
        body::<DryRunRequest>(data).is_some(),
        body::<KeyRequest>(data).is_some(),
        body::<IdentityEvent>(data).is_some(),
        body::<TenantNotes>(data).is_some(),
        body::<PurgeRequest>(data).is_some(),
        body::<TenantQuota>(data).is_some(),
        patch.is_some(),
        run.is_some(),
    ];
    for (number, edit) in patch.into_iter().flat_map(|patch| patch.edits).enumerate() {
        if let Ok(Patch::Range { range, .. }) = tree_edit::parse(number, edit) {
            assert!(range.start <= range.end);
        }
    }
    if let Some(request) = run {
        planned(request);
    }
    kinds
}

/// A run that is planned stays below the server's ceiling and off the folders that its sandbox needs.
fn planned(request: RunRequest) -> bool {
    let config = ControlConfig::new("base".parse().expect("a template's name")).runs;
    let Ok(run) = run_request::plan(request, &config) else { return false };
    let ceiling = &config.ceiling;
    assert!(run.limits.cpu_millis <= ceiling.cpu_millis && run.limits.memory_bytes <= ceiling.memory_bytes);
    assert!(run.limits.disk_bytes <= ceiling.disk_bytes && run.limits.timeout_ms <= ceiling.timeout_ms);
    assert!(!run.command.is_empty() && run.command.iter().all(|argument| !argument.contains('\0')));
    assert!(run.env.iter().all(|(name, value)| !name.contains(['=', '\0']) && !value.contains('\0')));
    assert!(run.mounts.len() <= MAX_MOUNTS);
    let places = run.mounts.iter().map(|mount| &mount.at).chain(run.files.iter().map(|file| &file.at));
    for place in places {
        let top = place.as_str().split('/').nth(1).unwrap_or_default();
        assert!(!["proc", "dev", "sys", "run", ""].contains(&top), "{place}");
    }
    let places: HashSet<_> = run.mounts.iter().map(|mount| &mount.at).collect();
    assert_eq!(places.len(), run.mounts.len(), "two slices in one place");
    true
}

fn path(text: &str) {
    if let Ok(path) = tree_path::parse(text, "/v1/tree") {
        let escaped: String = path.as_str().bytes().map(|byte| format!("%{byte:02X}")).collect();
        let again = tree_path::parse(&escaped, "/v1/tree");
        assert_eq!(again.ok().as_ref(), Some(&path), "{text:?}");
        // It was decoded once: nothing that is written as an escape now is one.
        assert_eq!(path.as_str().parse::<TreePath>().ok().as_ref(), Some(&path));
    }
    if let Ok(uri) = text.parse::<Uri>()
        && let Ok((store, service)) = git_routes::address(&uri)
    {
        assert_eq!(store.inner(), "", "{text:?} is no whole store");
        assert!(uri.path().ends_with(service));
    }
}

fn queries(text: &str) {
    let Ok(uri) = format!("/x?{text}").parse::<Uri>() else { return };
    drop(query::parse::<audit_routes::AuditQuery>(&uri));
    drop(query::parse::<audit_routes::ExportQuery>(&uri));
    drop(query::parse::<audit_routes::OperatorExportQuery>(&uri));
    drop(query::parse::<branch_routes::BranchesQuery>(&uri));
    drop(query::parse::<branch_routes::BranchQuery>(&uri));
    drop(query::parse::<branch_routes::ProtectQuery>(&uri));
    drop(query::parse::<git_routes::ServiceQuery>(&uri));
    drop(query::parse::<identity_routes::UsersQuery>(&uri));
    drop(query::parse::<identity_routes::KeysQuery>(&uri));
    drop(query::parse::<identity_routes::TenantsQuery>(&uri));
    drop(query::parse::<run_routes::ListQuery>(&uri));
    drop(query::parse::<run_routes::EventsQuery>(&uri));
    drop(query::parse::<tree_change_routes::PatchQuery>(&uri));
    drop(query::parse::<tree_change_routes::BlameQuery>(&uri));
    drop(query::parse::<tree_routes::ReadQuery>(&uri));
    drop(query::parse::<tree_routes::WriteQuery>(&uri));
    drop(query::parse::<tree_routes::DeleteQuery>(&uri));
    drop(query::parse::<tree_routes::HistoryQuery>(&uri));
    drop(query::parse::<tree_routes::DiffQuery>(&uri));
    if query::parse::<query::NoQuery>(&uri).is_ok() {
        assert!(text.split('#').next().is_some_and(|query| query.trim_matches('&').is_empty()), "{text:?}");
    }
}

fn lines_of_git(data: &[u8]) {
    for protocol in [GitProtocol::V0, GitProtocol::V1, GitProtocol::V2] {
        drop(fetch::parse(protocol, data));
    }
    let mut again = Vec::new();
    let mut lines = PktReader::new(data, data.len());
    while let Ok(Some(line)) = lines.next() {
        match line {
            Pkt::Data(bytes) => pkt::line(&mut again, &bytes),
            Pkt::Flush => again.extend_from_slice(b"0000"),
            Pkt::Delim => again.extend_from_slice(b"0001"),
            Pkt::End => again.extend_from_slice(b"0002"),
        }
    }
    // Only the digits of a length may be written otherwise.
    assert!(data.get(..again.len()).is_some_and(|read| read.eq_ignore_ascii_case(&again)));
    let (mut whole, mut pieces) = (PktTrack::default(), PktTrack::default());
    whole.saw(data);
    data.chunks(1).for_each(|piece| pieces.saw(piece));
    assert_eq!(whole.rest(), pieces.rest(), "where lines are depends on how they are cut");
    if let Ok((request, rest)) = push::parse(data) {
        let names: HashSet<_> = request.commands.iter().map(|command| &command.name).collect();
        assert!(names.len() == request.commands.len() && names.len() <= 256);
        assert!(data.ends_with(rest), "what follows is no pack of this push");
        let branches = request.commands.iter().filter_map(|command| Some((command, command.branch().ok()?)));
        for (command, branch) in branches {
            assert_eq!(command.name, format!("refs/heads/{branch}"));
            assert!(!branch.as_str().starts_with("runs/"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay;

    #[test]
    fn w05_whatever_arrives_is_understood_in_one_way_or_refused() {
        let corpus = replay::corpus("bodies");
        let kinds: Vec<_> = corpus.iter().map(|(_, bytes)| json_bodies(bytes)).collect();
        for kind in 0..17 {
            assert!(kinds.iter().any(|kinds| kinds[kind]), "no seed is a body of kind {kind}");
        }
        let run = corpus.iter().find(|(name, _)| name == "run").unwrap();
        assert!(planned(json::parse(&run.1).unwrap()), "the seed is no run that could be");
        replay::target("bodies", 1500, bodies);
    }
}
