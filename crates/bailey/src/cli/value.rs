//! Values as people type them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use bailey_protocol::api::MountRequest;
use bailey_protocol::id::IdError;
use bailey_protocol::path::{SandboxPath, TreePath};
use bailey_protocol::wall::{CodeLanguage, WallChoice, WallKind};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};

/// `500ms`, `30s`, `5m`, `1h`, `7d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let rule = || format!("`{text}` is no time: use a number and one of ms, s, m, h, d, such as `30s`");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(rule)?;
    let (number, unit) = text.split_at_checked(digits).ok_or_else(rule)?;
    let number: u64 = number.parse().map_err(|_not_a_number| rule())?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(rule()),
    };
    number.checked_mul(factor).map(Duration::from_millis).ok_or_else(rule)
}

/// `65536`, `64K`, `512M`, `2G`, in powers of 1,024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let rule = || format!("`{text}` is no size: use a number of bytes, or one with K, M or G, such as `512M`");
    let (number, shift) = match text.strip_suffix("iB").unwrap_or(text) {
        kib if kib.ends_with('K') => (kib.strip_suffix('K'), 10),
        mib if mib.ends_with('M') => (mib.strip_suffix('M'), 20),
        gib if gib.ends_with('G') => (gib.strip_suffix('G'), 30),
        bytes => (Some(bytes), 0),
    };
    let number: u64 = number.and_then(|number| number.parse().ok()).ok_or_else(rule)?;
    number.checked_mul(1 << shift).ok_or_else(rule)
}

/// `12` or `12:30`: a byte, and how many from there.
pub(super) fn range(text: &str) -> Result<(u64, u64), String> {
    let rule = || format!("`{text}` is no range: use START or START:LENGTH, such as `0:16`");
    let (start, length) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| text.parse().map_err(|_not_a_number| rule());
    Ok((number(start)?, number(length)?))
}

/// `0.5`, `2`: cores, as thousandths.
pub(super) fn cores(text: &str) -> Result<u32, String> {
    let rule = || format!("`{text}` is no number of cores: use one such as `0.5` or `2`");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty() || part.len() > 3 {
        return Err(rule());
    }
    let whole: u32 = whole.parse().map_err(|_not_a_number| rule())?;
    let part: u32 = format!("{part:0<3}").parse().map_err(|_not_a_number| rule())?;
    whole.checked_mul(1000).and_then(|millis| millis.checked_add(part)).ok_or_else(rule)
}

/// A path of the tree, with or without a `/` at its end, as shells complete folders.
pub(super) fn path(text: &str) -> Result<TreePath, String> {
    let folder = text.strip_suffix('/').filter(|path| !path.ends_with('/'));
    folder.unwrap_or(text).parse().map_err(|error: IdError| error.to_string())
}

/// Where something goes: its own path, or with a `/` at the end that of the folder which it goes into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    path: TreePath,
    is_folder: bool,
}

/// Why something goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoTarget {
    #[error("what goes into `{folder}/` has no name: say where it goes, its name included")]
    Unnamed { folder: TreePath },
    #[error(transparent)]
    Path(#[from] IdError),
}

impl Target {
    /// The path that what is called `name` goes to.
    pub(crate) fn of(self, name: Option<&str>) -> Result<TreePath, NoTarget> {
        match (self.is_folder, name) {
            (false, _) => Ok(self.path),
            (true, Some(name)) => Ok(format!("{}/{name}", self.path).parse()?),
            (true, None) => Err(NoTarget::Unnamed { folder: self.path }),
        }
    }
}

/// Where something goes.
pub(super) fn target(text: &str) -> Result<Target, String> {
    Ok(Target { path: path(text)?, is_folder: text.ends_with('/') })
}

/// An action that there may be rows of the audit about.
pub(super) fn audited_action(text: &str) -> Result<String, String> {
    match bailey_control::audit::check_action(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(unknown) => Err(format!("{unknown}; docs/policy.md lists them")),
    }
}

/// `/tenants/acme/reports:/data`, with `:ro` where changes are to be refused. The last `:/` divides, so that the
/// tree's path may hold colons.
pub(super) fn mount(text: &str) -> Result<MountRequest, String> {
    let (paths, read_only) = text.strip_suffix(":ro").map_or((text, false), |paths| (paths, true));
    let rule = || format!("`{text}` is no mount: use PATH:AT or PATH:AT:ro, such as `/tenants/acme/reports:/data`");
    let at = paths.rfind(":/").ok_or_else(rule)?;
    let (path, at) = paths.split_at_checked(at).ok_or_else(rule)?;
    Ok(MountRequest {
        path: self::path(path)?,
        at: at.trim_start_matches(':').parse().map_err(|error: IdError| error.to_string())?,
        read_only,
        branch: None,
    })
}

/// `input.json:/tmp/input.json`. The last `:/` divides, so that the local path may hold colons.
pub(super) fn file(text: &str) -> Result<(PathBuf, SandboxPath), String> {
    let rule = || format!("`{text}` is no file: use LOCAL:PATH, such as `input.json:/tmp/input.json`");
    let (local, at) = text.rfind(":/").and_then(|at| text.split_at_checked(at)).ok_or_else(rule)?;
    if local.is_empty() {
        return Err(rule());
    }
    let at = at.trim_start_matches(':').parse().map_err(|error: IdError| error.to_string())?;
    Ok((local.into(), at))
}

/// `NAME=VALUE`. What is no such thing is not shown: it may be a secret whose name was forgotten.
#[derive(Clone)]
pub(super) struct Env;

impl TypedValueParser for Env {
    type Value = (String, String);

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, text: &OsStr) -> Result<Self::Value, clap::Error> {
        let parts = text.to_str().and_then(|text| text.split_once('=')).filter(|(name, _)| !name.is_empty());
        let parts = parts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let told = "what follows `--env` is no NAME=VALUE (it may be a secret and is not shown)\n";
        parts.ok_or_else(|| clap::Error::raw(ErrorKind::ValueValidation, told).with_cmd(command))
    }
}

/// The name of a wall.
pub(super) fn wall(text: &str) -> Result<WallKind, String> {
    let name = serde_json::Value::String(text.to_owned());
    serde_json::from_value(name).map_err(|_unknown| format!("`{text}` is no wall: `bailey doctor` lists them"))
}

/// The name of a wall, or `auto`.
pub(super) fn wall_choice(text: &str) -> Result<WallChoice, String> {
    match text {
        "auto" => Ok(WallChoice::Auto),
        named => wall(named).map(WallChoice::from),
    }
}

/// What code is written in.
pub(super) fn code_language(text: &str) -> Result<CodeLanguage, String> {
    let name = serde_json::Value::String(text.to_owned());
    serde_json::from_value(name).map_err(|_unknown| format!("`{text}` is none of `javascript`, `python`, `other`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units_and_do_not_overflow() {
        assert_eq!(duration("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        for bad in ["", "30", "s", "-1s", "1.5s", "30 s", "18446744073709551615d", "3é"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        assert_eq!(size("512M").unwrap(), 512 << 20);
        assert_eq!(size("1GiB").unwrap(), 1 << 30);
        assert_eq!(size("7").unwrap(), 7);
        for bad in ["", "M", "1T", "-1", "18446744073709551615K"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
        assert_eq!(cores("0.5").unwrap(), 500);
        assert_eq!(cores("2").unwrap(), 2000);
        assert_eq!(cores("1.25").unwrap(), 1250);
        for bad in ["", ".", "1.", "1.2345", "-1", "0.-5", "99999999"] {
            assert!(cores(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_slash_at_the_end_is_a_folders() {
        for (text, found) in [
            ("/tenants/acme", Some("/tenants/acme")),
            ("/tenants/acme/", Some("/tenants/acme")),
            ("/tenants/acme/a b/", Some("/tenants/acme/a b")),
            ("/tenants/acme//", None),
            ("/tenants/", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(path(text).ok().as_ref().map(TreePath::as_str), found, "{text}");
        }
        let goes = |text: &str, name| target(text).unwrap().of(name).map(|path| path.to_string()).ok();
        assert_eq!(goes("/tenants/acme/d", Some("f")).as_deref(), Some("/tenants/acme/d"));
        assert_eq!(goes("/tenants/acme/d/", Some("f")).as_deref(), Some("/tenants/acme/d/f"));
        assert_eq!((goes("/tenants/acme/d/", None), goes("/tenants/acme/d/", Some(".."))), (None, None));
        assert_eq!(mount("/tenants/acme/d/:/data").unwrap().path.as_str(), "/tenants/acme/d");
    }

    #[test]
    fn a_file_divides_at_its_last_colon_before_a_slash() {
        let (local, at) = file("C:/odd:name:/tmp/x").unwrap();
        assert_eq!((local.to_str().unwrap(), at.as_str()), ("C:/odd:name", "/tmp/x"));
        for bad in ["", ":", "x", ":/tmp/x", "x:tmp", "x:/a/../b"] {
            assert!(file(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_mount_divides_at_its_last_colon_before_a_slash() {
        let plain = mount("/tenants/acme/reports:/data").unwrap();
        assert_eq!(
            (plain.path.as_str(), plain.at.as_str(), plain.read_only),
            ("/tenants/acme/reports", "/data", false)
        );
        let odd = mount("/tenants/acme/a:b:/in:ro").unwrap();
        assert_eq!((odd.path.as_str(), odd.at.as_str(), odd.read_only), ("/tenants/acme/a:b", "/in", true));
        for bad in [
            "",
            ":",
            "/tenants/acme",
            "/tenants/acme:data",
            "/etc:/data",
            "/tenants/acme/../x:/data",
            "/tenants/acme:/a/../b",
        ] {
            assert!(mount(bad).is_err(), "{bad:?}");
        }
    }
}
