//! What a foreign issuer answers, and what its tokens claim behind a good signature.

use serde_json::{Map, Value, json};

use super::config::IssuerConfig;
use super::jwks::{KeySet, MAX_KEYS};
use super::mapping;
use crate::auth::Identity;

/// A key set, however it is made, is a small one.
pub(in crate::auth) fn key_set(data: &[u8]) {
    if let Ok(keys) = KeySet::parse(data) {
        assert!(keys.len() <= MAX_KEYS);
        assert!(keys.get("").is_none(), "a key without a name");
    }
}

/// Whom claims speak for, at an issuer of several tenants.
pub(in crate::auth) fn claims(data: &[u8]) -> Option<Identity> {
    let claims: Map<String, Value> = serde_json::from_slice(data).ok()?;
    let config = json!({
        "issuer": "https://issuer.example", "audiences": ["bailey"],
        "claims": {"tenant_claim": "org", "tenants": ["acme", "globex"], "tenant_names": {"Acme Inc": "acme"},
                   "roles_claim": "roles", "role_names": {"Admins": "admin"}, "user_prefix": "x-",
                   "entitlements_claim": "scope", "region_claim": "region", "project_claim": "project"},
        "services": [{"claim": "azp", "value": "app", "name": "app", "tenants": ["acme"]}],
        "operators": [{"claim": "groups", "value": "ops"}],
    });
    let config: IssuerConfig = serde_json::from_value(config).expect("a configuration of our own");
    config.check().expect("a configuration of our own");
    mapping::identity(&config, &claims, mapping::Held { issued_s: 0, valid_until_ms: u64::MAX }).ok()
}
