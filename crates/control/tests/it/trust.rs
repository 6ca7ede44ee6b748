//! An authenticator that trusts one real issuer, and tokens for it.

use std::time::{Duration, Instant};

use bailey_control::auth::{AuthError, Authenticator, Freshness, Identity, Issuer, IssuerConfig};
use bailey_policy::Principal;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::issuer::IssuerProcess;

pub const NOW: u64 = 1_800_000_000;
pub const FRESHNESS: Freshness = Freshness {
    every: Duration::from_millis(400),
    at_most_every: Duration::from_millis(150),
    patience: Duration::from_millis(700),
    stale: Duration::from_secs(60),
};

/// An authenticator that trusts one issuer, with the task that keeps its keys.
pub struct Trust {
    pub authenticator: Authenticator,
    _keepers: Vec<AbortOnDropHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Trust {
    pub fn new(config: IssuerConfig) -> Self {
        Self::with(config, FRESHNESS)
    }

    pub fn with(config: IssuerConfig, freshness: Freshness) -> Self {
        config.check().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let own = Issuer::open(folder.path(), rustix::process::getuid().as_raw()).unwrap();
        let (authenticator, keepers) = own.authenticator().trusting(vec![config], freshness).unwrap();
        let keepers = keepers.into_iter().map(|keeper| AbortOnDropHandle::new(tokio::spawn(keeper.keep()))).collect();
        Self { authenticator, _keepers: keepers, _folder: folder }
    }

    pub async fn identify(&self, token: &str) -> Result<Identity, AuthError> {
        self.authenticator.verify(token, NOW * 1000).await
    }

    pub async fn user(&self, token: &str) -> Principal {
        match self.identify(token).await {
            Ok(Identity::User(principal)) => principal,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for what the keeper will have found out soon.
    pub async fn until<T: std::fmt::Debug>(
        &self,
        token: &str,
        seen: impl Fn(&Result<Identity, AuthError>) -> Option<T>,
    ) -> T {
        let begin = Instant::now();
        loop {
            let answer = self.identify(token).await;
            if let Some(found) = seen(&answer) {
                return found;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Refuses each token, each within 5 ms (the best of three, as other work shares the machine).
    pub async fn refuses(&self, tokens: Vec<(String, String)>) {
        for (name, token) in tokens {
            let mut best = Duration::MAX;
            for _ in 0..3 {
                let begin = Instant::now();
                let answer = self.identify(&token).await;
                best = best.min(begin.elapsed());
                assert!(answer.is_err(), "{name}: {answer:?}");
            }
            assert!(best <= Duration::from_millis(5), "{name} took {best:?}");
        }
    }
}

pub fn mapping() -> Value {
    json!({"tenant_claim": "tenant", "tenants": ["*"], "roles_claim": "roles", "entitlements_claim": "scope",
           "default_entitlements": ["tree"]})
}

pub fn claims(issuer: &IssuerProcess) -> Value {
    json!({"iss": issuer.url(), "aud": "bailey-api", "sub": "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "tenant": "acme",
           "roles": ["member"], "scope": "openid execute", "iat": NOW, "exp": NOW + 600, "anything": {"else": [1]}})
}

pub fn with(mut whole: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            whole.as_object_mut().unwrap().remove(name);
        } else {
            whole[name] = value.clone();
        }
    }
    whole
}

pub fn named(name: &str, token: String) -> (String, String) {
    (name.to_owned(), token)
}

pub fn fine(answer: &Result<Identity, AuthError>) -> Option<()> {
    answer.is_ok().then_some(())
}
