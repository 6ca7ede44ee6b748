//! Template images: verified, then mounted from a loop device that vanishes with the mount.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use bailey_protocol::id::TemplateDigest;
use bailey_protocol::jail::{JailFault, JailFaultKind, TemplateImage};
use bailey_sys::loopdev::LoopDevice;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};
use sha2::{Digest, Sha256};

use crate::fault::{OrFault, fault};

/// A mounted template, not yet attached to any place.
#[derive(Debug)]
pub(crate) struct Template {
    /// Its name.
    pub(crate) digest: TemplateDigest,
    /// The detached mount.
    pub(crate) mount: OwnedFd,
}

/// Verifies an image and mounts it.
///
/// # Errors
/// When the image is not the one that its digest names, is not root's alone to write, or cannot be mounted.
pub(crate) fn mount(image: &TemplateImage) -> Result<Template, JailFault> {
    let step = "open the template image";
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&image.image, flags, Mode::empty()).or_fence(step)?;
    let stat = fstat(&file).or_fence(step)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
        return Err(fault(JailFaultKind::Fence, step, "it must be a file that only root may write"));
    }
    let file = File::from(file);
    verify(&file, image.digest.as_str(), "verify the template image")?;
    let device = LoopDevice::attach(file.as_fd()).or_fence("put a loop device over the template image")?;
    let step = "mount the template image";
    let context = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC).or_fence(step)?;
    fsconfig_set_string(&context, "source", &*device.path).or_fence(step)?;
    fsconfig_set_flag(&context, "ro").or_fence(step)?;
    fsconfig_create(&context).or_fence(step)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).or_fence(step)?;
    Ok(Template { digest: image.digest.clone(), mount })
}

/// Reads a whole file and compares its SHA-256.
///
/// # Errors
/// When it cannot be read or is another.
pub(crate) fn verify(mut file: impl Read, wanted: &str, step: &str) -> Result<(), JailFault> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0_u8; 1024 * 1024];
    loop {
        let count = file.read(&mut buffer).or_fence(step)?;
        if count == 0 {
            break;
        }
        hash.update(buffer.get(..count).unwrap_or(&[]));
    }
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == wanted { Ok(()) } else { Err(fault(JailFaultKind::Fence, step, format!("its SHA-256 is {found}"))) }
}
