//! The empty room: secrets are planted all around a sandbox, a hostile program hunts for them inside, and every byte
//! that it could ever send out is searched. The same program as a bare child of an API process is the comparison.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};

use crate::canary::{Canary, Layer, unpack};
use crate::scene::{self, Cell, Row};
use crate::server::{Server, User};
use crate::stand_in;
use crate::story::examples;

const FOLDER: &str = "/tenants/acme/hunt";
const MOUNT: &str = "/tenants/acme/hunt:/data";
/// What the hunter may see: proves that what it finds gets out, and that the search sees it.
const OWN: &str = "its own mounted folder (control)";

/// Plays the part and tells whether all of it held.
pub(crate) fn play(server: &Server, folder: &Path, environment: Canary) -> anyhow::Result<bool> {
    scene::title("The empty room: secrets all around, a hostile program inside");
    let (canaries, neighbour) = plant(server, folder, environment)?;
    for canary in &canaries {
        scene::say(&format!("planted: {}", canary.place));
    }
    let own = Canary::fresh(OWN)?;
    let inside = hunt_inside(server, folder, &own)?;
    drop(neighbour);

    scene::title("The same program as a bare child of an API process, as it is done today");
    let today = folder.join("today");
    let (bare_canaries, outside) = stand_in::hunt(&today, server.port())?;
    scene::say("done");

    scene::title(
        "What got out (searched: plain, hex, base64 at three alignments, reversed, gzip, in pieces of 64 bits)",
    );
    let mut rows = Vec::new();
    let mut held = true;
    for canary in &canaries {
        let forms = canary.search(&inside);
        held &= forms.is_empty();
        let sandbox = if forms.is_empty() { Cell::Absent } else { Cell::Found(forms) };
        let bare = bare_canaries.iter().find(|other| other.place == canary.place);
        let bare = match bare.map(|canary| canary.search(&outside)) {
            None => Cell::NotApplicable,
            Some(forms) if forms.is_empty() => {
                held = false;
                Cell::Absent
            }
            Some(forms) => Cell::Found(forms),
        };
        rows.push(Row { what: canary.place.to_owned(), sandbox, bare });
    }
    let forms = own.search(&inside);
    // A search that finds nothing at all proves nothing.
    held &= ["plain", "hex", "base64", "reversed", "gzip"].iter().all(|form| forms.contains(form));
    rows.push(Row { what: OWN.to_owned(), sandbox: Cell::Found(forms), bare: Cell::NotApplicable });
    scene::table(&rows);
    Ok(held)
}

/// A run of globex that goes on while the hunter hunts.
struct Neighbour(std::process::Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Puts every canary in its place, and makes sure that it is there.
fn plant(server: &Server, folder: &Path, environment: Canary) -> anyhow::Result<(Vec<Canary>, Neighbour)> {
    let (acme, globex) = (server.user("acme", "ana")?, server.user("globex", "gil")?);
    let environ = fs::read(format!("/proc/{}/environ", server.jail_pid())).context("read the environment")?;
    ensure!(contains(&environ, &environment.text), "the canary is not in the server's environment");

    let memory = Canary::fresh("server's memory")?;
    let mut neighbour = globex.command(&["run", "--timeout", "10m", "-e", &format!("SECRET={}", memory.text), "--"]);
    let waits = ["sh", "-c", "echo \"$SECRET\" > /tmp/secret; echo there; exec sleep 600"];
    let mut child = neighbour.args(waits).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut first = [0; 5];
    let mut output = child.stdout.take().context("the neighbour's output")?;
    let neighbour = Neighbour(child);
    output.read_exact(&mut first).context("wait for the neighbour")?;
    ensure!(in_memory_of_server(server, &memory.text)?, "the canary is not in the server's memory");

    let root_only = Canary::fresh("root-only file")?;
    let path = root_only_path(folder);
    fs::write(&path, &root_only.text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400))?;

    let pem = fs::read_to_string(key_path(server)).context("read the stored key")?;
    let key = Canary::of_key("stored key", &pem)?;

    let other = Canary::fresh("other tenant's file")?;
    put(&globex, folder, "/tenants/globex/plans.txt", &other.text)?;

    let before = Canary::fresh("previous run's /tmp")?;
    let leave =
        "for place in /tmp /var/tmp /dev/shm \"$HOME\"; do echo \"$SECRET\" > $place/left || true; done; cat /tmp/left";
    let output = acme.quietly(&["run", "-e", &format!("SECRET={}", before.text), "--", "sh", "-c", leave])?;
    ensure!(contains(&output.stdout, &before.text), "the previous run could not use its /tmp");
    Ok((vec![environment, memory, root_only, key, other, before], neighbour))
}

/// Lets the program hunt in a sandbox; gives every byte that came out of it.
fn hunt_inside(server: &Server, folder: &Path, own: &Canary) -> anyhow::Result<Vec<Layer>> {
    let acme = server.user("acme", "ana")?;
    put(&acme, folder, &format!("{FOLDER}/own.txt"), &own.text)?;
    let program = examples().join("empty-room/hunt.py").canonicalize()?;
    let stored = acme.quietly(&["put", &program.to_string_lossy(), &format!("{FOLDER}/hunt.py")])?;
    ensure!(stored.status.success(), "{}", String::from_utf8_lossy(&stored.stderr));
    let data = server.data();
    let places = [
        root_only_path(folder),
        key_path(server),
        data.join("serve/bailey.db"),
        data.join("serve/trees/globex/tenant.git"),
        data.join("jail/ledger"),
        PathBuf::from("/data/keys/issuer.pem"),
        PathBuf::from("/etc/shadow"),
        PathBuf::from("/tmp/left"),
    ];
    let port = server.port();
    let mut arguments = vec!["run", "--json", "--root", "--timeout", "60s", "--mount", MOUNT, "--"];
    arguments.extend(["python3", "/data/hunt.py", "/data/loot", port]);
    let places: Vec<String> = places.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    arguments.extend(places.iter().map(String::as_str));
    scene::typed(&["run", "--root", "--mount", MOUNT, "--", "python3", "/data/hunt.py", "…"]);
    let output = acme.quietly(&arguments)?;
    let tail = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(0), "the hunter ended with {}: {tail}", output.status);

    let mut bytes = unpack("stderr of the command line", &output.stderr);
    let mut said = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        bytes.extend(unpack("event", line));
        let event: serde_json::Value = serde_json::from_slice(line).context("read an event")?;
        let data = bytes_of(&event)?;
        if event.get("event").and_then(|kind| kind.as_str()) == Some("stdout") {
            said.extend_from_slice(&data);
        }
        bytes.extend(unpack("output", &data));
    }
    bytes.extend(unpack("whole standard output", &said));
    let summary = said.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    scene::output(summary);

    let mut files = 0;
    let mut seen = BTreeSet::new();
    collect(&acme, FOLDER, &mut bytes, &mut files, &mut seen)?;
    scene::say(&format!("{} bytes in {files} committed files, and all its output, are searched", total(&bytes)));
    Ok(bytes)
}

/// Every file below a folder of the tree, names included, but for what we put there ourselves.
fn collect(
    user: &User<'_>,
    path: &str,
    bytes: &mut Vec<Layer>,
    files: &mut u64,
    seen: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let listing = user.quietly(&["ls", "--json", path])?;
    ensure!(listing.status.success(), "list {path}: {}", String::from_utf8_lossy(&listing.stderr));
    bytes.extend(unpack("listing", &listing.stdout));
    let listing: serde_json::Value = serde_json::from_slice(&listing.stdout)?;
    for entry in listing.get("entries").and_then(|entries| entries.as_array()).into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        let (name, kind) = (text("name"), text("kind"));
        let below = format!("{path}/{name}");
        if name == "own.txt" || name == "hunt.py" || !seen.insert(below.clone()) {
            continue;
        }
        if kind == "directory" {
            collect(user, &below, bytes, files, seen)?;
            continue;
        }
        let content = user.quietly(&["cat", &below])?;
        // A link's target is content too; what the server says instead of content is searched as well.
        bytes.extend(unpack(name, &content.stdout));
        bytes.extend(unpack(name, &content.stderr));
        *files += 1;
    }
    Ok(())
}

fn bytes_of(event: &serde_json::Value) -> anyhow::Result<Vec<u8>> {
    use base64::Engine as _;
    if let Some(text) = event.get("text").and_then(|text| text.as_str()) {
        return Ok(text.as_bytes().to_vec());
    }
    match event.get("base64").and_then(|text| text.as_str()) {
        Some(text) => base64::engine::general_purpose::STANDARD.decode(text).context("read output"),
        None => Ok(Vec::new()),
    }
}

fn put(user: &User<'_>, folder: &Path, remote: &str, text: &str) -> anyhow::Result<()> {
    let local = folder.join("upload");
    fs::write(&local, text)?;
    let output = user.quietly(&["put", &local.to_string_lossy(), remote])?;
    fs::remove_file(&local)?;
    ensure!(output.status.success(), "put {remote}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn root_only_path(folder: &Path) -> PathBuf {
    folder.join("root-only.txt")
}

fn key_path(server: &Server) -> PathBuf {
    server.data().join("serve/keys/issuer.pem")
}

/// Whether the text is in what the server's process has written to its memory.
fn in_memory_of_server(server: &Server, text: &str) -> anyhow::Result<bool> {
    let pid = child_of(server.jail_pid()).context("find the server's process")?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).context("open the server's memory")?;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (Some(span), Some(rights)) = (fields.next(), fields.next()) else { continue };
        let Some((start, end)) = span.split_once('-') else { continue };
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        if !rights.starts_with("rw") || end - start > (256 << 20) {
            continue;
        }
        let mut piece = vec![0; usize::try_from(end - start)?];
        if memory.read_at(&mut piece, start).is_ok() && contains(&piece, text) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The child of the supervisor that serves.
fn child_of(parent: u32) -> anyhow::Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if status.lines().any(|line| line == format!("PPid:\t{parent}")) && contains(&command, "--supervised") {
            return Ok(pid);
        }
    }
    bail!("no child of {parent} serves")
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

fn total(bytes: &[Layer]) -> usize {
    bytes.iter().map(|layer| layer.bytes.len()).sum()
}
