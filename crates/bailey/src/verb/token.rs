//! `bailey token`: signs with this machine's own issuer, whose key only root and the server can read.

use std::collections::BTreeSet;
use std::process::ExitCode;

use bailey_control::auth::{Issuer, IssuerError, RoleError, RoleName, SystemTokenSpec, TokenExtras, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_policy::principal::UnknownEntitlement;
use bailey_policy::{Entitlement, ServedTenants};
use bailey_protocol::id::{IdError, UserId};
use bailey_protocol::jail::SERVER_UID;

use super::{VerbError, say};
use crate::cli::{Common, TokenArgs};
use crate::config;
use crate::serve::host::require_root;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(transparent)]
    Role(#[from] RoleError),
    #[error(transparent)]
    Entitlement(#[from] UnknownEntitlement),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error(transparent)]
    Tenant(#[from] IdError),
    #[error("name a tenant and a user, a service account, or an operator")]
    Nobody,
    #[error(
        "`{path}` is no server's data folder yet: start `bailey serve` with it once, or name another with `--data`"
    )]
    NoServer { path: String },
}

impl TokenError {
    /// Whether the command line is what is wrong.
    pub(super) fn is_usage(&self) -> bool {
        match self {
            Self::Role(_) | Self::Entitlement(_) | Self::Tenant(_) | Self::Nobody => true,
            Self::Issuer(error) => match error {
                IssuerError::Ttl { .. }
                | IssuerError::Roles { .. }
                | IssuerError::Machine
                | IssuerError::Label
                | IssuerError::TooLarge => true,
                IssuerError::KeyFile(_) | IssuerError::NotAKey | IssuerError::Rng(_) | IssuerError::Encode { .. } => {
                    false
                }
            },
            Self::NoServer { .. } => false,
        }
    }
}

pub(super) fn carry_out(args: TokenArgs, common: &Common) -> Result<ExitCode, VerbError> {
    let wanted = wanted(&args)?;
    require_root()?;
    let serve = config::data(args.data)?.join("serve");
    if !serve.is_dir() {
        return Err(TokenError::NoServer { path: serve.display().to_string() }.into());
    }
    let issuer = Issuer::open(&serve, SERVER_UID).map_err(TokenError::from)?;
    let now_ms = Clock::system().now_ms();
    let (ttl_seconds, rng) = (args.ttl.as_secs(), Rng::system());
    let token = match &wanted {
        Wanted::User(spec, extras) => issuer.mint_with(spec, extras, now_ms, &rng),
        Wanted::System(name, spec, roles) => issuer.mint_system(name, spec, roles, ttl_seconds, now_ms, &rng),
    };
    let token = token.map_err(TokenError::from)?;
    let expires_ms = now_ms.saturating_add(ttl_seconds.saturating_mul(1000));
    let value = serde_json::json!({ "token": token.reveal(), "expires_ms": expires_ms });
    say(common, &value, || token.reveal().to_owned())
}

/// Of whom the token is to speak.
enum Wanted {
    User(TokenSpec, TokenExtras),
    System(UserId, SystemTokenSpec, BTreeSet<RoleName>),
}

fn wanted(args: &TokenArgs) -> Result<Wanted, TokenError> {
    let roles = args.roles.iter().map(|role| role.parse()).collect::<Result<BTreeSet<RoleName>, _>>()?;
    let named = args.entitlements.iter().map(|name| name.parse()).collect::<Result<BTreeSet<Entitlement>, _>>()?;
    if let Some(name) = &args.service {
        let spec = SystemTokenSpec::Service { tenants: served(&args.tenants)?, entitlements: named };
        return Ok(Wanted::System(name.clone(), spec, roles));
    }
    if let Some(name) = &args.operator {
        return Ok(Wanted::System(name.clone(), SystemTokenSpec::Operator, roles));
    }
    let (Some(tenant), Some(user)) = (args.tenant.clone(), args.user.clone()) else {
        return Err(TokenError::Nobody);
    };
    let spec = TokenSpec {
        tenant,
        user,
        roles,
        entitlements: if named.is_empty() { Entitlement::ALL.into() } else { named },
        ttl_seconds: args.ttl.as_secs(),
    };
    let extras = TokenExtras { region: args.region.clone(), project: args.project.clone(), ..TokenExtras::default() };
    Ok(Wanted::User(spec, extras))
}

fn served(tenants: &[String]) -> Result<ServedTenants, TokenError> {
    if tenants == ["*"] {
        return Ok(ServedTenants::All);
    }
    Ok(ServedTenants::Only(tenants.iter().map(|tenant| tenant.parse()).collect::<Result<_, _>>()?))
}
