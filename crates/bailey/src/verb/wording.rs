//! The server speaks of HTTP; who types commands is told of commands.

/// What the server says, and what that is here. Of two that begin alike, the longer comes first.
const WORDS: &[(&str, &str)] = &[
    ("DELETE /v1/keys/{key}", "`bailey key revoke KEY`"),
    ("GET /v1/baselines", "`bailey baseline list`"),
    ("GET /v1/branches", "`bailey branches`"),
    ("GET /v1/keys", "`bailey key list`"),
    ("GET /v1/operator/accounts", "`bailey account list`"),
    ("GET /v1/operator/tenants", "`bailey tenant list`"),
    ("GET /v1/policies", "`bailey policy ls`"),
    ("GET /v1/protections", "`bailey branches`"),
    ("GET /v1/purges/", "`bailey purge --receipt` "),
    ("GET /v1/runs", "`bailey runs`"),
    ("GET /v1/tenant", "`bailey quota show`"),
    ("GET /v1/tree-history", "`bailey log`"),
    ("GET /v1/tree-tokens", "`bailey share list`"),
    ("GET /v1/users", "`bailey user list`"),
    ("POST /v1/forks", "`bailey fork`"),
    ("POST /v1/promotions", "`bailey promote`"),
    ("POST /v1/purges", "`bailey purge`"),
    ("POST /v1/users/{user}/enable", "`bailey user enable USER`"),
    ("send the `ETag` that it has now", "give `--if-match` the id that `bailey ls --json` shows now"),
    ("Send the `ETag` of an earlier answer, quotes included", "Give `--if-match` an id that `bailey ls --json` showed"),
    ("after the time in `Retry-After`", "in a moment"),
];

/// The same, said of commands.
pub(super) fn of_cli(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (http, cli)| text.replace(http, cli))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_the_server_says_of_http_is_said_of_commands() {
        assert_eq!(of_cli("See GET /v1/tree-history for versions."), "See `bailey log` for versions.");
        assert_eq!(
            of_cli("See GET /v1/purges/purge_1 for the receipt."),
            "See `bailey purge --receipt` purge_1 for the receipt."
        );
    }

    /// Every hint in the server's sources; but for a token exchange, which has no command.
    #[test]
    fn no_hint_of_the_servers_speaks_of_http() {
        let mut seen = 0;
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let own = text.split("#[cfg(test)]").next().unwrap();
                for line in own.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
                    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|method| format!("{method} /v1/"));
                    let of_http = |text: &str| methods.iter().any(|method| text.contains(method));
                    if of_http(line) && !line.contains("POST /v1/token`") {
                        seen += 1;
                        assert!(!of_http(&of_cli(line)), "{}: {line}", path.display());
                    }
                }
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
