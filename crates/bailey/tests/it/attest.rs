//! `bailey attest`, for real: what it says of this host, who vouches for it, and what it refuses.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use bailey_control::audit::AuditKeys;
use serde_json::Value;

use crate::server::{Server, bailey, text};

/// Held by whoever attests, and looks at what is left of it on the host.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The text that is signed: names in the order of their bytes, no space between.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: std::collections::BTreeMap<_, _> = fields.iter().collect();
            let fields: Vec<String> = sorted
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn stopped_early(output: &Output) -> String {
    format!("{:?} {} {}", output.status, text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_attack_is_tried_and_held_and_the_servers_key_vouches_for_it() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let output = bailey().args(["attest", "--json", "--data"]).arg(server.data()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stopped_early(&output));
    let signed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &signed["report"];
    let attacks = report["attacks"].as_array().unwrap();
    assert!(attacks.len() >= 35, "{} attacks", attacks.len());
    // Who shares a processor with other tests cannot tell whether it is shared fairly.
    let busy = |attack: &&Value| attack["id"] == "R25" && attack["why"].to_string().contains("the host is busy");
    let (busy, others): (Vec<_>, Vec<_>) = attacks.iter().partition(busy);
    for attack in others {
        assert_eq!((&attack["verdict"], &attack["why"]), (&"held".into(), &Value::Null), "{attack}");
    }
    assert_eq!(report["held"], attacks.len() - busy.len());
    assert_eq!((&report["broken"], &report["not_tried"]), (&0.into(), &busy.len().into()));
    assert_eq!(output.status.success(), busy.is_empty(), "{}", stopped_early(&output));
    assert_eq!((&report["wall"], &report["accelerated"]), (&"container".into(), &Value::Null));
    assert_eq!((&report["signed_by"], &report["bailey"]), (&"issuer".into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(!report["fences"].as_array().unwrap().is_empty() && report["time_ms"].as_u64().unwrap() > 0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["kernel"], kernel.trim());
    let beside = Path::new(env!("CARGO_BIN_EXE_bailey")).parent().unwrap();
    for name in ["jail", "guest"] {
        let sum = Command::new("sha256sum").arg(beside.join(format!("bailey-{name}"))).output().unwrap();
        assert!(text(&sum.stdout).starts_with(text_of(&report[format!("{name}_sha256")])), "{report}");
    }
    assert_eq!(text_of(&report["template"]).len(), 64);

    // The key is the one that the server publishes, and it signs this very text and no other.
    let key = text_of(&signed["key"]["id"]);
    let jwks = Command::new("curl").args(["-sSf", &format!("{}/.well-known/jwks.json", server.url)]).output().unwrap();
    let published = AuditKeys::from_jwks(&text(&jwks.stdout)).unwrap();
    assert_eq!(published, AuditKeys::of(&bytes(text_of(&signed["key"]["public_key"]))));
    let signature = serde_json::from_value(signed["signature"].clone()).unwrap();
    let signed_text = canonical(report).into_bytes();
    assert!(published.signed_report(key, &signed_text, &signature));
    for at in [0, signed_text.len() / 2, signed_text.len() - 1] {
        let mut changed = signed_text.clone();
        changed[at] ^= 1;
        assert!(!published.signed_report(key, &changed, &signature), "byte {at}");
    }

    the_report_is_checked_as_it_is_kept(&signed, &jwks.stdout, busy.is_empty());

    // Nothing is left, and nothing secret is said.
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!said.contains("cnry-") && said.contains("held      K03"), "{said}");
    let left = std::fs::read_dir("/dev/shm").unwrap().filter_map(Result::ok);
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().contains("bailey-attest")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// `--verify`, of the report, of one that was changed, and of one that a stranger signed.
fn the_report_is_checked_as_it_is_kept(signed: &Value, jwks: &[u8], all_held: bool) {
    let folder = tempfile::tempdir().unwrap();
    let (file, keys) = (folder.path().join("report.json"), folder.path().join("jwks.json"));
    std::fs::write(&keys, jwks).unwrap();
    let verify = |report: &Value, with_keys: bool| {
        std::fs::write(&file, serde_json::to_vec_pretty(report).unwrap()).unwrap();
        let mut command = bailey();
        command.args(["attest", "--json", "--verify"]).arg(&file);
        if with_keys {
            command.arg("--keys").arg(&keys);
        }
        let output = command.output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.success(), told["signed"].as_bool().unwrap(), told["all_held"].as_bool().unwrap())
    };
    assert_eq!(verify(signed, true), (all_held, true, all_held));
    assert_eq!(verify(signed, false), (all_held, true, all_held));
    let mut changed = signed.clone();
    changed["report"]["kernel"] = "another".into();
    assert_eq!(verify(&changed, true), (false, false, all_held));
    let mut strangers = signed.clone();
    strangers["key"]["public_key"] = "11".repeat(32).into();
    assert_eq!(verify(&strangers, false), (false, false, all_held));
    let stranger = bailey_control::audit::AuditSigner::ephemeral().unwrap();
    strangers["signature"] = serde_json::to_value(stranger.report(canonical(&strangers["report"]).as_bytes())).unwrap();
    strangers["key"] = serde_json::json!({ "id": stranger.key(), "public_key": stranger.public_key() });
    assert_eq!(verify(&strangers, false), (all_held, true, all_held));
    assert_eq!(verify(&strangers, true), (false, false, all_held));
    // With the server's id it is nobody's.
    strangers["key"]["id"] = signed["key"]["id"].clone();
    assert_eq!(verify(&strangers, false), (false, false, all_held));
}

#[test]
fn what_cannot_be_attested_is_refused_and_never_held() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.path().join("bailey");
    std::fs::copy(env!("CARGO_BIN_EXE_bailey"), &copy).unwrap();
    let refused = |output: Output, code, word: &str| {
        assert_eq!(output.status.code(), Some(code), "{}", stopped_early(&output));
        assert_eq!(text(&output.stdout), "");
        assert!(text(&output.stderr).contains(word), "{word}: {}", text(&output.stderr));
    };
    let attest = || {
        let mut command = Command::new(&copy);
        command.arg("attest").current_dir("/");
        command
    };
    refused(attest().output().unwrap(), 1, "bailey-jail");
    let mut user = Command::new("setpriv");
    user.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&copy).args(["attest", "--json"]);
    refused(user.current_dir("/").output().unwrap(), 1, "root");
    refused(attest().args(["--wall", "paper"]).output().unwrap(), 2, "paper");
    refused(attest().args(["--wall"]).output().unwrap(), 2, "--wall");
    refused(attest().args(["--data"]).arg(folder.path()).output().unwrap(), 1, "no server's data folder");
    if option_env!("BAILEY_JAIL_SHA256").is_none() {
        eprintln!("skipped: this `bailey` was built without the hashes of its companions (`make test` gives them)");
        return;
    }
    let beside = Path::new(env!("CARGO_BIN_EXE_bailey")).parent().unwrap();
    std::fs::copy(beside.join("bailey-guest"), folder.path().join("bailey-guest")).unwrap();
    let mut jail = std::fs::read(beside.join("bailey-jail")).unwrap();
    jail.push(0);
    std::fs::write(folder.path().join("bailey-jail"), jail).unwrap();
    refused(attest().output().unwrap(), 1, "not of one build");
}

#[test]
fn an_attest_that_is_interrupted_leaves_nothing_behind() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let temporary = tempfile::tempdir().unwrap();
    let memory = || {
        let names = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("bailey-attest")).collect::<Vec<_>>()
    };
    let mut command = bailey();
    command.args(["attest", "--json"]).env("TMPDIR", temporary.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("held ") {
        line.clear();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "it ended before the first attack");
    }
    assert!(std::fs::read_dir(temporary.path()).unwrap().count() > 0, "nothing could be left");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty() && memory().is_empty(), "{left:?} {:?}", memory());
}
