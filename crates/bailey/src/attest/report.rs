//! What is signed: the verdicts, and of what they are.

use std::collections::BTreeMap;

use bailey_control::audit::AuditSigner;
use bailey_control::clock::Clock;
use bailey_protocol::node::RunStarted;
use bailey_protocol::wall::WallKind;
use serde::Serialize;
use serde_json::Value;

use super::judge::Verdict;
use crate::serve::Binaries;
use crate::serve::host::release;
use crate::template::Template;

/// The version of what a report is written in.
const FORMAT: u32 = 1;

/// One attack and what became of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    /// Whether it was root of its sandbox.
    pub(crate) root: bool,
    pub(crate) verdict: &'static str,
    /// Of one that was not held: what was seen, or why it was not tried.
    pub(crate) why: Option<String>,
    pub(crate) took_ms: u64,
}

impl Row {
    pub(crate) fn new(id: &'static str, name: &'static str, root: bool, verdict: Verdict, took_ms: u64) -> Self {
        let (verdict, why) = match verdict {
            Verdict::Held => ("held", None),
            Verdict::Broken(what) => ("broken", Some(what)),
            Verdict::NotTried(why) => ("not_tried", Some(why)),
        };
        Self { id, name, root, verdict, why, took_ms }
    }

    pub(crate) fn is(&self, verdict: &str) -> bool {
        self.verdict == verdict
    }
}

/// Everything that is said of a host.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    format: u32,
    bailey: &'static str,
    wall: WallKind,
    /// `null` where the wall has no machine to accelerate.
    accelerated: Option<bool>,
    fences: Vec<String>,
    kernel: String,
    jail_sha256: String,
    guest_sha256: String,
    /// Whether this `bailey` was built with those two, and would have started no others.
    pinned: bool,
    template: String,
    time_ms: u64,
    took_ms: u64,
    signed_by: SignedBy,
    pub(crate) attacks: Vec<Row>,
    pub(crate) held: usize,
    pub(crate) broken: usize,
    pub(crate) not_tried: usize,
}

/// Whose key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignedBy {
    /// That of the server with the data folder that was named.
    Issuer,
    /// One that was made for this report and is kept nowhere.
    FreshKey,
}

impl Report {
    pub(crate) fn new(
        binaries: &Binaries,
        template: &Template,
        started: &RunStarted,
        signed_by: SignedBy,
        attacks: Vec<Row>,
        took_ms: u64,
    ) -> Self {
        let count = |verdict| attacks.iter().filter(|row| row.is(verdict)).count();
        Self {
            format: FORMAT,
            bailey: env!("CARGO_PKG_VERSION"),
            wall: started.wall,
            accelerated: started.accelerated,
            fences: started.fences.clone(),
            kernel: release(),
            jail_sha256: binaries.jail_sha256.clone(),
            guest_sha256: binaries.guest_sha256.clone(),
            pinned: binaries.pinned,
            template: template.digest.to_string(),
            time_ms: Clock::system().now_ms(),
            took_ms,
            signed_by,
            held: count("held"),
            broken: count("broken"),
            not_tried: count("not_tried"),
            attacks,
        }
    }

    /// Whether every attack was tried and held.
    pub(crate) fn all_held(&self) -> bool {
        self.held == self.attacks.len() && self.held > 0
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let programs = if self.pinned { "built in" } else { "as found, none is built in" };
        vec![
            format!("{} held, {} broken, {} not tried", self.held, self.broken, self.not_tried),
            format!("bailey {}, wall {}, kernel {}", self.bailey, self.wall, self.kernel),
            format!("fences: {}", self.fences.join(", ")),
            format!("bailey-jail {} ({programs})", self.jail_sha256),
            format!("bailey-guest {} ({programs})", self.guest_sha256),
            format!("template {}", self.template),
        ]
    }
}

/// A report with what vouches for it.
#[derive(Debug, Serialize)]
pub(crate) struct Signed {
    report: Value,
    /// Ed25519, in hex.
    pub(crate) signature: String,
    pub(crate) key: Key,
}

/// The key that checks the signature.
#[derive(Debug, Serialize)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) public_key: String,
}

impl Signed {
    pub(crate) fn new(report: &Report, signer: &AuditSigner) -> serde_json::Result<Self> {
        let report = serde_json::to_value(report)?;
        let signature = signer.report(canonical(&report)?.as_bytes()).to_string();
        let key = Key { id: signer.key().to_owned(), public_key: signer.public_key().to_string() };
        Ok(Self { report, signature, key })
    }
}

/// The one text of a value that is signed: names in the order of their bytes, no space between.
pub(super) fn canonical(value: &Value) -> serde_json::Result<String> {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields = sorted
                .into_iter()
                .map(|(name, value)| Ok(format!("{}:{}", serde_json::to_string(name)?, canonical(value)?)));
            Ok(format!("{{{}}}", fields.collect::<serde_json::Result<Vec<_>>>()?.join(",")))
        }
        Value::Array(items) => {
            Ok(format!("[{}]", items.iter().map(canonical).collect::<serde_json::Result<Vec<_>>>()?.join(",")))
        }
        plain => serde_json::to_string(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_text_does_not_depend_on_how_a_report_is_written() {
        let text = r#"{ "b": [1, {"z": null, "a": "é\n"}], "a": true }"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(canonical(&value).unwrap(), r#"{"a":true,"b":[1,{"a":"é\n","z":null}]}"#);
    }

    #[test]
    fn nothing_but_held_counts_as_held() {
        let row = |verdict| Row::new("K01", "name", false, verdict, 1);
        let (binaries, started) = (binaries(), started());
        let template = Template {
            name: "base",
            digest: "0".repeat(64).parse().unwrap(),
            recipe: String::new(),
            image: "/nowhere".into(),
        };
        let report = |rows| Report::new(&binaries, &template, &started, SignedBy::FreshKey, rows, 1);
        assert!(report(vec![row(Verdict::Held)]).all_held());
        assert!(!report(vec![row(Verdict::Held), row(Verdict::Broken("x".to_owned()))]).all_held());
        assert!(!report(vec![row(Verdict::Held), row(Verdict::NotTried("y".to_owned()))]).all_held());
        assert!(!report(Vec::new()).all_held(), "nothing tried is nothing held");
    }

    fn binaries() -> Binaries {
        let (server, jail, guest) = ("/b".into(), "/j".into(), "/g".into());
        Binaries { server, jail, jail_sha256: String::new(), guest, guest_sha256: String::new(), pinned: false }
    }

    fn started() -> RunStarted {
        RunStarted {
            sandbox: format!("sbx{}", "0".repeat(26)).parse().unwrap(),
            wall: WallKind::Container,
            accelerated: None,
            parked: false,
            fences: Vec::new(),
        }
    }
}
