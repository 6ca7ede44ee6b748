//! An example of every verb, shown below its `--help`.

use clap::Command;

use crate::exit;

/// The verb, and what can be typed; several lines for several examples.
const EXAMPLES: &[(&str, &str)] = &[
    ("serve", "bailey serve --config /etc/bailey.toml --listen 127.0.0.1:8470"),
    ("doctor", "bailey doctor"),
    (
        "attest",
        "bailey attest\nbailey attest --json --data /var/lib/bailey\nbailey attest --verify report.json --keys jwks.json",
    ),
    ("advise", "bailey advise\nbailey advise --language python --files --session 15m\nbailey advise --hostile --json"),
    ("token", "bailey token --tenant acme --user ana --role member\nbailey token --operator root --ttl 8h"),
    ("run", "bailey run --mount /tenants/acme/reports:/data --timeout 30s -- python3 /data/summary.py"),
    ("ls", "bailey ls /tenants/acme/reports\nbailey ls --glob '**/*.csv' /tenants/acme"),
    (
        "cat",
        "bailey cat /tenants/acme/reports/report.md\nbailey cat --ref draft --range 0:80 /tenants/acme/reports/report.md",
    ),
    ("put", "bailey put q1.csv /tenants/acme/reports/q1.csv\nbailey put --ref draft reports /tenants/acme/reports"),
    ("get", "bailey get /tenants/acme/reports"),
    ("edit", "bailey edit /tenants/acme/notes.md --old draft --new final"),
    ("cp", "bailey cp /tenants/acme/reports /tenants/acme/archive/q1"),
    ("mv", "bailey mv /tenants/acme/reports /tenants/acme/q1"),
    ("mkdir", "bailey mkdir /tenants/acme/inbox"),
    ("rm", "bailey rm /tenants/acme/reports/q1.csv"),
    ("log", "bailey log /tenants/acme/reports -n 5"),
    ("diff", "bailey diff /tenants/acme/reports\nbailey diff /tenants/acme/reports main draft"),
    ("blame", "bailey blame /tenants/acme/reports/summary.py"),
    ("restore", "bailey restore /tenants/acme/reports 1f0e6a3c5d7b9a2e4c6f8091a3b5c7d9e1f20416"),
    ("revert", "bailey revert /tenants/acme/reports 1f0e6a3c5d7b9a2e4c6f8091a3b5c7d9e1f20416"),
    ("archive", "bailey archive /tenants/acme/reports reports.zip"),
    ("extract", "bailey extract reports.tar.gz /tenants/acme/reports"),
    ("fork", "bailey fork draft\nbailey fork main --from baseline:starter"),
    ("branches", "bailey branches\nbailey branches --delete draft"),
    ("promote", "bailey promote draft --into main"),
    ("protect", "bailey protect main --review"),
    ("unprotect", "bailey unprotect main"),
    ("label", "bailey label /tenants/acme/reports confidential\nbailey label /tenants/acme/reports"),
    ("share", "bailey share /tenants/acme/reports --read --minutes 15"),
    ("share list", "bailey share list\nbailey share list --user ana"),
    ("share revoke", "bailey share revoke tok_01hzy3v9k4q8w2e6r0t5y7v1ja"),
    ("baseline list", "bailey baseline list"),
    ("baseline publish", "bailey baseline publish starter ./starter"),
    ("runs", "bailey runs\nbailey runs run_01hzy3v9k4q8w2e6r0t5y7v1ja --follow"),
    ("audit", "bailey audit --decision denied --since 1h"),
    ("audit export", "bailey audit export acme.ndjson"),
    ("audit verify", "bailey audit verify acme.ndjson --keys jwks.json"),
    ("policy status", "bailey policy status"),
    ("policy ls", "bailey policy ls"),
    ("policy put", "bailey policy put no-deleting no-deleting.cedar"),
    ("policy rm", "bailey policy rm no-deleting"),
    ("policy explain", "bailey policy explain tree_read --path /tenants/acme/reports"),
    ("policy dry-run", "bailey policy dry-run ./policies"),
    ("policy test", "bailey policy test ./cases --policies ./policies"),
    ("policy prove", "bailey policy prove --policies ./policies --against /etc/bailey/policies"),
    ("purge", "bailey purge /tenants/acme/reports/secret.csv"),
    ("quota show", "bailey quota show"),
    ("quota set", "bailey quota set acme --bytes 10G --versions 1000"),
    ("gc", "bailey gc acme"),
    ("template prepare", "bailey template prepare"),
    ("user list", "bailey user list"),
    ("user disable", "bailey user disable ana"),
    ("user enable", "bailey user enable ana"),
    ("user forget", "bailey user forget ana"),
    ("tenant list", "bailey tenant list"),
    ("tenant disable", "bailey tenant disable acme"),
    ("tenant enable", "bailey tenant enable acme"),
    ("tenant show", "bailey tenant show acme"),
    ("tenant set", "bailey tenant set acme --region eu --plan gold"),
    ("account list", "bailey account list"),
    ("account disable", "bailey account disable service billing"),
    ("account enable", "bailey account enable service billing"),
    ("key create", "bailey key create --name ci --path /tenants/acme/reports --read-only --ttl 90d"),
    ("key list", "bailey key list"),
    ("key revoke", "bailey key revoke key_01hzy3v9k4q8w2e6r0t5y7v1ja"),
    ("openapi", "bailey openapi"),
];

/// The command line with its examples.
pub(super) fn shown(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (verb, lines)| {
        let mut help = format!("Example:\n  {}", lines.replace('\n', "\n  "));
        if *verb == "run" {
            help = format!("{help}\n\n{}", exit::HELP);
        }
        below(command, &mut verb.split(' '), help)
    })
}

fn below<'a>(command: Command, names: &mut impl Iterator<Item = &'a str>, help: String) -> Command {
    match names.next() {
        Some(name) => command.mut_subcommand(name, |command| below(command, names, help)),
        None => command.after_help(help),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::{Cli, parse};

    /// The verbs that can be carried out, `share` as well as `share list`.
    fn verbs(command: &Command, path: &str, found: &mut BTreeSet<String>) {
        let own = command.get_subcommands().filter(|below| below.get_name() != "help");
        for below in own {
            let path = format!("{path} {}", below.get_name()).trim().to_owned();
            verbs(below, &path, found);
            if !below.is_subcommand_required_set() {
                found.insert(path);
            }
        }
    }

    #[test]
    fn every_verb_has_examples_that_can_be_typed() {
        let mut found = BTreeSet::new();
        verbs(&Cli::command(), "", &mut found);
        assert_eq!(found, EXAMPLES.iter().map(|(verb, _)| (*verb).to_owned()).collect());
        for (verb, lines) in EXAMPLES {
            for line in lines.lines() {
                assert!(line.starts_with(&format!("bailey {verb}")), "{line}");
                parse(line.split(' ').map(|word| word.trim_matches('\'')))
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            let help = verb.split(' ').chain(["--help"]);
            let help = parse(["bailey"].into_iter().chain(help)).unwrap_err().to_string();
            assert!(lines.lines().all(|line| help.contains(line)), "{help}");
        }
    }
}
