//! Who is trusted to say who asks, and for how long that holds.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bailey_control::auth::IssuerConfig;
use bailey_control::config::{IdentityConfig, WebhookSecret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Most issuers of one server.
const MAX_ISSUERS: usize = 64;
/// Longest time that a run may go on past its token, in seconds.
const MAX_RUN_AGE: u64 = 30 * 24 * 3600;
/// Longest life of an exchanged token, in seconds.
const MAX_EXCHANGED: u64 = 3600;

/// The file's table `[identity]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IdentityFile {
    /// Seconds that a run may go on after the token that asked for it is expired.
    max_run_age_past_expiry: Option<u64>,
    /// Seconds that a token holds which a service account gets for a user.
    exchanged_token_seconds: Option<u64>,
    /// File with the secret that identity providers sign their messages with, for root alone.
    webhook_secret: Option<PathBuf>,
}

/// What the supervised server is told of it. `Debug` does not show the secret.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerIdentity {
    pub(crate) issuers: Vec<IssuerConfig>,
    max_run_age_past_expiry: Option<u64>,
    exchanged_token_seconds: Option<u64>,
    webhook_secret: Option<String>,
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity").field("issuers", &self.issuers).finish_non_exhaustive()
    }
}

impl ServerIdentity {
    /// Checks what the file at `path` says.
    pub(super) fn read(path: &Path, file: IdentityFile, issuers: Vec<IssuerConfig>) -> Result<Self, ConfigError> {
        let wrong = |key, given: String, rule| ConfigError::Value { path: path.to_owned(), key, given, rule };
        let range = |key, given: Option<u64>, least, most, rule| match given {
            Some(seconds) if !(least..=most).contains(&seconds) => Err(wrong(key, seconds.to_string(), rule)),
            fine => Ok(fine),
        };
        if issuers.len() > MAX_ISSUERS {
            return Err(wrong("issuers", issuers.len().to_string(), "use at most 64"));
        }
        for (at, issuer) in issuers.iter().enumerate() {
            issuer.check().map_err(|source| ConfigError::Issuer { path: path.to_owned(), source })?;
            if issuers.iter().take(at).any(|other| other.issuer == issuer.issuer) {
                return Err(wrong("issuers", issuer.issuer.clone(), "describe each issuer once"));
            }
        }
        Ok(Self {
            issuers,
            max_run_age_past_expiry: range(
                "identity.max_run_age_past_expiry",
                file.max_run_age_past_expiry,
                0,
                MAX_RUN_AGE,
                "use 0 to 2592000",
            )?,
            exchanged_token_seconds: range(
                "identity.exchanged_token_seconds",
                file.exchanged_token_seconds,
                60,
                MAX_EXCHANGED,
                "use 60 to 3600",
            )?,
            webhook_secret: file.webhook_secret.as_deref().map(secret).transpose()?,
        })
    }

    /// What control is told.
    pub(crate) fn control(&self) -> anyhow::Result<IdentityConfig> {
        let mut config = IdentityConfig::default();
        if let Some(seconds) = self.max_run_age_past_expiry {
            config.max_run_age_past_expiry = std::time::Duration::from_secs(seconds);
        }
        if let Some(seconds) = self.exchanged_token_seconds {
            config.max_exchanged = std::time::Duration::from_secs(seconds);
        }
        if let Some(secret) = &self.webhook_secret {
            config.webhook = WebhookSecret::new(STANDARD.decode(secret)?);
        }
        Ok(config)
    }
}

/// The secret in a file that nobody but its owner may read, as base64 for the way to the server.
fn secret(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(ConfigError::Exposed { path: path.to_owned() });
    }
    let text = std::fs::read(path).map_err(failed)?;
    let secret = text.strip_suffix(b"\n").unwrap_or(&text).to_vec();
    if WebhookSecret::new(secret.clone()).is_none() {
        let (key, rule) = ("identity.webhook_secret", "use a file of at least 32 bytes");
        return Err(ConfigError::Value { path: path.to_owned(), key, given: "too short".to_owned(), rule });
    }
    Ok(STANDARD.encode(secret))
}
