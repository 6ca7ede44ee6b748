//! A real issuer: a process of its own that serves discovery and keys over HTTP, and the keys it signs with.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use bailey_control::auth::IssuerConfig;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;

pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key pair of any kind that issuers use.
pub enum Pair {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key that an issuer signs with.
pub struct SigningKey {
    pub kid: String,
    pub pair: Pair,
}

impl SigningKey {
    pub fn rsa(kid: &str) -> Self {
        Self::rsa_of(kid, KeySize::Rsa2048)
    }

    pub fn rsa_of(kid: &str, size: KeySize) -> Self {
        Self { kid: kid.to_owned(), pair: Pair::Rsa(RsaKeyPair::generate(size).unwrap()) }
    }

    pub fn p256(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { kid: kid.to_owned(), pair: Pair::P256(pair) }
    }

    pub fn ed25519(kid: &str) -> Self {
        Self { kid: kid.to_owned(), pair: Pair::Ed25519(Ed25519KeyPair::generate().unwrap()) }
    }

    /// One of each kind.
    pub fn all() -> Vec<Self> {
        vec![Self::rsa("r1"), Self::p256("e1"), Self::ed25519("d1")]
    }

    pub fn alg(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::P256(_) => "ES256",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// The public half as a key set lists it.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let (n, e) = rsa_parts(pair.public_key().as_ref());
                json!({"kty": "RSA", "n": encode(n), "e": encode(e)})
            }
            Pair::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..])})
            }
            Pair::Ed25519(pair) => json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())}),
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.alg());
        jwk
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::P256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with this header and these claims, as texts.
    pub fn token_of(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", encode(signature))
    }

    pub fn header(&self) -> Value {
        json!({"alg": self.alg(), "kid": self.kid, "typ": "at+jwt"})
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_of(&self.header().to_string(), &claims.to_string())
    }
}

/// Modulus and exponent of a PKCS #1 public key.
pub fn rsa_parts(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
    fn element(der: &[u8]) -> (&[u8], &[u8]) {
        let (length, start) = match der[1] {
            short @ 0..=0x7f => (usize::from(short), 2),
            long => {
                let count = usize::from(long & 0x7f);
                let length = der[2..2 + count].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                (length, 2 + count)
            }
        };
        (&der[start..start + length], &der[start + length..])
    }
    let (sequence, _) = element(der);
    let (n, rest) = element(sequence);
    let (e, _) = element(rest);
    let unsigned = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
    (unsigned(n), unsigned(e))
}

/// The process.
pub struct IssuerProcess {
    pub folder: TempDir,
    pub port: u16,
    child: Child,
}

impl IssuerProcess {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mode"), "fine").unwrap();
        let (child, port) = spawn(folder.path(), 0);
        let this = Self { folder, port, child };
        let discovery = json!({"issuer": this.url(), "jwks_uri": format!("{}/keys", this.url()), "more": [1]});
        this.write("discovery", &discovery.to_string());
        this.serve(&[]);
        this
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// As an operator would configure it.
    pub fn config(&self, claims: Value) -> IssuerConfig {
        serde_json::from_value(json!({"issuer": self.url(), "audiences": ["bailey-api"], "claims": claims})).unwrap()
    }

    /// Publishes these keys and no others.
    pub fn serve(&self, keys: &[&SigningKey]) {
        self.write("keys", &json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string());
    }

    pub fn write(&self, name: &str, text: &str) {
        // Renamed into place, so that nobody is served a half.
        let path = self.folder.path().join(name);
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    pub fn mode(&self, mode: &str) {
        self.write("mode", mode);
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Comes back at the same address.
    pub fn restart(&mut self) {
        self.child = spawn(self.folder.path(), self.port).0;
    }
}

impl Drop for IssuerProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spawn(folder: &Path, port: u16) -> (Child, u16) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/issuer.py");
    let mut child = Command::new("python3")
        .arg(script)
        .arg(folder)
        .arg(port.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is what the issuer runs on");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}
