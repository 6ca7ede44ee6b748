//! The environment of an exec: an allow-list, then what `/init` and the request add. Nothing is inherited.

use std::collections::BTreeMap;
use std::ffi::CString;

use bailey_protocol::limits::MAX_ARGS_BYTES;

use super::identity::User;
use crate::agent::connect::{RpcError, invalid};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Most folders of `PATH` that are searched for a program.
const MAX_SEARCHED: usize = 64;

/// Checks names and values, and their size together.
///
/// # Errors
/// Names the variable that cannot be.
pub fn check(env: &BTreeMap<String, String>) -> Result<(), RpcError> {
    let mut bytes = 0_usize;
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(invalid(format!("environment variable `{}` cannot be set", name.escape_debug())));
        }
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len()).saturating_add(2);
    }
    if bytes > MAX_ARGS_BYTES {
        return Err(invalid(format!("the environment has {bytes} bytes; {MAX_ARGS_BYTES} are the limit")));
    }
    Ok(())
}

/// The whole environment of an exec. Later sources replace earlier ones.
#[must_use]
pub fn build(
    user: User,
    terminal: bool,
    sandbox: &BTreeMap<String, String>,
    request: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let own =
        [("PATH", PATH), ("HOME", user.home()), ("USER", user.name()), ("LOGNAME", user.name()), ("LANG", "C.UTF-8")];
    let mut env: BTreeMap<String, String> = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    if terminal {
        env.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    let added = sandbox.iter().chain(request);
    env.extend(added.map(|(name, value)| (name.clone(), value.clone())));
    env
}

/// Where to look for `program`: itself if it has a slash, else the folders of `path`.
///
/// # Errors
/// When the name is empty or has a NUL byte.
pub fn candidates(program: &str, path: Option<&String>) -> Result<Vec<CString>, RpcError> {
    let text = |bytes: String| CString::new(bytes).map_err(|_nul| invalid("the program's name has a NUL byte"));
    if program.is_empty() {
        return Err(invalid("the program's name is empty"));
    }
    if program.contains('/') {
        return Ok(vec![text(program.to_owned())?]);
    }
    let folders = path.map_or(PATH, String::as_str).split(':').filter(|folder| folder.starts_with('/'));
    folders.take(MAX_SEARCHED).map(|folder| text(format!("{folder}/{program}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l01_nothing_but_the_allow_list_and_what_was_asked_for() {
        let sandbox = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "1".to_owned())]);
        let request = BTreeMap::from([("B".to_owned(), "2".to_owned())]);
        let env = build(User::User, false, &sandbox, &request);
        let names: Vec<&str> = env.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", "B", "HOME", "LANG", "LOGNAME", "PATH", "USER"]);
        assert_eq!(env.get("B").unwrap(), "2");
    }

    #[test]
    fn odd_names_and_huge_values_are_refused() {
        for name in ["", "A=B", "A\0"] {
            assert!(check(&BTreeMap::from([(name.to_owned(), String::new())])).is_err(), "{name:?}");
        }
        assert!(check(&BTreeMap::from([("A".to_owned(), "x".repeat(MAX_ARGS_BYTES))])).is_err());
    }

    #[test]
    fn a_name_is_searched_in_absolute_folders_only() {
        let path = ".:/a::bin:/b".to_owned();
        assert_eq!(candidates("x", Some(&path)).unwrap(), [c"/a/x".to_owned(), c"/b/x".to_owned()]);
        assert_eq!(candidates("./x", Some(&path)).unwrap(), [c"./x".to_owned()]);
    }
}
