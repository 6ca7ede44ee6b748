//! Foreign issuers: whose keys they are, kept fresh by one task each, and what their tokens have to be.
//!
//! ```text
//!              every 30 s, or when a request misses a key (at most every 5 s)
//! no keys yet ──────────────fetch ok──────────────▶ keys ──fetch ok──▶ the new set alone
//!      │                                             │ ▲
//!      └── fetch fails: tokens are answered 503      └─┘ fetch fails: the last set holds, for a day at most
//! ```
//!
//! A request never fetches. It looks a key up, and where there is none it wakes the task and waits a little.

mod config;
mod fetch;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod jwks;
mod mapping;
mod user_name;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::jws::{Jws, part};
use super::key::{Algorithm, PublicKey};
use super::verify::{AuthError, Identity};
use super::{LEEWAY_SECONDS, MAX_SYSTEM_TTL_SECONDS};
use fetch::{FetchError, Fetcher};
use jwks::{KeySet, is_kid};
use mapping::Held;

pub use config::{ClaimPath, IssuerConfig, IssuerConfigError, MappingConfig, OperatorRule, ServiceRule};

/// How long an address holds that the issuer's discovery document named.
const DISCOVERY: Duration = Duration::from_secs(3600);

/// How the keys of an issuer are kept.
#[derive(Debug, Clone, Copy)]
pub struct Freshness {
    /// Time between two fetches: a removed key is dead after it at the latest, and after one fetch.
    pub every: Duration,
    /// Least time between two fetches, whatever asks for them.
    pub at_most_every: Duration,
    /// How long a request waits for a key that is not there yet.
    pub patience: Duration,
    /// How long the last keys hold while the issuer cannot be asked.
    pub stale: Duration,
}

impl Default for Freshness {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            at_most_every: Duration::from_secs(5),
            patience: Duration::from_secs(3),
            stale: Duration::from_secs(24 * 3600),
        }
    }
}

/// Where the keys of an issuer have got to.
#[derive(Debug, Clone, Default)]
struct Known {
    keys: Arc<KeySet>,
    /// When they were fetched; `None` while they never were, or are too old to be believed.
    fetched: Option<Instant>,
    /// Fetches that have ended.
    fetches: u64,
    /// When the last one began.
    began: Option<Instant>,
    /// Whether one is under way.
    fetching: bool,
    /// Whether the last one failed.
    failed: bool,
}

/// How fresh an issuer's keys are.
#[derive(Debug, Clone)]
pub(crate) struct KeyAge {
    /// Its name.
    pub(crate) issuer: String,
    /// Since when the keys are known; `None` while there are none.
    pub(crate) age: Option<Duration>,
    /// Whether it could not be asked the last time.
    pub(crate) failing: bool,
}

/// A trusted issuer. Clones share what is known of its keys.
#[derive(Clone)]
pub(super) struct ForeignIssuer {
    config: Arc<IssuerConfig>,
    freshness: Freshness,
    known: watch::Receiver<Known>,
    wake: mpsc::Sender<()>,
}

impl fmt::Debug for ForeignIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignIssuer").field("issuer", &self.config.issuer).finish_non_exhaustive()
    }
}

/// The one task that asks an issuer for its keys.
#[derive(Debug)]
pub struct KeyKeeper {
    config: Arc<IssuerConfig>,
    freshness: Freshness,
    fetcher: Fetcher,
    known: watch::Sender<Known>,
    woken: mpsc::Receiver<()>,
    /// Where the keys are, and since when that is known.
    address: Option<(Url, Instant)>,
}

/// Why an issuer cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare to ask issuers for their keys")]
pub struct ForeignIssuerError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// What is looked at of a header. Fields that would bring a key, or change what is signed, are refused.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Header fields that no token of ours has a use for, and an attacker may.
const REFUSED: [&str; 9] = ["jwk", "jku", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty"];

#[derive(Deserialize)]
struct Times {
    exp: u64,
    iat: u64,
    nbf: Option<u64>,
}

impl ForeignIssuer {
    /// A handle on what will be known, and the task that finds it out.
    pub(super) fn new(config: IssuerConfig, freshness: Freshness) -> Result<(Self, KeyKeeper), ForeignIssuerError> {
        let fetcher = Fetcher::new().map_err(|error| ForeignIssuerError(Box::new(error)))?;
        let (known, watched) = watch::channel(Known::default());
        let (wake, woken) = mpsc::channel(1);
        let config = Arc::new(config);
        let issuer = Self { config: Arc::clone(&config), freshness, known: watched, wake };
        Ok((issuer, KeyKeeper { config, freshness, fetcher, known, woken, address: None }))
    }

    /// Its `iss`.
    pub(super) fn name(&self) -> &str {
        &self.config.issuer
    }

    /// Who a token that says it is this issuer's speaks for.
    pub(super) async fn verify(&self, token: &Jws<'_>, now: u64) -> Result<Identity, AuthError> {
        let header: Header = part(&token.header, "header")?;
        let algorithm = self.check(&header)?;
        let kid = header.kid.as_deref().filter(|kid| is_kid(kid)).ok_or(AuthError::UnknownKey)?;
        let key = self.key(kid).await?;
        if key.algorithm() != algorithm {
            return Err(AuthError::Header { field: "alg" });
        }
        if !key.signed(token.message, &token.signature) {
            return Err(AuthError::Signature);
        }
        let claims: Map<String, Value> = part(&token.payload, "claims")?;
        let held = self.hold(&claims, &token.payload, now)?;
        let valid_until_ms = held.valid_until_ms;
        let identity = mapping::identity(&self.config, &claims, held)?;
        let most = now.saturating_add(MAX_SYSTEM_TTL_SECONDS + LEEWAY_SECONDS).saturating_mul(1000);
        match identity {
            Identity::Service(_) | Identity::Operator(_) if valid_until_ms > most => {
                Err(AuthError::Claim { claim: "exp" })
            }
            Identity::User(_) | Identity::Service(_) | Identity::Operator(_) => Ok(identity),
        }
    }

    fn check(&self, header: &Header) -> Result<Algorithm, AuthError> {
        if let Some(field) = REFUSED.into_iter().find(|field| header.other.contains_key(*field)) {
            return Err(AuthError::Header { field });
        }
        let kind = header.typ.as_deref().unwrap_or("");
        let fits = |wanted: &String| {
            wanted.eq_ignore_ascii_case(kind) || config::is_access_type(wanted) && config::is_access_type(kind)
        };
        if !self.config.token_types.iter().any(fits) {
            return Err(AuthError::Header { field: "typ" });
        }
        Algorithm::parse(&header.alg).ok_or(AuthError::Header { field: "alg" })
    }

    /// The key of that name, for which the issuer may have to be asked.
    async fn key(&self, kid: &str) -> Result<Arc<PublicKey>, AuthError> {
        let mut known = self.known.clone();
        let (found, seen, again) = {
            let now = known.borrow_and_update();
            let just_asked = now.began.is_some_and(|began| began.elapsed() < self.freshness.at_most_every);
            (self.find(&now, kid), now.fetches, !just_asked || now.fetching)
        };
        if let Some(key) = found {
            return Ok(key);
        }
        if again {
            // A full channel means that the task is awake already.
            let _awake = self.wake.try_send(()).is_err();
            let fetched = known.wait_for(|known| known.fetches > seen);
            // Whether it came in time shows below.
            drop(tokio::time::timeout(self.freshness.patience, fetched).await);
        }
        let now = known.borrow();
        match self.find(&now, kid) {
            Some(key) => Ok(key),
            None if now.failed || now.fetched.is_none() => Err(AuthError::IssuerUnavailable),
            None => Err(AuthError::UnknownKey),
        }
    }

    pub(super) fn key_age(&self) -> KeyAge {
        let known = self.known.borrow();
        let age = known.fetched.map(|fetched| fetched.elapsed());
        KeyAge { issuer: self.config.issuer.clone(), age, failing: known.failed }
    }

    fn find(&self, known: &Known, kid: &str) -> Option<Arc<PublicKey>> {
        let fresh = known.fetched.is_some_and(|fetched| fetched.elapsed() < self.freshness.stale);
        if fresh { known.keys.get(kid).cloned() } else { None }
    }

    /// Checks issuer, audience, times and whatever else the operator wants; answers when it does.
    fn hold(&self, claims: &Map<String, Value>, payload: &[u8], now: u64) -> Result<Held, AuthError> {
        let is = |name: &str, wanted: &str| claims.get(name).and_then(Value::as_str) == Some(wanted);
        if !is("iss", &self.config.issuer) {
            return Err(AuthError::Claim { claim: "iss" });
        }
        let ours = |value: &Value| value.as_str().is_some_and(|name| self.config.audiences.iter().any(|a| a == name));
        let for_us = match claims.get(&self.config.audience_claim) {
            Some(Value::Array(all)) => all.iter().any(ours),
            Some(one) => ours(one),
            None => false,
        };
        if !for_us {
            return Err(AuthError::Claim { claim: "aud" });
        }
        if !self.config.require.iter().all(|(name, wanted)| is(name, wanted)) {
            return Err(AuthError::Claim { claim: "required" });
        }
        let times: Times = part(payload, "claims")?;
        let valid_until_ms = super::verify::check_times(times.exp, times.iat, times.nbf.unwrap_or(times.iat), now)?;
        Ok(Held { issued_s: times.iat, valid_until_ms })
    }
}

impl KeyKeeper {
    /// Keeps the keys fresh for as long as it is polled.
    ///
    /// CANCEL: what was known stays as it was.
    pub async fn keep(mut self) {
        loop {
            let began = Instant::now();
            self.known.send_modify(|known| {
                known.began = Some(began);
                known.fetching = true;
            });
            let outcome = self.fetch().await;
            self.note(outcome);
            // Those who woke the task for what this fetch brought are answered.
            while self.woken.try_recv().is_ok() {}
            let next = tokio::time::sleep_until(began + self.freshness.every);
            tokio::select! {
                () = next => {}
                Some(()) = self.woken.recv() => tokio::time::sleep_until(began + self.freshness.at_most_every).await,
            }
        }
    }

    async fn fetch(&mut self) -> Result<KeySet, FetchError> {
        let (address, found) = match self.address.take() {
            Some((address, found)) if found.elapsed() < DISCOVERY => (address, found),
            Some(_) | None => (self.fetcher.discover(&self.config).await?, Instant::now()),
        };
        let keys = self.fetcher.keys(address.clone()).await?;
        // After a failure the address is asked for again: it may be what changed.
        self.address = Some((address, found));
        Ok(keys)
    }

    fn note(&self, outcome: Result<KeySet, FetchError>) {
        let issuer = &self.config.issuer;
        match outcome {
            Ok(keys) => {
                if keys.len() == 0 {
                    tracing::warn!(issuer, "issuer has no key that signs: none of its tokens holds");
                }
                tracing::debug!(issuer, keys = keys.len(), "issuer's keys are fresh");
                self.known.send_modify(|known| {
                    if known.failed {
                        tracing::info!(issuer, "issuer's keys can be had again");
                    }
                    known.keys = Arc::new(keys);
                    known.fetched = Some(Instant::now());
                    known.failed = false;
                    known.fetching = false;
                    known.fetches += 1;
                });
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(issuer, error, "issuer's keys cannot be had: those of before hold");
                self.known.send_modify(|known| {
                    known.failed = true;
                    known.fetching = false;
                    known.fetches += 1;
                });
            }
        }
    }
}
