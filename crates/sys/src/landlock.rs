//! Landlock: a process gives up every path that it was not granted, for itself and all its children, for good.

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

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
        let rights: BitFlags<AccessFs> = match grant.rights {
            Rights::AllAndDevices => all,
            Rights::All => all & !BitFlags::from(AccessFs::IoctlDev),
            Rights::List => AccessFs::ReadDir.into(),
        };
        created = created.add_rule(PathBeneath::new(grant.beneath, rights))?;
    }
    let status = created.restrict_self()?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(LandlockError::Partial);
    }
    Ok(abi as i32)
}

/// The kernel's interface number; 0 or less if there is none.
pub fn offered() -> i32 {
    const VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel reads no memory: the pointer must be null and the size 0.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION) };
    i32::try_from(answer).unwrap_or(0)
}
