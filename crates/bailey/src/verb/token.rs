//! `bailey token`: signs with this machine's own issuer, whose key only root and the server can read.

use std::collections::BTreeSet;
use std::process::ExitCode;

use bailey_control::auth::{Issuer, IssuerError, RoleError, RoleName, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_policy::Entitlement;
use bailey_policy::principal::UnknownEntitlement;
use bailey_protocol::jail::SERVER_UID;

use super::VerbError;
use crate::cli::TokenArgs;
use crate::serve::host::require_root;
use crate::{config, terminal};

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(transparent)]
    Role(#[from] RoleError),
    #[error(transparent)]
    Entitlement(#[from] UnknownEntitlement),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error("`{path}` is no server's data folder yet: start `bailey serve` with it once")]
    NoServer { path: String },
}

pub(super) fn carry_out(args: TokenArgs, json: bool) -> Result<ExitCode, VerbError> {
    let spec = spec(&args)?;
    require_root()?;
    let serve = config::data(args.data)?.join("serve");
    if !serve.is_dir() {
        return Err(TokenError::NoServer { path: serve.display().to_string() }.into());
    }
    let issuer = Issuer::open(&serve, SERVER_UID).map_err(TokenError::from)?;
    let now_ms = Clock::system().now_ms();
    let token = issuer.mint(&spec, now_ms, &Rng::system()).map_err(TokenError::from)?;
    if json {
        let expires_ms = now_ms.saturating_add(spec.ttl_seconds.saturating_mul(1000));
        terminal::json(&serde_json::json!({ "token": token.reveal(), "expires_ms": expires_ms }))?;
    } else {
        terminal::line(token.reveal())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn spec(args: &TokenArgs) -> Result<TokenSpec, TokenError> {
    let roles = args.roles.iter().map(|role| role.parse()).collect::<Result<BTreeSet<RoleName>, _>>()?;
    let named = args.entitlements.iter().map(|name| name.parse()).collect::<Result<BTreeSet<Entitlement>, _>>()?;
    Ok(TokenSpec {
        tenant: args.tenant.clone(),
        user: args.user.clone(),
        roles,
        entitlements: if named.is_empty() { Entitlement::ALL.into() } else { named },
        ttl_seconds: args.ttl.as_secs(),
    })
}
