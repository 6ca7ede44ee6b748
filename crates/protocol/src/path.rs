//! Where things are: paths in a tenant's tree, paths inside a sandbox, branches.

use std::borrow::Cow;
use std::fmt;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::id::{IdError, TenantId, UserId, VersionId, string_newtype, text_schema};

/// Longest path in bytes, in a tree or in a sandbox.
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest single name in a path, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Most names in one path.
pub const MAX_PATH_DEPTH: usize = 256;

/// Stand, in a path's text, for the bytes 0x80 to 0xff where they are no UTF-8: U+10FF80 for 0x80 and so on.
const ESCAPES: RangeInclusive<char> = '\u{10ff80}'..='\u{10ffff}';

/// The text of a path's bytes: themselves where they are UTF-8, and [`ESCAPES`] for all others. Exact, as each byte of a
/// character that is one of those is escaped itself: no two paths have the same text, and [`bytes_of`] gives them back.
#[must_use]
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.contains(is_escape)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for one in chunk.valid().chars() {
            if is_escape(one) {
                text.extend(one.encode_utf8(&mut [0; 4]).bytes().map(escape));
            } else {
                text.push(one);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(escape));
    }
    Cow::Owned(text)
}

/// The bytes of a path's text.
#[must_use]
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(is_escape) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for one in text.chars() {
        if is_escape(one) {
            let [.., last] = u32::from(one).to_be_bytes();
            bytes.push(last);
        } else {
            bytes.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Cow::Owned(bytes)
}

fn is_escape(one: char) -> bool {
    ESCAPES.contains(&one)
}

fn escape(byte: u8) -> char {
    char::from_u32(0x10_ff00 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// One git store: a tenant's own, or one user's within it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepoId {
    /// The tenant that owns the store.
    pub tenant: TenantId,
    /// `Some` for the store behind `/tenants/{tenant}/users/{user}/`.
    pub user: Option<UserId>,
}

impl RepoId {
    /// The path of the store's root.
    #[must_use]
    pub fn root(&self) -> String {
        match &self.user {
            None => format!("/tenants/{}", self.tenant),
            Some(user) => format!("/tenants/{}/users/{user}", self.tenant),
        }
    }

    /// What is at `inner` in the store, as callers name it.
    #[must_use]
    pub fn below(&self, inner: &str) -> String {
        if inner.is_empty() { self.root() } else { format!("{}/{inner}", self.root()) }
    }
}

/// A canonical path `/tenants/{tenant}[/name…]`: no empty name, no `.` or `..`, no NUL, no trailing slash.
///
/// Decisions are made on this value, so what policy saw is what the tree opens. Other characters, `%`, `\`, line
/// ends and look-alikes included, are ordinary bytes of a name and are never decoded or normalised. A name need not be
/// UTF-8: see [`text_of`]; limits are about its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreePath {
    text: String,
    repo: RepoId,
    /// Byte offset in `text` of the part inside the repo (without leading slash); `text.len()` for its root.
    inner: usize,
}

text_schema!(TreePath, "tree path", "use `/tenants/{tenant}[/name…]`, canonical, of at most 4096 bytes");

impl TreePath {
    /// The whole path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The tenant that the path names.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.repo.tenant
    }

    /// The store that holds the path.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The path inside its store, without a leading slash; empty for the store's root.
    #[must_use]
    pub fn inner(&self) -> &str {
        self.text.get(self.inner..).unwrap_or("")
    }

    /// [`TreePath::inner`] in bytes.
    #[must_use]
    pub fn inner_bytes(&self) -> Cow<'_, [u8]> {
        bytes_of(self.inner())
    }

    /// Whether one of the two paths contains the other, or both are the same.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.holds(other) || other.holds(self)
    }

    /// Whether `other` is this path, or below it in the same store: a tenant's root does not hold its users' folders.
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.repo == other.repo && other.text.strip_prefix(&self.text).is_some_and(below)
    }
}

impl std::str::FromStr for TreePath {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let fail = |rule| IdError::new("tree path", rule, text);
        let bytes = bytes_of(text);
        check_absolute(&bytes, "tree path", text)?;
        if text_of(&bytes) != text {
            return Err(fail("write bytes as U+10FF80 to U+10FFFF where they are no UTF-8, and nowhere else"));
        }
        let mut names = text.split('/').skip(1);
        if names.next() != Some("tenants") {
            return Err(fail("start with /tenants/{tenant}"));
        }
        let tenant: TenantId = names.next().ok_or_else(|| fail("start with /tenants/{tenant}"))?.parse()?;
        let tenant_end = "/tenants/".len() + tenant.as_str().len();
        let (user, end) = match (names.next(), names.next()) {
            (Some("users"), Some(user)) => {
                let user: UserId = user.parse()?;
                let end = tenant_end + "/users/".len() + user.as_str().len();
                (Some(user), end)
            }
            (Some("users"), None) => return Err(fail("name a user after /users/")),
            _ => (None, tenant_end),
        };
        let inner = (end + 1).min(text.len());
        Ok(Self { text: text.to_owned(), repo: RepoId { tenant, user }, inner })
    }
}

impl TryFrom<String> for TreePath {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<TreePath> for String {
    fn from(path: TreePath) -> String {
        path.text
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

string_newtype!(
    /// An absolute, canonical path inside a sandbox, such as `/data`.
    SandboxPath, "sandbox path", "use an absolute path without empty, `.` or `..` names, of at most 4096 bytes",
    |s| check_absolute(s.as_bytes(), "sandbox path", s).is_ok()
);

string_newtype!(
    /// The name of a branch, such as `main` or `runs/run_…`: 1–200 bytes of `A-Z a-z 0-9 . _ / -`, a valid git branch,
    /// and never what could be taken for a version.
    BranchName, "branch name",
    "use 1 to 200 of A-Z, a-z, 0-9 and `. _ / -`, as git allows for a branch, and not 40 hex digits",
    is_branch
);

impl BranchName {
    /// The branch that a tree starts with.
    #[must_use]
    pub fn main() -> Self {
        Self::known("main".to_owned())
    }

    /// The branch that keeps the work of a run whose commit could not land.
    #[must_use]
    pub fn of_run(run: &crate::id::RunId) -> Self {
        Self::known(format!("runs/{run}"))
    }

    fn known(text: String) -> Self {
        debug_assert!(is_branch(&text));
        Self(text)
    }
}

/// What to read of a tree: the head of a branch, or one version. Text of 40 lower-case hex digits is a version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Revision {
    /// Whatever the branch points to now.
    Branch(BranchName),
    /// Exactly this version.
    Version(VersionId),
}

text_schema!(Revision, "revision", "use a branch's name, or a version's 40 lower-case hex digits");

impl std::str::FromStr for Revision {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.parse() {
            Ok(version) => Ok(Self::Version(version)),
            Err(_) => text.parse().map(Self::Branch),
        }
    }
}

impl TryFrom<String> for Revision {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Revision> for String {
    fn from(revision: Revision) -> String {
        match revision {
            Revision::Branch(branch) => branch.into(),
            Revision::Version(version) => version.into(),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(branch) => branch.fmt(f),
            Self::Version(version) => version.fmt(f),
        }
    }
}

fn check_absolute(path: &[u8], kind: &'static str, text: &str) -> Result<(), IdError> {
    let fail = |rule| Err(IdError::new(kind, rule, text));
    let Some(rest) = path.strip_prefix(b"/") else {
        return fail("start with `/`");
    };
    if path.len() > MAX_PATH_BYTES {
        return fail("use at most 4096 bytes");
    }
    let names = || rest.split(|byte| *byte == b'/');
    if names().count() > MAX_PATH_DEPTH {
        return fail("use at most 256 names");
    }
    for name in names() {
        match name {
            b"" => return fail("leave out empty names and the trailing slash"),
            b"." | b".." => return fail("leave out `.` and `..`"),
            long if long.len() > MAX_NAME_BYTES => return fail("use names of at most 255 bytes"),
            nul if nul.contains(&0) => return fail("leave out NUL bytes"),
            _ => {}
        }
    }
    Ok(())
}

fn is_branch(text: &str) -> bool {
    (1..=200).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b))
        && !text.starts_with('-')
        && !text.contains("..")
        && text
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && !part.ends_with(".lock"))
        && text != "HEAD"
        && text.parse::<VersionId>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_knows_its_store_and_its_place_in_it() {
        let path: TreePath = "/tenants/acme/reports/q1.csv".parse().unwrap();
        assert_eq!(path.tenant().as_str(), "acme");
        assert_eq!(path.inner(), "reports/q1.csv");
        assert_eq!(path.repo().user, None);
        let path: TreePath = "/tenants/acme/users/ana/notes".parse().unwrap();
        assert_eq!(path.repo().user.as_ref().unwrap().as_str(), "ana");
        assert_eq!(path.inner(), "notes");
        let root: TreePath = "/tenants/acme".parse().unwrap();
        assert_eq!(root.inner(), "");
        assert!(root.overlaps(&"/tenants/acme/x".parse().unwrap()));
        assert!(!root.overlaps(&path));
    }

    #[test]
    fn f01_traversal_never_parses() {
        for bad in [
            "",
            "/",
            "tenants/acme",
            "/tenants",
            "/tenants/",
            "/tenants/acme/",
            "/tenants/acme//x",
            "/tenants/acme/../globex",
            "/tenants/acme/./x",
            "/tenants/../x",
            "/tenants/acme/x\0y",
            "/tenants/acme/users",
            "/tenants/acme/users/..",
            "//tenants/acme",
            "/Tenants/acme",
        ] {
            assert!(bad.parse::<TreePath>().is_err(), "{bad:?}");
        }
        assert!(format!("/tenants/acme/{}", "n".repeat(256)).parse::<TreePath>().is_err());
        assert!(format!("/tenants/acme{}", "/n".repeat(2100)).parse::<TreePath>().is_err());
    }

    #[test]
    fn f01_encodings_are_ordinary_bytes() {
        for odd in ["..%2f", "%2e%2e", "..\\", "....", "．．", "a\r\nb", "trailing.", "trailing "] {
            let path: TreePath = format!("/tenants/acme/{odd}/x").parse().unwrap();
            assert_eq!(path.inner(), format!("{odd}/x"));
        }
    }

    #[test]
    fn bytes_that_are_no_text_have_one_text_and_come_back() {
        for (bytes, text) in [
            (&b"a"[..], "a"),
            (b"a\xff", "a\u{10ffff}"),
            (b"caf\xe9/\x80", "caf\u{10ffe9}/\u{10ff80}"),
            ("\u{fc}".as_bytes(), "\u{fc}"),
            (b"\xc3", "\u{10ffc3}"),
            // The character that stands for 0xff, as a name of its own; and what comes just before it.
            (b"\xf4\x8f\xbf\xbf", "\u{10fff4}\u{10ff8f}\u{10ffbf}\u{10ffbf}"),
            ("\u{10ff7f}".as_bytes(), "\u{10ff7f}"),
        ] {
            assert_eq!(text_of(bytes), text);
            assert_eq!(*bytes_of(text), *bytes);
            let path: TreePath = format!("/tenants/acme/{text}").parse().unwrap();
            assert_eq!(*path.inner_bytes(), *bytes);
        }
        // Two texts of one path: the other is none.
        for bad in ["\u{10ffc3}\u{10ffa9}", "\u{10fff4}\u{10ff8f}\u{10ffbf}/\u{10ffc3}\u{10ffbc}"] {
            assert!(format!("/tenants/acme/{bad}").parse::<TreePath>().is_err(), "{bad:?}");
        }
        let long = |count| format!("/tenants/acme/{}", "\u{10ffff}".repeat(count));
        assert!(long(MAX_NAME_BYTES).parse::<TreePath>().is_ok() && long(256).parse::<TreePath>().is_err());
    }

    #[test]
    fn a_revision_is_a_version_or_a_branch() {
        let version = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(version.parse::<Revision>().unwrap(), Revision::Version(version.parse().unwrap()));
        assert_eq!("main".parse::<Revision>().unwrap(), Revision::Branch(BranchName::main()));
        assert!("../x".parse::<Revision>().is_err());
    }

    #[test]
    fn branches_are_valid_for_git() {
        for good in ["main", "runs/run_01", "a.b/c-d"] {
            assert!(good.parse::<BranchName>().is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "-a", ".a", "a..b", "a.lock", "a/.b", "HEAD", "a b", "a~1", "a\n"] {
            assert!(bad.parse::<BranchName>().is_err(), "{bad:?}");
        }
        // What reads as a version can never be written to as a branch.
        assert!("0123456789abcdef0123456789abcdef01234567".parse::<BranchName>().is_err());
    }
}
