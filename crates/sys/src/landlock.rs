//! Landlock: a process gives up every path that it was not granted, for itself and all its children, for good.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::io::Errno;

use crate::last_errno;

/// Oldest interface that is accepted: the first with a right for linking and renaming between folders.
pub const OLDEST_ABI: i32 = 2;

/// What may be done with everything beneath a folder.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    /// The folder.
    pub beneath: BorrowedFd<'a>,
    /// What may be done.
    pub rights: Rights,
}

/// Rights that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Everything but control commands to device nodes.
    All,
    /// Everything.
    AllAndDevices,
    /// Listing folders, no more.
    List,
    /// Reading files and listing folders.
    Read,
    /// Reading and executing one file.
    Execute,
    /// Reading and writing files that are there, device nodes among them; no control commands.
    Use,
    /// Files and folders of one's own, none of which can be executed; no device nodes.
    Keep,
}

impl Rights {
    /// As the kernel's interface of that number has them.
    fn of(self, abi: ABI) -> BitFlags<AccessFs> {
        let all = AccessFs::from_all(abi);
        match self {
            Self::AllAndDevices => all,
            Self::All => all & !BitFlags::from(AccessFs::IoctlDev),
            Self::List => AccessFs::ReadDir.into(),
            Self::Read => AccessFs::ReadDir | AccessFs::ReadFile,
            Self::Execute => AccessFs::Execute | AccessFs::ReadFile,
            Self::Use => AccessFs::ReadDir | AccessFs::ReadFile | AccessFs::WriteFile,
            Self::Keep => all & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev),
        }
    }
}

/// The fence cannot be put up.
#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    /// The kernel has none, or one that is too old.
    #[error("the kernel offers Landlock interface {0}; at least {OLDEST_ABI} is needed")]
    TooOld(i32),
    /// A step failed.
    #[error("set up Landlock: {0}")]
    Ruleset(#[from] landlock::RulesetError),
    /// The kernel took less than was asked for.
    #[error("the kernel enforces only a part of the Landlock rules")]
    Partial,
}

/// Restricts the calling thread, and what it starts from now on, to the granted folders; signals and abstract
/// sockets stay within it where the kernel has such scopes. Returns the interface's number that is used.
///
/// # Errors
/// When the kernel's interface is too old or refuses a rule. Nothing is restricted then.
pub fn restrict(grants: &[Grant<'_>]) -> Result<i32, LandlockError> {
    let (abi, created) = create(grants)?;
    let status = created.restrict_self()?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(LandlockError::Partial);
    }
    Ok(abi as i32)
}

/// The same fence, to be put up later and by another process: see [`enforce`].
///
/// # Errors
/// When the kernel's interface is too old or refuses a rule.
pub fn prepare(grants: &[Grant<'_>]) -> Result<OwnedFd, LandlockError> {
    let (_, created) = create(grants)?;
    let ruleset: Option<OwnedFd> = created.into();
    // Every right is a hard requirement, so there is one.
    ruleset.ok_or(LandlockError::Partial)
}

/// Sets `no_new_privs` and puts up a prepared fence around the calling thread and what it starts from now on. Makes
/// system calls only, so it may be called between fork and exec.
///
/// # Errors
/// When the kernel refuses.
pub fn enforce(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: takes a descriptor and flags, touches no memory.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}

fn create(grants: &[Grant<'_>]) -> Result<(ABI, RulesetCreated), LandlockError> {
    let offered = offered();
    if offered < OLDEST_ABI {
        return Err(LandlockError::TooOld(offered));
    }
    // Every right below is a hard requirement, so a wrong guess here is an error and not a weaker fence.
    let abi = ABI::from(offered);
    let all = AccessFs::from_all(abi);
    let scopes = Scope::from_all(abi);
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    let mut created = ruleset.create()?;
    for grant in grants {
        created = created.add_rule(PathBeneath::new(grant.beneath, grant.rights.of(abi)))?;
    }
    Ok((abi, created))
}

/// The kernel's interface number; 0 or less if there is none.
pub fn offered() -> i32 {
    const VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel reads no memory: the pointer must be null and the size 0.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION) };
    i32::try_from(answer).unwrap_or(0)
}
