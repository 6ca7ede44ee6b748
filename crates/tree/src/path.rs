//! Paths inside one store: checked lists of names.

use bailey_protocol::path::{MAX_PATH_BYTES, MAX_PATH_DEPTH, text_of};

use crate::error::TreeError;
use crate::name;

/// The names of `inner`, the bytes of a path in a store, outermost first; none for the store's root.
pub(crate) fn parse_inner(inner: &[u8]) -> Result<Vec<&[u8]>, TreeError> {
    parse(inner).map_err(|rule| TreeError::InvalidPath { path: text_of(inner).into_owned(), rule })
}

/// The names of a relative path; none when it is empty.
pub(crate) fn parse(path: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("use at most 4096 bytes");
    }
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    if names.len() > MAX_PATH_DEPTH {
        return Err("use at most 256 names");
    }
    names.iter().try_for_each(|one| name::check(one))?;
    Ok(names)
}

/// `parent/name`, or `name` where `parent` is empty, for people; `stored` is the name as git has it.
pub(crate) fn join_display(parent: &str, stored: &[u8]) -> String {
    let real = name::unescape(stored);
    let real = text_of(&real);
    if parent.is_empty() { real.into_owned() } else { format!("{parent}/{real}") }
}
