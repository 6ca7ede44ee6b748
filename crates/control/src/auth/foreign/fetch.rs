//! Asking an issuer for its keys: bounded in size and time, no redirect, no proxy, and no address but those that the
//! operator configured or the issuer's own discovery document names.

use std::time::Duration;

use reqwest::{Client, Url};
use serde::Deserialize;

use super::config::IssuerConfig;
use super::jwks::{KeySet, KeySetError};
use crate::strict_json;

/// Largest document of an issuer, in bytes.
const MAX_DOCUMENT: usize = 256 * 1024;
/// Time for one document.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why an issuer's keys could not be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// The client cannot be made.
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
    /// An address may not be asked.
    #[error("the issuer's {what} is no address that may be asked")]
    Address {
        /// `issuer` or `jwks_uri`.
        what: &'static str,
    },
    /// No answer.
    #[error("the issuer's {what} cannot be had")]
    Unreachable {
        /// Which document.
        what: &'static str,
        /// Why.
        source: reqwest::Error,
    },
    /// Another answer than 200, a redirect for one.
    #[error("the issuer answers {status} for its {what}")]
    Status {
        /// Which document.
        what: &'static str,
        /// The status.
        status: u16,
    },
    /// More bytes than any issuer needs.
    #[error("the issuer's {what} is larger than {MAX_DOCUMENT} bytes")]
    TooLarge {
        /// Which document.
        what: &'static str,
    },
    /// The discovery document is none, or another issuer's.
    #[error("the issuer's discovery document is not its own")]
    Discovery,
    /// The key set.
    #[error(transparent)]
    Keys(#[from] KeySetError),
}

/// What is looked at of a discovery document.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// Asks one issuer.
#[derive(Debug)]
pub(super) struct Fetcher {
    http: Client,
}

impl Fetcher {
    pub(super) fn new() -> Result<Self, FetchError> {
        let http = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("bailey/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(FetchError::Client)?;
        Ok(Self { http })
    }

    /// The address of the issuer's key set.
    pub(super) async fn discover(&self, config: &IssuerConfig) -> Result<Url, FetchError> {
        if let Some(uri) = &config.jwks_uri {
            return config.url(uri).ok_or(FetchError::Address { what: "jwks_uri" });
        }
        let base = config.issuer.strip_suffix('/').unwrap_or(&config.issuer);
        let address = config.url(&format!("{base}/.well-known/openid-configuration"));
        let text = self.get(address.ok_or(FetchError::Address { what: "issuer" })?, "discovery document").await?;
        strict_json::check(&text).map_err(|_unreadable| FetchError::Discovery)?;
        let found: Discovery = serde_json::from_slice(&text).map_err(|_unreadable| FetchError::Discovery)?;
        if found.issuer != config.issuer {
            return Err(FetchError::Discovery);
        }
        config.discovered(&found.jwks_uri).ok_or(FetchError::Address { what: "jwks_uri" })
    }

    /// The issuer's keys.
    pub(super) async fn keys(&self, address: Url) -> Result<KeySet, FetchError> {
        Ok(KeySet::parse(&self.get(address, "key set").await?)?)
    }

    async fn get(&self, address: Url, what: &'static str) -> Result<Vec<u8>, FetchError> {
        let unreachable = |source: reqwest::Error| FetchError::Unreachable { what, source: source.without_url() };
        let request = self.http.get(address).header("accept", "application/json");
        let mut response = request.send().await.map_err(unreachable)?;
        if response.status() != 200 {
            return Err(FetchError::Status { what, status: response.status().as_u16() });
        }
        let mut all = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if all.len() + chunk.len() > MAX_DOCUMENT {
                return Err(FetchError::TooLarge { what });
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }
}
