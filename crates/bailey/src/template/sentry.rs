//! What the `gvisor` wall's sandboxes are made of: one image for each template.
//!
//! `CACHE/templates/{sha256}.erofs`, and beside it `gvisor.json`, which says what made it. In the image:
//!
//! ```text
//!  /runsc                the host's own
//!  /bundle/config.json   what it is to run: `bailey-guest` as the first program
//!  /bundle/rootfs        the template, with that program in it
//! ```
//!
//! Everything in it belongs to the one user that `runsc` is in its cage, whom it takes for root inside; what is the user's
//! there, the guest gives back.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailey_node::wall::gvisor::{OWNER, PLATFORM, bundle};
use bailey_protocol::guest::AGENT_PATH;
use bailey_protocol::id::TemplateDigest;
use bailey_protocol::jail::TemplateImage;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Template, TemplateError, cache, recipe};
use crate::progress;

/// Where a host has it, an operator's own first.
const RUNSC: [&str; 3] = ["/usr/local/bin/runsc", "/usr/bin/runsc", "/usr/sbin/runsc"];
/// How old it may be before that is worth a warning.
const YEAR_DAYS: u64 = 365;

/// A prepared image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sentry {
    /// The wall that it is for.
    pub(crate) wall: String,
    /// SHA-256 of the image.
    pub(crate) digest: TemplateDigest,
    /// The template in it.
    pub(crate) template: TemplateDigest,
    /// What `runsc` calls itself.
    pub(crate) version: String,
    /// How it gets hold of what code asks of it.
    pub(crate) platform: String,
    /// SHA-256 of what made it.
    pub(crate) recipe: String,
    /// The image.
    #[serde(skip_deserializing)]
    pub(crate) image: PathBuf,
}

impl Sentry {
    /// What the jail mounts.
    pub(crate) fn as_image(&self) -> TemplateImage {
        TemplateImage { digest: self.digest.clone(), image: self.image.clone() }
    }
}

/// The host's `runsc`.
#[derive(Debug, Clone)]
pub(crate) struct Runsc {
    path: PathBuf,
    /// What it calls itself.
    pub(crate) version: String,
}

impl Runsc {
    /// The one that an operator named, else the first that is there.
    ///
    /// # Errors
    /// When there is none, or it does not start.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, TemplateError> {
        let there = RUNSC.iter().map(Path::new).find(|path| path.is_file());
        let missing = || TemplateError::MissingTool { tool: "runsc", package: "runsc" };
        let path = named.or(there).ok_or_else(missing)?.to_owned();
        let said = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let said = said.map_err(|e| TemplateError::cache("start", &path, e))?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = text.lines().next().unwrap_or_default().trim_start_matches("runsc version ").to_owned();
        Ok(Self { path, version })
    }
}

/// What to say of a version that is older than a year, at a time in milliseconds since 1970. Releases are named by their
/// day, as `release-20240212.0` or `0.0~20221219.0`.
pub(crate) fn aged(version: &str, now_ms: u64) -> Option<String> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).find(|part| part.len() == 8)?;
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    // To the month: nothing hangs on a day.
    let made = year.checked_sub(1970)? * YEAR_DAYS + month.saturating_sub(1) * 30 + day;
    let days = (now_ms / 86_400_000).saturating_sub(made);
    (days > YEAR_DAYS).then(|| format!("runsc {version} is more than a year old: holes found since are open in it"))
}

/// The image for a template, built first if it never was on this host. `guest` is the static `bailey-guest`.
///
/// # Errors
/// Names what is missing, or the step that failed.
pub(crate) fn ensure(root: &Path, template: &Template, guest: &Path, runsc: &Runsc) -> Result<Sentry, TemplateError> {
    let config = bundle().to_string();
    let recipe = made_from(template, guest, runsc, &config)?;
    let find = || cache::find_named::<Sentry>(root, NAME).filter(|sentry| sentry.recipe == recipe);
    let found = |sentry: Sentry| {
        let image = cache::image_of(root, &sentry.digest)?;
        Some(Sentry { image, ..sentry })
    };
    if let Some(ready) = find().and_then(found) {
        return Ok(ready);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(TemplateError::NotRoot);
    }
    let lock = cache::lock(root)?;
    // Another process may have built it while this one waited.
    if let Some(ready) = find().and_then(found) {
        return Ok(ready);
    }
    let scratch = lock.scratch()?;
    let built = progress::during("packing the image for gVisor", || {
        image(scratch.path(), template, (guest, &runsc.path), &config)
    })?;
    let (digest, image) = lock.store(&built)?;
    let sentry = Sentry {
        wall: NAME.to_owned(),
        digest,
        template: template.digest.clone(),
        version: runsc.version.clone(),
        platform: PLATFORM.to_owned(),
        recipe,
        image,
    };
    lock.write_named(NAME, &sentry)?;
    Ok(sentry)
}

const NAME: &str = "gvisor";

/// Everything that the image depends on.
fn made_from(template: &Template, guest: &Path, runsc: &Runsc, config: &str) -> Result<String, TemplateError> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(template.digest.as_str().as_bytes());
    for path in [guest, &runsc.path] {
        part(&fs::read(path).map_err(|e| TemplateError::cache("read", path, e))?);
    }
    part(config.as_bytes());
    recipe::IMAGE_FLAGS.iter().for_each(|word| part(word.as_bytes()));
    Ok(format!("{:x}", hash.finalize()))
}

/// Builds the image below `scratch` and gives its path.
fn image(
    scratch: &Path,
    template: &Template,
    (guest, runsc): (&Path, &Path),
    config: &str,
) -> Result<PathBuf, TemplateError> {
    let root = scratch.join("sentry");
    let rootfs = root.join("bundle/rootfs");
    let made = |path: &Path| fs::create_dir_all(path).map_err(|e| TemplateError::cache("make", path, e));
    made(&root.join("bundle"))?;
    let mut unpack = Command::new("fsck.erofs");
    unpack.arg(format!("--extract={}", rootfs.display())).arg(&template.image);
    run("unpacking the template", &mut unpack)?;
    let agent = rootfs.join(AGENT_PATH.trim_start_matches('/'));
    made(agent.parent().unwrap_or(&rootfs))?;
    for (from, to) in [(guest, &agent), (runsc, &root.join("runsc"))] {
        let copied = fs::copy(from, to).and_then(|_bytes| fs::set_permissions(to, Permissions::from_mode(0o755)));
        copied.map_err(|e| TemplateError::cache("copy", from, e))?;
    }
    let file = root.join("bundle/config.json");
    fs::write(&file, config).map_err(|e| TemplateError::cache("write", &file, e))?;
    let image = scratch.join("sentry.erofs");
    let mut pack = Command::new("mkfs.erofs");
    pack.args(recipe::IMAGE_FLAGS).arg(format!("--force-uid={OWNER}")).arg(format!("--force-gid={OWNER}"));
    pack.arg(&image).arg(&root);
    run("packing the image for gVisor", &mut pack)?;
    Ok(image)
}

fn run(step: &'static str, command: &mut Command) -> Result<(), TemplateError> {
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|_missing| TemplateError::MissingTool { tool: "mkfs.erofs", package: "erofs-utils" })?;
    if done.status.success() {
        return Ok(());
    }
    Err(TemplateError::Step { step, output: String::from_utf8_lossy(&done.stderr).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_old_after_a_year() {
        let day = |days: u64| days * 86_400_000;
        // 2026-12-01.
        let now = day(20_788);
        for (version, old) in
            [("0.0~20221219.0", true), ("release-20251001.0", true), ("release-20260601.0", false), ("dev", false)]
        {
            assert_eq!(aged(version, now).is_some(), old, "{version}");
        }
    }
}
