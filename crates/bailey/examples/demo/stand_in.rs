//! A stand-in for the API process of a product that runs its customers' programs as plain children of itself.
//!
//! It holds what such a process holds: secrets in its environment and memory, a key file, other tenants' files, and a
//! `/tmp` that everyone before has used. Then it starts the program, as it is done today.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::canary::{Canary, Layer};
use crate::story::examples;

/// First argument of the demo when it plays this part.
pub(crate) const MODE: &str = "--stand-in";

/// Places within the stand-in's folder.
const KEY: &str = "keys/api.key";
const ROOT_ONLY: &str = "root-only/secret";
const OTHER_TENANT: &str = "tenants/globex/plans.txt";
const SCRATCH: &str = "tmp/left-by-the-previous-run";
const MEMORY: &str = "memory";
const LOOT: &str = "tenants/acme/loot";

/// Starts the stand-in with fresh canaries of its own, lets it run the program, and gives them with all that came out.
pub(crate) fn hunt(folder: &Path, port: &str) -> anyhow::Result<(Vec<Canary>, Vec<Layer>)> {
    let places = [
        ("server's environment", None),
        ("server's memory", Some(MEMORY)),
        ("root-only file", Some(ROOT_ONLY)),
        ("stored key", Some(KEY)),
        ("other tenant's file", Some(OTHER_TENANT)),
        ("previous run's /tmp", Some(SCRATCH)),
    ];
    let mut canaries = Vec::new();
    for (place, file) in places {
        let canary = Canary::fresh(place)?;
        if let Some(file) = file {
            write_private(&folder.join(file), &canary.text)?;
        }
        canaries.push(canary);
    }
    let environment = canaries.first().map(|canary| canary.text.clone()).unwrap_or_default();
    let output = Command::new(std::env::current_exe().context("find the demo itself")?)
        .arg(MODE)
        .arg(folder)
        .arg(port)
        .env("API_SECRET", environment)
        .stdin(Stdio::null())
        .output()
        .context("start the stand-in")?;
    ensure!(output.status.success(), "the stand-in failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut bytes = crate::canary::unpack("stdout", &output.stdout);
    bytes.extend(crate::canary::unpack("stderr", &output.stderr));
    for entry in fs::read_dir(folder.join(LOOT)).context("read the loot")? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            bytes.extend(crate::canary::unpack(&entry.file_name().to_string_lossy(), &fs::read(entry.path())?));
        }
    }
    Ok((canaries, bytes))
}

/// The other side: what [`hunt`] starts.
pub(crate) fn play(folder: &Path) -> anyhow::Result<()> {
    // Read at start and kept, as configuration is; no file holds it any more.
    let memory = fs::read_to_string(folder.join(MEMORY)).context("read the configuration")?;
    fs::remove_file(folder.join(MEMORY))?;
    let places: Vec<PathBuf> = [ROOT_ONLY, KEY, OTHER_TENANT, SCRATCH].map(|place| folder.join(place)).into();
    let status = Command::new("python3")
        .arg(examples().join("empty-room/hunt.py").canonicalize()?)
        .arg(folder.join(LOOT))
        .arg(std::env::args().nth(3).context("the port")?)
        .args(places)
        .current_dir(folder.join("tenants"))
        .status()
        .context("start the program")?;
    ensure!(status.success() && memory.len() > 32, "the program ended with {status}");
    Ok(())
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let parent = path.parent().context("a folder")?;
    fs::create_dir_all(parent)?;
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(())
}
