//! A control that trusts one foreign issuer, whose keys are served in this process.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use aws_lc_rs::signature::{ED25519, ParsedPublicKey};
use bailey_control::auth::{Freshness, Issuer, IssuerConfig, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Caller, Control, Parts};
use bailey_control::db::Sqlite;
use bailey_control::event_log::EventLogs;
use bailey_control::ops::identity::keys;
use bailey_control::threads::Threads;
use bailey_policy::{Entitlement, Policies};
use bailey_protocol::api::identity::KeyRequest;
use bailey_protocol::id::RequestId;
use bailey_tree::Trees;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::signer::{Bare, Signer, bare};

pub(crate) struct World {
    pub(crate) control: Control,
    /// A token of the embedded issuer.
    pub(crate) embedded: String,
    /// An API key.
    pub(crate) key: String,
    issuer: String,
    jwks: String,
    _keys_served: AbortOnDropHandle<()>,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn start(signers: &[Signer]) -> anyhow::Result<Self> {
        let keys = signers.iter().map(Signer::jwk).collect::<Result<Vec<_>, _>>()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let served = tokio_util::task::TaskTracker::new().spawn(serve(listener, json!({ "keys": keys }).to_string()));
        let config: IssuerConfig = serde_json::from_value(json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "audiences": ["bailey-api"],
            "claims": { "tenant_claim": "tenant", "tenants": ["*"], "roles_claim": "roles",
                        "default_entitlements": ["execute", "tree"] },
        }))?;
        let folder = tempfile::tempdir()?;
        let issuer = Arc::new(Issuer::open(folder.path(), rustix::process::geteuid().as_raw())?);
        let (authenticator, keepers) = issuer.authenticator().trusting(vec![config], Freshness::default())?;
        let jwks = issuer.jwks()?;
        let parts = Parts {
            config: ControlConfig::new("base".parse()?),
            policies: Policies::new(&[])?,
            prover: None,
            authenticator,
            issuer: Arc::clone(&issuer),
            keepers,
            jwks: jwks.clone(),
            db: Arc::new(Sqlite::open(&folder.path().join("bailey.db"))?),
            trees: Trees::open(&folder.path().join("trees"))?,
            logs: EventLogs::open(&folder.path().join("runs"))?,
            node: mpsc::channel(1).0,
            git: mpsc::channel(1).0,
            clock: Clock::system(),
            rng: Rng::system(),
            threads: Threads::of_runtime(),
            audit_signer: issuer.audit_signer(),
        };
        let control = Control::start(parts).await.map_err(|error| anyhow!(error.cause_chain()))?;
        let spec = TokenSpec {
            tenant: "acme".parse()?,
            user: "ana".parse()?,
            roles: ["admin".parse()?, "member".parse()?].into(),
            entitlements: Entitlement::ALL.into(),
            ttl_seconds: 3600,
        };
        let embedded = issuer.mint(&spec, Clock::system().now_ms(), &Rng::system())?.reveal().to_owned();
        let key = key(&control, &embedded).await?;
        let keys_served = AbortOnDropHandle::new(served);
        Ok(Self { control, embedded, key, issuer: url, jwks, _keys_served: keys_served, _folder: folder })
    }

    /// What the foreign issuer's tokens say.
    pub(crate) fn claims(&self) -> Value {
        let now = Clock::system().now_ms() / 1000;
        json!({ "iss": self.issuer, "aud": "bailey-api", "sub": "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
                "tenant": "acme", "roles": ["member"], "scope": "openid", "iat": now, "exp": now + 3600 })
    }

    /// The signature check of the embedded token.
    pub(crate) fn bare_embedded(&self) -> anyhow::Result<Bare> {
        let jwks: Value = serde_json::from_str(&self.jwks)?;
        let x = jwks.pointer("/keys/0/x").and_then(Value::as_str).context("a key")?;
        let key = ParsedPublicKey::new(&ED25519, URL_SAFE_NO_PAD.decode(x)?).map_err(|error| anyhow!("{error}"))?;
        bare(key, &self.embedded)
    }
}

async fn key(control: &Control, token: &str) -> anyhow::Result<String> {
    let identity = control.identify(token).await.map_err(|error| anyhow!(error.cause_chain()))?;
    let bailey_control::auth::Identity::User(principal) = identity else { anyhow::bail!("the token is no user's") };
    let caller = Caller::new(principal, RequestId::mint(0, [0; 10]));
    let request = KeyRequest {
        name: "bench".to_owned(),
        user: None,
        roles: vec!["member".to_owned()],
        entitlements: None,
        actions: None,
        paths: None,
        read_only: false,
        ttl_seconds: 3600,
    };
    let made = keys::create(control, &caller, request).await;
    Ok(made.map_err(|error| anyhow!(error.cause_chain()))?.value)
}

/// Answers every request with the key set.
async fn serve(listener: TcpListener, keys: String) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut head = [0; 4096];
        let asked = stream.read(&mut head).await.is_ok();
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{keys}", keys.len());
        if !asked || stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
