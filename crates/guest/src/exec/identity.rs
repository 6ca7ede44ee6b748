//! Who an exec is, and what it may do as that.

use bailey_sys::child::Identity;
use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet};

use crate::agent::Settings;
use crate::agent::connect::{Code, RpcError};

/// The two users that execs run as. The template has no other with a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// uid 1000: no capability, no way to one.
    User,
    /// The sandbox's own uid 0, with the few capabilities that installing packages takes.
    Root,
}

/// What root is left with: the bounding set as well, so no program can give it more.
pub const ROOT_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE);

impl User {
    /// The user of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_name(name: &str) -> Result<Self, RpcError> {
        match name {
            "user" | "" => Ok(Self::User),
            "root" => Ok(Self::Root),
            other => Err(RpcError::new(Code::Unauthenticated, format!("invalid username: '{other}'"))),
        }
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Root => "root",
        }
    }

    /// The home folder.
    #[must_use]
    pub fn home(self) -> &'static str {
        match self {
            Self::User => "/home/user",
            Self::Root => "/root",
        }
    }

    /// User and group id.
    #[must_use]
    pub fn ids(self) -> (Uid, Gid) {
        match self {
            Self::User => (Uid::from_raw(1000), Gid::from_raw(1000)),
            Self::Root => (Uid::ROOT, Gid::ROOT),
        }
    }

    /// What an exec of this user becomes.
    ///
    /// # Errors
    /// When the sandbox has no root.
    pub fn identity(self, settings: &Settings) -> Result<Identity, RpcError> {
        let (uid, gid) = self.ids();
        let locked = CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        match self {
            Self::User => Ok(Identity {
                uid,
                gid,
                capabilities: CapabilitySet::empty(),
                secure_bits: Some(locked | CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_SETUID_FIXUP),
            }),
            // Keeps the meaning of uid 0, so that its programs get the set above and lose it on a change of user.
            Self::Root if settings.root => {
                Ok(Identity { uid, gid, capabilities: ROOT_CAPABILITIES, secure_bits: Some(locked) })
            }
            Self::Root => Err(RpcError::new(Code::PermissionDenied, "this sandbox has no root user")),
        }
    }
}
