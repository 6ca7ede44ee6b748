//! What there is to say about one file: E2B's `EntryInfo`.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::Serialize;

use super::path;

/// Largest `/etc/passwd` or `/etc/group` that is read for names.
const MAX_NAMES: usize = 256 * 1024;

/// One file, folder or link.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    name: String,
    r#type: &'static str,
    path: String,
    /// A number, as proto3's JSON writes 64-bit ones.
    size: String,
    mode: u32,
    permissions: String,
    owner: String,
    group: String,
    modified_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
}

/// Names of users and groups, as the sandbox's own files have them.
#[derive(Debug, Default)]
pub struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    /// Reads the names. Without the files everyone is a number.
    #[must_use]
    pub fn read() -> Self {
        Self { users: names_in("/etc/passwd"), groups: names_in("/etc/group") }
    }
}

fn names_in(file: &str) -> HashMap<u32, String> {
    let Ok(file) = path::open(None, file, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) else {
        return HashMap::new();
    };
    let mut bytes = vec![0; MAX_NAMES];
    let length = rustix::io::read(&file, &mut *bytes).unwrap_or(0);
    let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned();
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    // The first line of an id counts.
    text.lines().rev().filter_map(name).collect()
}

/// Describes what `path` names, without following it at the end.
///
/// # Errors
/// What the kernel says.
pub fn describe(path: &str, names: &Names) -> Result<Entry, Errno> {
    let file = path::open(None, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    Ok(of(name, path.to_owned(), &stat, &file, names))
}

/// Describes an open (`O_PATH`) file.
#[must_use]
pub fn of(name: &str, path: String, stat: &Stat, file: &OwnedFd, names: &Names) -> Entry {
    let mut kind = FileType::from_raw_mode(stat.st_mode);
    let mut mode = stat.st_mode & 0o7777;
    let mut symlink_target = None;
    let permissions = permissions(stat.st_mode);
    if kind == FileType::Symlink {
        // Type and mode are those of what it leads to, if that exists.
        match path::open(None, &path, OFlags::PATH, Mode::empty()) {
            Ok(target) => {
                if let Ok(target_stat) = rustix::fs::fstat(&target) {
                    kind = FileType::from_raw_mode(target_stat.st_mode);
                    mode = target_stat.st_mode & 0o7777;
                }
                symlink_target = resolved(&target);
            }
            Err(_broken) => {
                let target = rustix::fs::readlinkat(file, "", Vec::new()).ok();
                symlink_target = target.map(|target| target.to_string_lossy().into_owned());
            }
        }
    }
    Entry {
        name: name.to_owned(),
        r#type: match kind {
            FileType::RegularFile => "FILE_TYPE_FILE",
            FileType::Directory => "FILE_TYPE_DIRECTORY",
            FileType::Symlink => "FILE_TYPE_SYMLINK",
            _ => "FILE_TYPE_UNSPECIFIED",
        },
        path,
        size: stat.st_size.to_string(),
        mode,
        permissions,
        owner: names.users.get(&stat.st_uid).cloned().unwrap_or_else(|| stat.st_uid.to_string()),
        group: names.groups.get(&stat.st_gid).cloned().unwrap_or_else(|| stat.st_gid.to_string()),
        modified_time: timestamp(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        symlink_target,
    }
}

/// Where an open file is, by the kernel's own word.
fn resolved(file: &OwnedFd) -> Option<String> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::readlink(link, Vec::new()).ok().map(|target| target.to_string_lossy().into_owned())
}

/// Opens an entry of a folder for [`of`].
///
/// # Errors
/// What the kernel says.
pub fn open_entry(folder: &OwnedFd, name: &str) -> Result<(OwnedFd, Stat), Errno> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((path::open(Some(folder), name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?, stat))
}

/// Mode in letters, as Go writes it.
fn permissions(mode: u32) -> String {
    let kind = FileType::from_raw_mode(mode);
    let letters = [
        (kind == FileType::Directory, "d"),
        (kind == FileType::Symlink, "L"),
        (matches!(kind, FileType::BlockDevice | FileType::CharacterDevice), "D"),
        (kind == FileType::Fifo, "p"),
        (kind == FileType::Socket, "S"),
        (mode & 0o4000 != 0, "u"),
        (mode & 0o2000 != 0, "g"),
        (kind == FileType::CharacterDevice, "c"),
        (mode & 0o1000 != 0, "t"),
    ];
    let mut text: String = letters.iter().filter(|(set, _)| *set).map(|(_, letter)| *letter).collect();
    if text.is_empty() {
        text.push('-');
    }
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        text.push(if mode & (1 << bit) == 0 { '-' } else { letter });
    }
    text
}

/// Seconds since 1970 as RFC 3339, in UTC.
fn timestamp(seconds: i64, nanoseconds: u32) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years (Howard Hinnant's algorithm).
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_go_does() {
        for (mode, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "Lrwxrwxrwx"),
            (0o104_755, "urwxr-xr-x"),
            (0o041_777, "dtrwxrwxrwx"),
            (0o020_666, "Dcrw-rw-rw-"),
        ] {
            assert_eq!(permissions(mode), text);
        }
    }

    #[test]
    fn times_are_right_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000000Z"),
            (-1, "1969-12-31T23:59:59.000000000Z"),
        ] {
            assert_eq!(timestamp(seconds, 0), text);
        }
    }
}
