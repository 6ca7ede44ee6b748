//! What an operator says about an issuer: where it is, for whom its tokens are, and what their claims mean here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bailey_policy::Entitlement;
use bailey_protocol::id::{TenantId, UserId};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::super::claims::{EMBEDDED, MAX_ROLES};
use super::super::{RoleName, TOKEN_TYPE, is_machine};

/// One trusted issuer of OIDC access tokens. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// Its `iss`, exactly. Discovery is asked for below it.
    pub issuer: String,
    /// Where its keys are, for an issuer without discovery.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// Whether `http` will do although the issuer is not on this machine. For tests.
    #[serde(default)]
    pub insecure_http: bool,
    /// One of these has to be in `audience_claim`.
    pub audiences: Vec<String>,
    /// Where a token says for whom it is.
    #[serde(default = "audience_claim")]
    pub audience_claim: String,
    /// Header types that its access tokens have; an empty one is a token without a type.
    #[serde(default = "token_types")]
    pub token_types: Vec<String>,
    /// Claims that must have exactly this value. Needed where the type does not tell access tokens from others.
    #[serde(default)]
    pub require: BTreeMap<String, String>,
    /// Of whom its tokens speak.
    pub claims: MappingConfig,
    /// Clients of it that are service accounts.
    #[serde(default)]
    pub services: Vec<ServiceRule>,
    /// People of it who run this server.
    #[serde(default)]
    pub operators: Vec<OperatorRule>,
}

/// How claims become a principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MappingConfig {
    /// Every token is of this tenant…
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// …or of the one that this claim names.
    #[serde(default)]
    pub tenant_claim: Option<ClaimPath>,
    /// With `tenant_claim`: the tenants that this issuer may speak for; `*` is every one.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// With `tenant_claim`: what it calls a tenant, and which that is here. Then no other value holds.
    #[serde(default)]
    pub tenant_names: BTreeMap<String, TenantId>,
    /// The claim that names the user.
    #[serde(default = "user_claim")]
    pub user_claim: ClaimPath,
    /// Put before each user, to tell its users from another issuer's of the same tenant.
    #[serde(default)]
    pub user_prefix: String,
    /// The claim that lists roles.
    #[serde(default)]
    pub roles_claim: Option<ClaimPath>,
    /// What it calls a role, and which that is here. Then other values mean nothing.
    #[serde(default)]
    pub role_names: BTreeMap<String, RoleName>,
    /// The claim that lists entitlements. Values that are none mean nothing.
    #[serde(default)]
    pub entitlements_claim: Option<ClaimPath>,
    /// What it calls an entitlement, and which that is here.
    #[serde(default)]
    pub entitlement_names: BTreeMap<String, Entitlement>,
    /// What a token without that claim grants.
    #[serde(default)]
    pub default_entitlements: BTreeSet<Entitlement>,
    /// The claim that names a region.
    #[serde(default)]
    pub region_claim: Option<ClaimPath>,
    /// The claim that names a project.
    #[serde(default)]
    pub project_claim: Option<ClaimPath>,
}

/// A claim: its name, or the names on the way down to it.
///
/// As one text, dots lead down, but for a text with `://` or `:`, which is one name. A list says it exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ClaimText", into = "ClaimText")]
pub struct ClaimPath(Vec<String>);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum ClaimText {
    One(String),
    Names(Vec<String>),
}

impl From<ClaimText> for ClaimPath {
    fn from(text: ClaimText) -> Self {
        match text {
            ClaimText::One(name) if name.contains(':') => Self(vec![name]),
            ClaimText::One(path) => Self(path.split('.').map(str::to_owned).collect()),
            ClaimText::Names(names) => Self(names),
        }
    }
}

impl From<ClaimPath> for ClaimText {
    fn from(path: ClaimPath) -> Self {
        Self::Names(path.0)
    }
}

impl ClaimPath {
    /// The names on the way down.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

/// A client of the issuer that is a service account here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceRule {
    /// Where this claim…
    pub claim: ClaimPath,
    /// …is, or lists, this value…
    pub value: String,
    /// …the token is that of the service account of this name,
    pub name: UserId,
    /// which acts for these tenants; `*` is every one.
    pub tenants: Vec<String>,
    /// The roles that users may have at most whom it only names.
    #[serde(default)]
    pub roles: BTreeSet<RoleName>,
    /// The primitives that users may use at most whom it only names.
    #[serde(default)]
    pub entitlements: BTreeSet<Entitlement>,
}

/// People of the issuer who are operators here. Their name is that of the user claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorRule {
    /// Where this claim…
    pub claim: ClaimPath,
    /// …is, or lists, this value, the token is an operator's.
    pub value: String,
}

/// Why an issuer cannot be trusted as it is described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("issuer `{issuer}`: {rule}")]
pub struct IssuerConfigError {
    issuer: String,
    rule: &'static str,
}

fn audience_claim() -> String {
    "aud".to_owned()
}

fn token_types() -> Vec<String> {
    vec![TOKEN_TYPE.to_owned()]
}

fn user_claim() -> ClaimPath {
    ClaimPath(vec!["sub".to_owned()])
}

impl IssuerConfig {
    /// Checks what can be checked without asking the issuer.
    ///
    /// # Errors
    /// With the rule that it breaks.
    pub fn check(&self) -> Result<(), IssuerConfigError> {
        let mapping = &self.claims;
        let claims = [&mapping.tenant_claim, &mapping.roles_claim, &mapping.entitlements_claim]
            .into_iter()
            .chain([&mapping.region_claim, &mapping.project_claim])
            .flatten()
            .chain([&mapping.user_claim])
            .chain(self.services.iter().map(|rule| &rule.claim))
            .chain(self.operators.iter().map(|rule| &rule.claim));
        let named = |path: &ClaimPath| !path.0.is_empty() && path.0.len() <= 8 && path.0.iter().all(|n| !n.is_empty());
        let only_access = self.token_types.iter().all(|kind| is_access_type(kind));
        let services = self.services.iter().all(|rule| !rule.tenants.is_empty() && are_tenants(&rule.tenants));
        let few = self.services.iter().all(|rule| rule.roles.len() <= MAX_ROLES);
        let rules = [
            (self.issuer != EMBEDDED, "`bailey` is the embedded issuer's own name"),
            (self.url(&self.issuer).is_some(), "`issuer` has to be an `https` URL without query, fragment or user"),
            (
                self.jwks_uri.as_ref().is_none_or(|uri| self.url(uri).is_some()),
                "`jwks_uri` has to be an `https` URL without fragment or user",
            ),
            (
                !self.audiences.is_empty() && self.audiences.iter().all(|audience| !audience.is_empty()),
                "`audiences` has to name for whom its tokens are",
            ),
            (!self.token_types.is_empty(), "`token_types` has to name at least one"),
            (
                only_access || !self.require.is_empty(),
                "`token_types` other than `at+jwt` need `require`, to tell access tokens from identity tokens",
            ),
            (mapping.tenant.is_some() != mapping.tenant_claim.is_some(), "give either `tenant` or `tenant_claim`"),
            (
                mapping.tenant_claim.is_some() != mapping.tenants.is_empty(),
                "`tenant_claim` needs `tenants`, the tenants that this issuer speaks for (`[\"*\"]` for all)",
            ),
            (are_tenants(&mapping.tenants), "`tenants` has to hold tenant ids, or `*` alone"),
            (claims.into_iter().all(named), "a claim has to be named by 1 to 8 names"),
            (services, "a service needs `tenants`: tenant ids, or `*` alone"),
            (few, "a service has 16 `roles` at most"),
            (
                mapping.user_prefix.is_empty()
                    || format!("{}x", mapping.user_prefix).parse().is_ok_and(|user: UserId| !is_machine(&user)),
                "`user_prefix` has to be the beginning of a user id",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(IssuerConfigError { issuer: self.issuer.chars().take(200).collect(), rule }),
        }
    }

    /// `text` as an address that may be asked; `None` where it may not.
    pub(super) fn url(&self, text: &str) -> Option<Url> {
        let url: Url = text.parse().ok()?;
        let loopback = address(&url).is_some_and(|address| address.is_loopback());
        let scheme = url.scheme() == "https" || url.scheme() == "http" && (loopback || self.insecure_http);
        let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        (url.has_host() && scheme && plain && text.len() <= 2048).then_some(url)
    }

    /// As [`IssuerConfig::url`], for an address that the issuer's own discovery names. A remote issuer sends nobody to
    /// this machine or its neighbours; one that is configured to be there may. A name that only resolves to such an
    /// address has to show a certificate for it.
    pub(super) fn discovered(&self, text: &str) -> Option<Url> {
        let url = self.url(text)?;
        let same_host = self.url(&self.issuer).is_some_and(|own| own.host_str() == url.host_str());
        (same_host || !is_near(&url)).then_some(url)
    }
}

/// The address that a URL names as such.
fn address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether a host is this machine, or one that only its network reaches.
fn is_near(url: &Url) -> bool {
    let near = |v4: Ipv4Addr| {
        v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast()
    };
    match address(url).map(|address| address.to_canonical()) {
        Some(IpAddr::V4(v4)) => near(v4),
        Some(IpAddr::V6(v6)) => {
            let embedded = v6.to_ipv4().is_some_and(near);
            embedded || v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local()
        }
        None => {
            let name = url.host_str().unwrap_or("").trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// Whether a token of this type can only be an access token (RFC 9068).
pub(super) fn is_access_type(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    kind == TOKEN_TYPE || kind.strip_prefix("application/") == Some(TOKEN_TYPE)
}

fn are_tenants(names: &[String]) -> bool {
    names == ["*"] || names.iter().all(|name| name.parse::<TenantId>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(issuer: &str) -> IssuerConfig {
        let claims = serde_json::json!({"tenant": "acme"});
        serde_json::from_value(serde_json::json!({"issuer": issuer, "audiences": ["a"], "claims": claims})).unwrap()
    }

    #[test]
    fn a_remote_issuer_sends_nobody_to_this_machine() {
        let remote = config("https://id.example.com");
        for near in [
            "http://127.0.0.1/keys",
            "https://127.0.0.1/keys",
            "https://127.9.9.9:8443/keys",
            "https://2130706433/keys",
            "https://0x7f.1/keys",
            "https://[::1]/keys",
            "https://[::ffff:127.0.0.1]/keys",
            "https://[::127.0.0.1]/keys",
            "https://localhost/keys",
            "https://LocalHost./keys",
            "https://a.localhost/keys",
            "https://0.0.0.0/keys",
            "https://10.1.2.3/keys",
            "https://192.168.0.1/keys",
            "https://169.254.169.254/latest",
            "https://[fe80::1]/keys",
            "https://[fd00::1]/keys",
            "http://id.example.com/keys",
        ] {
            assert_eq!(remote.discovered(near), None, "{near}");
        }
        for far in ["https://id.example.com/keys", "https://keys.example.net/keys", "https://192.0.2.1/keys"] {
            assert!(remote.discovered(far).is_some(), "{far}");
        }
        let local = config("http://127.0.0.1:8080");
        assert!(local.discovered("http://127.0.0.1:9090/keys").is_some());
        assert_eq!(local.discovered("http://127.0.0.2:9090/keys"), None);
    }
}
