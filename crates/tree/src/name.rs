//! Names that git must not see in a tree, and the reversible escape under which they are stored.
//!
//! `.git`, and what HFS+ or NTFS take for it or for `.gitmodules` and `.gitattributes`, may not appear in a git tree. Agents
//! make all of them every day. Such a name is stored as [`PREFIX`] followed by the name, with `=` as `=3d` and `\` as `=5c` (NTFS sees a path in a backslash). A name that
//! begins with [`PREFIX`] itself is escaped too, so that every stored name stands for exactly one real name.
//!
//! `.gitmodules` and `.gitattributes`, spelled so, are files like others, for nothing here acts on them; only a file may
//! have such a name, since git refuses to check out a tree in which a link or folder has it.

use std::borrow::Cow;

use bailey_protocol::path::MAX_NAME_BYTES;

/// What an escaped name starts with in git.
const PREFIX: &[u8] = b"bailey=";

/// The name under which git stores `real`.
pub(crate) fn escape(real: &[u8]) -> Cow<'_, [u8]> {
    if is_gits_file(real) || (!real.starts_with(PREFIX) && !is_reserved(real)) {
        return Cow::Borrowed(real);
    }
    let mut stored = PREFIX.to_vec();
    for byte in real {
        match byte {
            b'=' => stored.extend_from_slice(b"=3d"),
            b'\\' => stored.extend_from_slice(b"=5c"),
            other => stored.push(*other),
        }
    }
    Cow::Owned(stored)
}

/// The real name behind `stored`; a name that is no escape of ours stands for itself.
pub(crate) fn unescape(stored: &[u8]) -> Cow<'_, [u8]> {
    match stored.strip_prefix(PREFIX).and_then(decode) {
        Some(real) => Cow::Owned(real),
        None => Cow::Borrowed(stored),
    }
}

fn decode(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut real = Vec::with_capacity(rest.len());
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte == b'=' {
            let (code, tail) = rest.split_at_checked(2)?;
            rest = tail;
            real.push(match code {
                b"3d" => b'=',
                b"5c" => b'\\',
                _ => return None,
            });
        } else {
            real.push(*byte);
        }
    }
    Some(real)
}

/// Why `name` cannot be one name of a path.
pub(crate) fn check(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("leave out empty names"),
        b"." | b".." => Err("leave out `.` and `..`"),
        long if long.len() > MAX_NAME_BYTES => Err("use names of at most 255 bytes"),
        odd if odd.contains(&0) => Err("leave out NUL bytes"),
        odd if odd.contains(&b'/') => Err("leave out `/` in names"),
        _ => Ok(()),
    }
}

/// Why a folder or link cannot have one of git's names.
pub(crate) const ONLY_A_FILE: &str = "git takes that name for a file of its own: only a file can have it";

/// Whether it is the name of a file that git looks for in a tree.
pub(crate) fn is_gits_file(real: &[u8]) -> bool {
    matches!(real, b".gitmodules" | b".gitattributes")
}

/// Whether a path that ends in a file, or in something else, has something else where only a file can be.
pub(crate) fn misuses_gits_file<'n>(path: impl DoubleEndedIterator<Item = &'n [u8]>, is_file: bool) -> bool {
    path.rev().enumerate().any(|(above, name)| (above > 0 || !is_file) && is_gits_file(name))
}

/// Whether git, on any system, may take `name` for one of its own. Wider than git's rules, never narrower.
fn is_reserved(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'\\').any(|part| {
        let part = fold(part);
        let part = part.split(|byte| *byte == b':').next().unwrap_or_default();
        let end = part.iter().rposition(|byte| !matches!(byte, b' ' | b'.')).map_or(0, |last| last + 1);
        let part = part.get(..end).unwrap_or_default();
        matches!(part, b".git" | b".gitmodules" | b".gitattributes") || is_short_name(part)
    })
}

/// The names that NTFS makes for the long ones: `git~1`, `gitmod~2`, `gi7eba~1`, `g~123456`.
fn is_short_name(name: &[u8]) -> bool {
    let mut halves = name.splitn(2, |byte| *byte == b'~');
    let (Some(stem), Some(number)) = (halves.next(), halves.next()) else {
        return false;
    };
    let stems: [&[u8]; 5] = [b"git", b"gitmod", b"gitatt", b"gi7eba", b"gi7d29"];
    !number.is_empty() && number.iter().all(u8::is_ascii_digit) && stems.iter().any(|known| known.starts_with(stem))
}

/// Lower case, without the characters that HFS+ ignores in names.
fn fold(name: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, tail)) = rest.split_first() {
        let ignored = match rest.first_chunk::<3>() {
            Some([0xe2, 0x80, last]) => matches!(last, 0x8c..=0x8f | 0xaa..=0xae),
            Some([0xe2, 0x81, last]) => matches!(last, 0xaa..=0xaf),
            Some([0xef, 0xbb, 0xbf]) => true,
            _ => false,
        };
        if ignored {
            rest = rest.get(3..).unwrap_or_default();
        } else {
            folded.push(byte.to_ascii_lowercase());
            rest = tail;
        }
    }
    folded
}

#[cfg(test)]
mod tests;
