//! The host-wide cache of images.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bailey_protocol::id::TemplateDigest;
use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::machine::Machine;
use super::{Template, TemplateError, recipe};
use crate::progress;
use crate::terminal::note;

/// Where images are when neither `--cache` nor `BAILEY_CACHE` says otherwise.
pub(crate) const DEFAULT_CACHE: &str = "/var/cache/bailey";
const SCRATCH: &str = ".new";

/// `base.json`. Written last, so an image that it names is whole.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    recipe: String,
    digest: TemplateDigest,
}

/// The image that the current recipe made, if it is there. Its content is the jail's to verify, at every start.
pub(super) fn find(cache: &Path) -> Option<Template> {
    let manifest: Manifest = find_named(cache, recipe::NAME)?;
    if manifest.recipe != recipe::hash() {
        return None;
    }
    let image = image_of(cache, &manifest.digest)?;
    Some(template(manifest, image))
}

/// What the file of that name beside the images says, if it is there and understood.
pub(super) fn find_named<T: DeserializeOwned>(cache: &Path, name: &str) -> Option<T> {
    serde_json::from_slice(&fs::read(named_path(cache, name)).ok()?).ok()
}

/// The image with that content, if it is there.
pub(super) fn image_of(cache: &Path, digest: &TemplateDigest) -> Option<PathBuf> {
    let image = image_path(cache, digest);
    let facts = fs::symlink_metadata(&image).ok()?;
    (facts.is_file() && facts.uid() == 0).then_some(image)
}

/// The image for machines that this recipe made, if it is there.
pub(super) fn find_machine(cache: &Path, recipe: &str) -> Option<Machine> {
    let text = fs::read(machine_path(cache)).ok()?;
    let mut machine: Machine = serde_json::from_slice(&text).ok()?;
    if machine.recipe != recipe {
        return None;
    }
    machine.image = image_path(cache, &machine.digest);
    let facts = fs::symlink_metadata(&machine.image).ok()?;
    (facts.is_file() && facts.uid() == 0).then_some(machine)
}

/// Makes the cache's folders and takes the lock that keeps a host from building twice at a time.
pub(super) fn lock(cache: &Path) -> Result<Lock, TemplateError> {
    let templates = cache.join("templates");
    fs::create_dir_all(&templates).map_err(|e| TemplateError::cache("make", &templates, e))?;
    let path = cache.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| TemplateError::cache("open", &path, e))?;
    progress::during("waiting for another process that prepares the template", || {
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
    })
    .map_err(|e| TemplateError::cache("lock", &path, e.into()))?;
    Ok(Lock { cache: cache.to_owned(), _file: file })
}

/// Held while a template is built; released when dropped or when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    cache: PathBuf,
    _file: File,
}

impl Lock {
    /// An empty folder on the cache's file system. What a killed build left there is removed first.
    pub(super) fn scratch(&self) -> Result<Scratch, TemplateError> {
        let path = self.cache.join("templates").join(SCRATCH);
        let scratch = Scratch { path };
        scratch.remove().map_err(|e| TemplateError::cache("remove", &scratch.path, e))?;
        fs::create_dir(&scratch.path).map_err(|e| TemplateError::cache("make", &scratch.path, e))?;
        Ok(scratch)
    }

    /// Moves a finished image to the name that its content has, then makes it the current one.
    pub(super) fn publish(&self, built: &Path) -> Result<Template, TemplateError> {
        let (digest, image) = self.store(built)?;
        let manifest = Manifest { recipe: recipe::hash(), digest };
        self.write(&named_path(&self.cache, recipe::NAME), &manifest)?;
        Ok(template(manifest, image))
    }

    /// The same for the image of machines.
    pub(super) fn publish_machine(&self, machine: Machine, built: &Path) -> Result<Machine, TemplateError> {
        let (digest, image) = self.store(built)?;
        let machine = Machine { digest, image, ..machine };
        self.write(&machine_path(&self.cache), &machine)?;
        Ok(machine)
    }

    /// Moves a finished image to the name that its content has.
    pub(super) fn store(&self, built: &Path) -> Result<(TemplateDigest, PathBuf), TemplateError> {
        let digest = digest(built).map_err(|e| TemplateError::cache("read", built, e))?;
        let image = image_path(&self.cache, &digest);
        let stored = File::open(built)
            .and_then(|file| {
                file.set_permissions(Permissions::from_mode(0o400))?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(built, &image));
        stored.map_err(|e| TemplateError::cache("store", &image, e))?;
        Ok((digest, image))
    }

    /// Replaces the file of that name beside the images.
    pub(super) fn write_named(&self, name: &str, content: &impl Serialize) -> Result<(), TemplateError> {
        self.write(&named_path(&self.cache, name), content)
    }

    fn write(&self, target: &Path, content: &impl Serialize) -> Result<(), TemplateError> {
        self.replace(target, content).map_err(|e| TemplateError::cache("write", target, e))
    }

    fn replace(&self, target: &Path, content: &impl Serialize) -> std::io::Result<()> {
        let partial = target.with_extension("partial");
        fs::write(&partial, serde_json::to_vec(content)?)?;
        File::open(&partial)?.sync_all()?;
        fs::rename(&partial, target)?;
        File::open(self.cache.join("templates"))?.sync_all()
    }
}

/// A folder for one build; removed with all it holds when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn remove(&self) -> std::io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            note!("bailey: cannot remove `{}`: {error}", self.path.display());
        }
    }
}

fn template(manifest: Manifest, image: PathBuf) -> Template {
    Template { name: recipe::NAME, digest: manifest.digest, recipe: manifest.recipe, image }
}

fn named_path(cache: &Path, name: &str) -> PathBuf {
    cache.join("templates").join(format!("{name}.json"))
}

fn machine_path(cache: &Path) -> PathBuf {
    cache.join("templates").join("microvm.json")
}

fn image_path(cache: &Path, digest: &TemplateDigest) -> PathBuf {
    cache.join("templates").join(format!("{digest}.erofs"))
}

fn digest(path: &Path) -> std::io::Result<TemplateDigest> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
    format!("{:x}", hash.finalize()).parse().map_err(std::io::Error::other)
}
