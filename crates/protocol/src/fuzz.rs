//! What names may be, as hostile bytes: each line is tried as every kind of name, and so is the whole.

use std::ffi::OsStr;
use std::fmt::{Debug, Display};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guest::{MAX_STREAM_HEADER, StreamTarget};
use crate::id::{
    BaselineName, IdError, KeyId, RequestId, RunId, SandboxId, TemplateDigest, TemplateName, TenantId, TokenId, TreeId,
    UserId, VersionId,
};
use crate::label::Label;
use crate::path::{
    BranchName, MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_DEPTH, Revision, SandboxPath, TreePath, bytes_of, text_of,
};

/// What is accepted prints as it came, on every way in, and stays inside its root.
pub fn paths(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    text.split('\n').for_each(line);
    line(text);
}

fn line(text: &str) {
    name::<TenantId>(text);
    name::<TemplateName>(text);
    name::<BaselineName>(text);
    name::<TemplateDigest>(text);
    name::<VersionId>(text);
    name::<TreeId>(text);
    name::<RunId>(text);
    name::<SandboxId>(text);
    name::<KeyId>(text);
    name::<RequestId>(text);
    name::<TokenId>(text);
    name::<Label>(text);
    if let Some(user) = name::<UserId>(text) {
        stays_inside(user.as_str().as_bytes());
        assert!(!user.as_str().contains('/'), "{user:?}");
    }
    if let Some(path) = name::<SandboxPath>(text) {
        absolute(path.as_str().as_bytes());
    }
    if let Some(branch) = name::<BranchName>(text) {
        stays_inside(branch.as_str().as_bytes());
        assert!(branch.as_str().parse::<VersionId>().is_err(), "{branch} could be taken for a version");
    }
    if let Some(Revision::Version(version)) = name::<Revision>(text) {
        assert_eq!(version.as_str(), text);
    }
    if let Some(path) = name::<TreePath>(text) {
        tree_path(&path);
    }
    if let Some(target) = StreamTarget::parse(text) {
        assert_eq!(target.to_line(), format!("{text}\n"));
        assert!(target.to_line().len() <= MAX_STREAM_HEADER, "{text:?}");
    }
}

/// The name behind a text, if it is one.
fn name<T>(text: &str) -> Option<T>
where
    T: FromStr<Err = IdError> + Display + Debug + PartialEq + Serialize + DeserializeOwned,
{
    let quoted = serde_json::Value::from(text);
    let decoded = serde_json::from_value::<T>(quoted.clone());
    match text.parse::<T>() {
        Ok(parsed) => {
            assert_eq!(parsed.to_string(), text);
            assert_eq!(serde_json::to_value(&parsed).ok(), Some(quoted));
            assert_eq!(decoded.ok().as_ref(), Some(&parsed), "another way in says something else");
            Some(parsed)
        }
        Err(error) => {
            assert!(decoded.is_err(), "{text:?} comes in another way");
            // It reaches logs and answers: short, and nothing that a terminal acts on.
            assert!(error.value.len() <= 64 * 10 && error.value.chars().all(|c| c.is_ascii() && !c.is_ascii_control()));
            None
        }
    }
}

/// The path names its store and its place in it, and nothing else.
fn tree_path(path: &TreePath) {
    let bytes = bytes_of(path.as_str());
    absolute(&bytes);
    assert_eq!(text_of(&bytes), path.as_str(), "another text has the same bytes");
    let mut root = format!("/tenants/{}", path.tenant());
    if let Some(user) = &path.repo().user {
        root.push_str(&format!("/users/{user}"));
    }
    let whole = if path.inner().is_empty() { root.clone() } else { format!("{root}/{}", path.inner()) };
    assert_eq!(whole, path.as_str());
    assert_eq!(path.tenant(), &path.repo().tenant);
    let root: TreePath = root.parse().expect("a store's root is a path");
    assert!(root.holds(path) && path.holds(path) && root.repo() == path.repo(), "{path:?}");
    assert!(root == *path || !path.holds(&root), "{path:?}");
    if path.repo().user.is_none() {
        assert!(path.inner() != "users" && !path.inner().starts_with("users/"), "{path:?} is in a user's store");
    }
}

fn absolute(path: &[u8]) {
    assert!(path.len() <= MAX_PATH_BYTES, "{path:?}");
    stays_inside(path.strip_prefix(b"/").expect("it is absolute"));
}

/// That an operating system finds below a folder what is looked for there under that path.
fn stays_inside(path: &[u8]) {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    assert!(names.len() <= MAX_PATH_DEPTH && !path.contains(&0), "{path:?}");
    assert!(names.iter().all(|name| (1..=MAX_NAME_BYTES).contains(&name.len())), "{path:?}");
    let found: Vec<_> = Path::new(OsStr::from_bytes(path)).components().collect();
    assert_eq!(found.len(), names.len(), "{path:?}");
    assert!(found.iter().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f01_no_name_leads_out_whatever_is_tried() {
        replay::target("paths", 2000, paths);
    }
}
