//! Paths in requests.

use bailey_protocol::path::MAX_PATH_BYTES;

use crate::agent::connect::{RpcError, invalid};
use crate::exec::identity::User;

/// Makes a path absolute: `~` and relative ones begin at the user's home. `..` and links are left to the kernel.
///
/// # Errors
/// When the path is too long, has a NUL byte, or names another user's home.
pub fn resolve(path: &str, user: User) -> Result<String, RpcError> {
    if path.contains('\0') {
        return Err(invalid("a path has a NUL byte"));
    }
    let resolved = match path {
        "" | "~" => user.home().to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative => match relative.strip_prefix('~') {
            Some(rest) if rest.starts_with('/') => format!("{}{rest}", user.home()),
            Some(_) => return Err(invalid(format!("path `{relative}`: only `~/` is understood"))),
            None => format!("{}/{relative}", user.home()),
        },
    };
    if resolved.len() >= MAX_PATH_BYTES {
        return Err(invalid(format!("a path may have {MAX_PATH_BYTES} bytes")));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_home() {
        for (path, wanted) in
            [("", "/home/user"), ("~", "/home/user"), ("~/a", "/home/user/a"), ("a/b", "/home/user/a/b"), ("/x", "/x")]
        {
            assert_eq!(resolve(path, User::User).unwrap(), wanted);
        }
        for bad in ["~root", "a\0b"] {
            assert!(resolve(bad, User::User).is_err());
        }
        assert!(resolve(&"x/".repeat(3000), User::User).is_err());
    }
}
