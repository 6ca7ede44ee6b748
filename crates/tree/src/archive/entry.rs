//! What a member of an archive says it is, whatever the format.

use bailey_protocol::change::NoticeReason;

use crate::error::TreeError;
use crate::path;

/// Longest target of a link.
pub(super) const MAX_TARGET: u64 = 4095;

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its path, checked: relative, no empty, `.` or `..` names. Empty for the folder that was archived itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: MemberKind,
    /// What of it is lost.
    pub notice: Option<NoticeReason>,
}

/// Kinds of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKind {
    /// A folder.
    Folder,
    /// A file, whose content is to be read next.
    File {
        /// Bytes.
        size: u64,
        /// Whether it may be executed.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// Where it leads: data, never followed.
        target: Vec<u8>,
    },
    /// Another name of an earlier member.
    HardLink {
        /// That member's path, checked.
        target: Vec<u8>,
    },
    /// What no tree can hold; its notice says what.
    Nothing,
}

/// The refusal of a member.
pub(super) fn refuse(member: &[u8], fault: &'static str) -> TreeError {
    let member: String = String::from_utf8_lossy(member).chars().take(200).collect();
    TreeError::Archive { member, fault }
}

/// The checked path of a member; empty for `./`, which may be a folder only.
pub(super) fn clean(raw: &[u8], folder: bool) -> Result<Vec<u8>, TreeError> {
    if raw.starts_with(b"/") {
        return Err(refuse(raw, "an absolute path"));
    }
    let mut rest = raw.strip_prefix(b"./").unwrap_or(raw);
    if folder {
        rest = rest.strip_suffix(b"/").unwrap_or(rest);
        if matches!(rest, b"" | b".") && !raw.is_empty() {
            return Ok(Vec::new());
        }
    }
    if rest.is_empty() {
        return Err(refuse(raw, "no name"));
    }
    path::parse(rest).map_err(|rule| refuse(raw, rule))?;
    Ok(rest.to_vec())
}

/// The target of a link.
pub(super) fn check_target(member: &[u8], target: &[u8]) -> Result<(), TreeError> {
    if target.is_empty() || target.len() as u64 > MAX_TARGET || target.contains(&0) {
        return Err(refuse(member, "a link to a place that no link can name"));
    }
    Ok(())
}

/// The executable bit of a mode, and the notice if it has bits that no file of a tree has.
pub(super) fn mode(bits: u64) -> (bool, Option<NoticeReason>) {
    (bits & 0o111 != 0, (bits & 0o7000 != 0).then_some(NoticeReason::SpecialBits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f10_paths_stay_below() {
        for (raw, folder, expected) in [
            (&b"a/b"[..], false, Some(&b"a/b"[..])),
            (b"./a", false, Some(b"a")),
            (b"a/", true, Some(b"a")),
            (b"./", true, Some(b"")),
            (b".", true, Some(b"")),
            (b"..\\x", false, Some(b"..\\x")),
            (b"", true, None),
            (b"", false, None),
            (b".", false, None),
            (b"./", false, None),
            (b"a/", false, None),
            (b"a//b", false, None),
            (b"a/./b", false, None),
            (b"././a", false, None),
            (b"..", true, None),
            (b"../x", false, None),
            (b"a/../../x", false, None),
            (b"./../x", false, None),
            (b"/abs", false, None),
            (b"//abs", false, None),
            (b"a\0b", false, None),
            (b"a//", true, None),
        ] {
            assert_eq!(clean(raw, folder).ok().as_deref(), expected, "{:?}", String::from_utf8_lossy(raw));
        }
    }
}
