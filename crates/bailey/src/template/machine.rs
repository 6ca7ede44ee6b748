//! What the `microvm` wall's machines are made of: one image for each template.
//!
//! `CACHE/templates/{sha256}.erofs`, and beside it `microvm.json`, which says what made it. In the image:
//!
//! ```text
//!  /usr/…       QEMU, what it loads, the firmware of its machine
//!  /kernel      the guest's kernel
//!  /initramfs   the modules, and `bailey-guest` as the first program
//!  /template    the template's own image, the machine's disk
//! ```
//!
//! The template is in it so that a machine's cage has everything by one mount, and all machines read it through the same
//! pages.

mod archive;
mod kernel;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailey_protocol::id::TemplateDigest;
use bailey_protocol::jail::TemplateImage;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::archive::{Archive, libraries};
pub(crate) use self::kernel::KernelError;
use self::kernel::{Kernel, Package};
use super::{Template, TemplateError, cache};
use crate::progress;

/// The monitor, and the part of it that interprets, which it loads itself.
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const ACCELERATOR: &str = "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so";
/// What its machine starts from.
const FIRMWARE: [&str; 3] = ["bios-microvm.bin", "linuxboot_dma.bin", "pvh.bin"];
/// The package that has them.
const PACKAGE: &str = "qemu-system-x86";
/// Modules that the guest's kernel takes, in an order in which they load.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_mmio.ko",
    "drivers/char/virtio_console.ko",
    "drivers/block/virtio_blk.ko",
    "lib/libcrc32c.ko",
    "fs/erofs/erofs.ko",
    "fs/overlayfs/overlay.ko",
];
/// How the image is packed. Not compressed: what a machine reads goes straight from the page cache.
const IMAGE_FLAGS: [&str; 5] = ["--quiet", "--all-root", "-x-1", "-T0", "-U00000000-0000-0000-0000-000000000000"];
/// Raised when an image is put together in another way.
const LAYOUT: u32 = 1;

/// A prepared image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The wall that it is for.
    pub(crate) wall: String,
    /// SHA-256 of the image.
    pub(crate) digest: TemplateDigest,
    /// The template in it.
    pub(crate) template: TemplateDigest,
    /// The guest's kernel.
    pub(crate) kernel: String,
    /// The monitor.
    pub(crate) vmm: String,
    /// SHA-256 of what made it.
    pub(crate) recipe: String,
    /// The image.
    #[serde(skip_deserializing)]
    pub(crate) image: PathBuf,
}

impl Machine {
    /// What the jail mounts.
    pub(crate) fn as_image(&self) -> TemplateImage {
        TemplateImage { digest: self.digest.clone(), image: self.image.clone() }
    }
}

/// The kernel that machines start.
#[derive(Debug)]
enum Source {
    /// Debian's newest.
    Debian(Package),
    /// An operator's own: its image, and the folder of its modules if it takes any.
    Own(PathBuf, Option<PathBuf>),
}

impl Source {
    /// `IMAGE`, or `IMAGE:FOLDER` with the folder of its modules, such as `/lib/modules/6.1.0`.
    fn named(words: Option<&str>) -> Result<Self, KernelError> {
        match words.map(|words| words.split_once(':').map_or((words, None), |(image, folder)| (image, Some(folder)))) {
            Some((image, folder)) => Ok(Self::Own(image.into(), folder.map(PathBuf::from))),
            None => Package::newest().map(Self::Debian),
        }
    }

    /// What tells it from others.
    fn label(&self) -> String {
        match self {
            Self::Debian(package) => package.folder(),
            Self::Own(image, _) => image.display().to_string(),
        }
    }

    fn kernel(&self, shelf: &Path) -> Result<Kernel, KernelError> {
        match self {
            Self::Debian(package) => package.unpack(shelf, &MODULES),
            Self::Own(image, folder) => {
                let modules = folder.as_deref().map(|folder| kernel::find(folder, &MODULES)).transpose()?;
                Ok(Kernel { image: image.clone(), modules: modules.unwrap_or_default() })
            }
        }
    }
}

/// The image for machines of a template, built first if it never was on this host. `guest` is the static `bailey-guest`,
/// `own` what an operator named as the kernel.
///
/// # Errors
/// Names what is missing, or the step that failed.
pub(crate) fn ensure(
    root: &Path,
    template: &Template,
    guest: &Path,
    own: Option<&str>,
) -> Result<Machine, TemplateError> {
    for path in [QEMU, ACCELERATOR] {
        if !Path::new(path).exists() {
            return Err(TemplateError::MissingTool { tool: "qemu-system-x86_64", package: PACKAGE });
        }
    }
    let source = Source::named(own)?;
    let recipe = recipe(template, guest, &source)?;
    if let Some(ready) = cache::find_machine(root, &recipe) {
        return Ok(ready);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(TemplateError::NotRoot);
    }
    let lock = cache::lock(root)?;
    // Another process may have built it while this one waited.
    if let Some(ready) = cache::find_machine(root, &recipe) {
        return Ok(ready);
    }
    let scratch = lock.scratch()?;
    let shelf = root.join("kernels");
    fs::create_dir_all(&shelf).map_err(|e| TemplateError::cache("make", &shelf, e))?;
    let kernel = progress::during("fetching the guest's kernel", || source.kernel(&shelf))?;
    let built =
        progress::during("packing the image of the machines", || image(scratch.path(), template, guest, &kernel))?;
    let machine = Machine {
        wall: "microvm".to_owned(),
        digest: template.digest.clone(),
        template: template.digest.clone(),
        kernel: source.label(),
        vmm: version()?,
        recipe,
        image: PathBuf::new(),
    };
    lock.publish_machine(machine, &built)
}

/// Everything that the image depends on.
fn recipe(template: &Template, guest: &Path, source: &Source) -> Result<String, TemplateError> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(&LAYOUT.to_le_bytes());
    part(template.digest.as_str().as_bytes());
    part(source.label().as_bytes());
    for path in [Path::new(QEMU), Path::new(ACCELERATOR), guest] {
        part(&fs::read(path).map_err(|e| TemplateError::cache("read", path, e))?);
    }
    if let Source::Own(image, _) = source {
        part(&fs::read(image).map_err(|e| TemplateError::cache("read", image, e))?);
    }
    MODULES.iter().chain(&IMAGE_FLAGS).for_each(|word| part(word.as_bytes()));
    Ok(format!("{:x}", hash.finalize()))
}

/// Builds the image below `scratch` and gives its path.
fn image(scratch: &Path, template: &Template, guest: &Path, kernel: &Kernel) -> Result<PathBuf, TemplateError> {
    let root = scratch.join("machine");
    let copy = |from: &Path, to: &Path| {
        let parent = to.parent().unwrap_or(&root);
        fs::create_dir_all(parent).map_err(|e| TemplateError::cache("make", parent, e))?;
        // The cage's user is not the owner, who may be the only one to read it on the host.
        let copied = fs::copy(from, to).and_then(|_| {
            let mode = fs::metadata(from)?.permissions().mode();
            fs::set_permissions(to, Permissions::from_mode(mode | 0o444))
        });
        copied.map_err(|e| TemplateError::cache("copy", from, e))
    };
    let [monitor, accelerator] = [QEMU, ACCELERATOR].map(PathBuf::from);
    let mut host: Vec<PathBuf> = FIRMWARE.iter().map(|name| Path::new("/usr/share/qemu").join(name)).collect();
    for program in [monitor, accelerator] {
        host.extend(libraries(&program).map_err(|e| TemplateError::cache("list what is loaded by", &program, e))?);
        host.push(program);
    }
    for path in host {
        copy(&path, &root.join(path.strip_prefix("/").unwrap_or(&path)))?;
    }
    copy(&kernel.image, &root.join("kernel"))?;
    copy(&template.image, &root.join("template"))?;
    let initramfs = root.join("initramfs");
    fs::write(&initramfs, files(guest, kernel)?).map_err(|e| TemplateError::cache("write", &initramfs, e))?;
    let image = scratch.join("machine.erofs");
    let packed = Command::new("mkfs.erofs").args(IMAGE_FLAGS).arg(&image).arg(&root).stdin(Stdio::null()).output();
    let packed = packed.map_err(|_absent| TemplateError::MissingTool { tool: "mkfs.erofs", package: "erofs-utils" })?;
    if packed.status.success() {
        return Ok(image);
    }
    let output = String::from_utf8_lossy(&packed.stderr).into_owned();
    Err(TemplateError::Step { step: "packing the image of the machines", output })
}

/// The initramfs.
fn files(guest: &Path, kernel: &Kernel) -> Result<Vec<u8>, TemplateError> {
    let mut archive = Archive::default();
    let mut add = |from: &Path, to: &Path| archive.copy_to(from, to).map_err(|e| TemplateError::cache("read", from, e));
    add(guest, Path::new("init"))?;
    let mut list = String::new();
    for module in &kernel.modules {
        let name = module.file_name().unwrap_or_default();
        add(module, &Path::new("modules").join(name))?;
        list += &format!("{}\n", name.to_string_lossy());
    }
    archive.file(Path::new("modules/list"), 0o644, list.as_bytes());
    Ok(archive.finish())
}

/// What the monitor calls itself.
fn version() -> Result<String, TemplateError> {
    let said = Command::new(QEMU).arg("--version").stdin(Stdio::null()).output();
    let said = said.map_err(|e| TemplateError::cache("start", Path::new(QEMU), e))?;
    Ok(String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned())
}
