use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::Ed25519KeyPair;
use bailey_policy::{Action, CredentialKind, Entitlement, Principal, Scope, ServedTenants};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::*;
use crate::clock::Rng;

const NOW: u64 = 1_800_000_000;
const NOW_MS: u64 = NOW * 1000;

/// An issuer, and its raw key to forge with.
struct Forge {
    issuer: Issuer,
    pair: Ed25519KeyPair,
    kid: String,
    dir: tempfile::TempDir,
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn spec() -> TokenSpec {
    TokenSpec {
        tenant: "acme".parse().unwrap(),
        user: "ana".parse().unwrap(),
        roles: ["member".parse().unwrap()].into(),
        entitlements: Entitlement::ALL.into(),
        ttl_seconds: 3600,
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Forge {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let issuer = Issuer::open(dir.path(), uid()).unwrap();
        let der = key_file::ensure(dir.path(), uid()).unwrap();
        let jwks: Value = serde_json::from_str(&issuer.jwks().unwrap()).unwrap();
        let kid = jwks["keys"][0]["kid"].as_str().unwrap().to_owned();
        Self { issuer, pair: Ed25519KeyPair::from_pkcs8(&der).unwrap(), kid, dir }
    }

    fn header(&self) -> Value {
        json!({"alg": "EdDSA", "kid": self.kid, "typ": "at+jwt"})
    }

    fn claims() -> Value {
        json!({"iss": "bailey", "aud": "bailey", "sub": "ana", "tenant": "acme", "user": "ana", "roles": ["member"],
               "entitlements": ["execute", "tree"], "iat": NOW, "nbf": NOW, "exp": NOW + 60, "jti": "x"})
    }

    /// A token with a good signature over whatever it is given.
    fn sign(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.pair.sign(message.as_bytes());
        format!("{message}.{}", encode(signature))
    }

    /// A well-signed token with some header fields replaced.
    fn with_header(&self, fields: &Value) -> String {
        self.sign(&merged(self.header(), fields), &Self::claims().to_string())
    }

    /// A well-signed token with some claims replaced (`null` removes one).
    fn with_claims(&self, fields: &Value) -> String {
        self.sign(&self.header().to_string(), &merged(Self::claims(), fields))
    }

    fn verify(&self, token: &str) -> Result<Principal, AuthError> {
        match self.identify(token, NOW_MS)? {
            Identity::User(principal) => Ok(principal),
            other => panic!("{other:?}"),
        }
    }

    /// Own tokens are decided on without waiting for anything.
    fn identify(&self, token: &str, now_ms: u64) -> Result<Identity, AuthError> {
        self.issuer.authenticator().verify(token, now_ms).now_or_never().unwrap()
    }

    /// Refuses each token, each within 5 ms (the best of three, as other work shares the machine).
    fn refuses<'a>(&self, tokens: impl IntoIterator<Item = (&'a str, String)>) {
        let authenticator = self.issuer.authenticator();
        for (name, token) in tokens {
            let best = (0..3)
                .map(|_| {
                    let begin = tokio::time::Instant::now();
                    let answer = authenticator.verify(&token, NOW_MS).now_or_never().unwrap();
                    assert!(answer.is_err(), "{name}: {answer:?}");
                    begin.elapsed()
                })
                .min()
                .unwrap();
            assert!(best <= Duration::from_millis(5), "{name} took {best:?}");
        }
    }
}

fn merged(mut whole: Value, fields: &Value) -> String {
    let object = whole.as_object_mut().unwrap();
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            object.remove(name);
        } else {
            object.insert(name.clone(), value.clone());
        }
    }
    whole.to_string()
}

#[test]
fn a_minted_token_speaks_for_its_principal() {
    let forge = Forge::new();
    let token = forge.issuer.mint(&spec(), NOW_MS, &Rng::system()).unwrap();
    let principal = forge.verify(token.reveal()).unwrap();
    assert_eq!(principal.tenant.as_str(), "acme");
    assert_eq!(principal.user.as_str(), "ana");
    assert_eq!(principal.roles, ["member".to_owned()].into());
    assert_eq!(principal.entitlements, Entitlement::ALL.into());
    assert_eq!(principal.run, None);
    // The forger below is no straw man: with nothing changed, its tokens are good.
    forge.verify(&forge.with_claims(&json!({}))).unwrap();
    forge.verify(&forge.with_header(&json!({}))).unwrap();
}

#[test]
fn a_token_grants_what_it_names_and_no_more() {
    let forge = Forge::new();
    let little = TokenSpec { entitlements: [Entitlement::Tree].into(), roles: [].into(), ..spec() };
    let token = forge.issuer.mint(&little, NOW_MS, &Rng::system()).unwrap();
    let principal = forge.verify(token.reveal()).unwrap();
    assert_eq!(principal.entitlements, [Entitlement::Tree].into());
    assert!(principal.roles.is_empty());
}

#[test]
fn a01_no_algorithm_but_our_own() {
    let forge = Forge::new();
    let algorithms = [
        "none", "None", "nOnE", "NONE", "", "HS256", "HS512", "RS256", "PS256", "ES256", "eddsa", "Ed25519", "EdDSA\0",
    ];
    forge.refuses(algorithms.map(|alg| (alg, forge.with_header(&json!({"alg": alg})))));
    let unsigned = algorithms.map(|alg| {
        let header = merged(forge.header(), &json!({"alg": alg}));
        (alg, format!("{}.{}.", encode(header), encode(Forge::claims().to_string())))
    });
    forge.refuses(unsigned);
    forge.refuses([
        ("no alg", forge.with_header(&json!({"alg": null}))),
        ("alg list", forge.with_header(&json!({"alg": ["EdDSA"]}))),
    ]);
}

#[test]
fn a02_a_mac_made_with_the_public_key() {
    let forge = Forge::new();
    let jwks: Value = serde_json::from_str(&forge.issuer.jwks().unwrap()).unwrap();
    let public = URL_SAFE_NO_PAD.decode(jwks["keys"][0]["x"].as_str().unwrap()).unwrap();
    forge.refuses(["HS256", "EdDSA"].map(|alg| {
        let header = merged(forge.header(), &json!({"alg": alg}));
        let message = format!("{}.{}", encode(header), encode(Forge::claims().to_string()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public), message.as_bytes());
        (alg, format!("{message}.{}", encode(tag)))
    }));
}

#[test]
fn a03_a_key_id_is_compared_and_never_used() {
    let forge = Forge::new();
    let other = Forge::new();
    let huge = "k".repeat(1 << 20);
    let kids = ["../../dev/null", "' UNION SELECT 'k", "", "/etc/passwd", &other.kid, &huge];
    forge.refuses(kids.map(|kid| (kid.get(..kid.len().min(20)).unwrap(), forge.with_header(&json!({"kid": kid})))));
    forge.refuses([
        ("no kid", forge.with_header(&json!({"kid": null}))),
        ("number", forge.with_header(&json!({"kid": 1}))),
    ]);
    // Another server's token, and one signed by another key under our key's name.
    let foreign = other.issuer.mint(&spec(), NOW_MS, &Rng::system()).unwrap();
    forge.refuses([("foreign", foreign.reveal().to_owned())]);
    forge.refuses([("foreign key", other.sign(&forge.header().to_string(), &Forge::claims().to_string()))]);
}

#[test]
fn a04_no_key_comes_with_a_token() {
    let forge = Forge::new();
    let jwks: Value = serde_json::from_str(&forge.issuer.jwks().unwrap()).unwrap();
    let fields = [
        ("jwk", jwks["keys"][0].clone()),
        ("jku", json!("http://127.0.0.1:1/keys")),
        ("x5u", json!("http://127.0.0.1:1/cert")),
        ("x5c", json!(["MIIB"])),
        ("x5t", json!("x")),
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(true)),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
        ("cty", json!("JWT")),
        ("anything", json!(1)),
    ];
    forge.refuses(fields.map(|(name, value)| (name, forge.with_header(&json!({name: value})))));
    forge.refuses([
        ("typ JWT", forge.with_header(&json!({"typ": "JWT"}))),
        ("no typ", forge.with_header(&json!({"typ": null}))),
    ]);
}

#[test]
fn a05_a_signature_is_whole_canonical_and_by_our_key() {
    let forge = Forge::new();
    let good = forge.with_claims(&json!({}));
    let (message, signature) = good.rsplit_once('.').unwrap();
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let with = |bytes: &[u8]| format!("{message}.{}", encode(bytes));
    // The identity point as R with s = 0 passes for a small-order public key; ours is none.
    let mut small_order = [0_u8; 64];
    small_order[0] = 1;
    // s + L is the same scalar: a second signature that a lax verifier takes for the first.
    let order: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut malleable = raw.clone();
    let mut carry = 0_u16;
    for (byte, add) in malleable.iter_mut().skip(32).zip(order) {
        carry += u16::from(*byte) + u16::from(add);
        *byte = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    // The last letter of a 64-byte value carries four unused bits.
    let last = signature.chars().last().unwrap();
    let loose = char::from(u8::try_from(u32::from(last)).unwrap() + 1);
    let mut tampered = raw.clone();
    tampered[7] ^= 1;
    forge.refuses([
        ("empty", format!("{message}.")),
        ("null", with(&[])),
        ("zeros", with(&[0; 64])),
        ("small order", with(&small_order)),
        ("malleable", with(&malleable)),
        ("tampered", with(&tampered)),
        ("truncated", with(&raw[..63])),
        ("doubled", with(&[raw.as_slice(), raw.as_slice()].concat())),
        ("padded", format!("{good}==")),
        ("loose bits", format!("{}{loose}", good.strip_suffix(last).unwrap())),
        ("line end", format!("{good}\n")),
        ("space", format!(" {good}")),
        ("two parts", message.to_owned()),
        ("four parts", format!("{good}.{signature}")),
        ("five parts", format!("{good}.a.b")),
        ("dots", "...".to_owned()),
        ("nothing", String::new()),
        ("other claims", {
            let (header, _) = message.split_once('.').unwrap();
            let claims = merged(Forge::claims(), &json!({"tenant": "globex"}));
            format!("{header}.{}.{signature}", encode(claims))
        }),
    ]);
}

#[test]
fn a06_times_are_whole_seconds_that_fit() {
    let forge = Forge::new();
    forge.refuses([
        ("past", forge.with_claims(&json!({"iat": NOW - 100, "nbf": NOW - 100, "exp": NOW - LEEWAY_SECONDS}))),
        ("string", forge.with_claims(&json!({"exp": (NOW + 60).to_string()}))),
        ("float", forge.with_claims(&json!({"exp": 1.8e9 + 60.5}))),
        ("huge", forge.with_claims(&json!({"exp": 1e308}))),
        ("negative", forge.with_claims(&json!({"exp": -1}))),
        ("missing", forge.with_claims(&json!({"exp": null}))),
        ("no nbf", forge.with_claims(&json!({"nbf": null}))),
        ("no iat", forge.with_claims(&json!({"iat": null}))),
        ("before it began", forge.with_claims(&json!({"exp": NOW, "iat": NOW, "nbf": NOW}))),
        ("nbf", forge.with_claims(&json!({"nbf": NOW + 61, "exp": NOW + 120}))),
        ("iat", forge.with_claims(&json!({"iat": NOW + 61, "exp": NOW + 120}))),
    ]);
    let null =
        forge.sign(&forge.header().to_string(), &Forge::claims().to_string().replace(&(NOW + 60).to_string(), "null"));
    forge.refuses([("null", null)]);
    // The edges of the leeway, which is at most 60 s.
    const { assert!(LEEWAY_SECONDS <= 60) }
    let past = json!({"iat": NOW - 100, "nbf": NOW - 100, "exp": NOW - LEEWAY_SECONDS + 1});
    forge.verify(&forge.with_claims(&past)).unwrap();
    let soon = json!({"iat": NOW + LEEWAY_SECONDS, "nbf": NOW + LEEWAY_SECONDS, "exp": NOW + 120});
    forge.verify(&forge.with_claims(&soon)).unwrap();
    // At the end of time nothing overflows.
    let end = json!({"exp": u64::MAX});
    forge.identify(&forge.with_claims(&end), u64::MAX).unwrap();
}

#[test]
fn a07_a_token_is_for_us_and_says_nothing_else() {
    let forge = Forge::new();
    let many: Vec<_> = (0..17).map(|n| format!("r{n}")).collect();
    let fields = [
        json!({"iss": "evil"}),
        json!({"iss": null}),
        json!({"iss": ["bailey"]}),
        json!({"aud": "other"}),
        json!({"aud": ["bailey", "other"]}),
        json!({"aud": null}),
        json!({"sub": "bob"}),
        json!({"tenant": "../globex"}),
        json!({"tenant": ""}),
        json!({"user": "a/b", "sub": "a/b"}),
        json!({"roles": "admin"}),
        json!({"roles": ["A B"]}),
        json!({"roles": many}),
        json!({"entitlements": null}),
        json!({"entitlements": ["everything"]}),
        json!({"jti": ""}),
        json!({"admin": true}),
    ];
    for fields in &fields {
        forge.refuses([(fields.to_string().as_str(), forge.with_claims(fields))]);
    }
}

#[test]
fn a08_no_key_twice_no_depth_no_size() {
    let forge = Forge::new();
    let (header, claims) = (forge.header().to_string(), Forge::claims().to_string());
    let doubled = |text: &str, field: &str| format!("{}{field}}}", text.strip_suffix('}').unwrap());
    let sign = |claims: &str| forge.sign(&header, claims);
    let deep = "[".repeat(2000) + &"]".repeat(2000);
    forge.refuses([
        ("sub twice", sign(&doubled(&claims, r#","sub":"ana""#))),
        ("tenant twice", sign(&doubled(&claims, r#","tenant":"globex""#))),
        ("tenant twice, escaped", sign(&doubled(&claims, r#","\u0074enant":"globex""#))),
        ("alg twice", forge.sign(&doubled(&header, r#","alg":"EdDSA""#), &claims)),
        ("alg twice, escaped", forge.sign(&doubled(&header, r#","\u0061lg":"none""#), &claims)),
        ("deep claim", sign(&doubled(&claims, &format!(r#","x":{deep}"#)))),
        ("deep role", sign(&claims.replace(r#"["member"]"#, &deep))),
        ("list", sign("[]")),
        ("claims as a list", {
            let named = r#"["bailey","bailey","ana","acme","ana",[],["tree"],1800000000,1800000000,1800000060,"x"]"#;
            sign(named)
        }),
        ("header as a list", forge.sign(&format!(r#"["EdDSA","{}","at+jwt"]"#, forge.kid), &claims)),
        ("text", sign("\"x\"")),
        ("nothing", sign("")),
        ("trailing", sign(&format!("{claims} x"))),
        ("two objects", sign(&format!("{claims}{claims}"))),
        ("bom", sign(&format!("\u{feff}{claims}"))),
        ("not utf-8", {
            let message = format!("{}.{}", encode(&header), encode(b"\xff\xfe"));
            format!("{message}.{}", encode(forge.pair.sign(message.as_bytes())))
        }),
        ("jwe", format!("{}.a.b.c.d", encode(r#"{"alg":"dir","enc":"A256GCM","zip":"DEF"}"#))),
    ]);
    let big = forge.with_claims(&json!({"jti": "x".repeat(1 << 20)}));
    assert_eq!(forge.verify(&big), Err(AuthError::TooLarge));
    let longest = "x".repeat(MAX_TOKEN_BYTES);
    assert_ne!(forge.verify(&longest), Err(AuthError::TooLarge));
    assert_eq!(forge.verify(&(longest + "x")), Err(AuthError::TooLarge));
}

#[test]
fn a_service_account_and_an_operator_are_no_user() {
    let forge = Forge::new();
    let mint = |spec: &SystemTokenSpec| {
        let roles = ["on-call".parse().unwrap()].into();
        let name = "billing".parse().unwrap();
        forge.issuer.mint_system(&name, spec, &roles, 60, NOW_MS, &Rng::system()).unwrap()
    };
    let tenants = ServedTenants::Only(["acme".parse().unwrap()].into());
    let service =
        mint(&SystemTokenSpec::Service { tenants: tenants.clone(), entitlements: [Entitlement::Tree].into() });
    match forge.identify(service.reveal(), NOW_MS).unwrap() {
        Identity::Service(found) => {
            assert_eq!((found.name.as_str(), found.tenants), ("billing", tenants));
            assert_eq!(found.entitlements, [Entitlement::Tree].into());
        }
        other => panic!("{other:?}"),
    }
    match forge.identify(mint(&SystemTokenSpec::Operator).reveal(), NOW_MS).unwrap() {
        Identity::Operator(found) => assert_eq!(found.roles, ["on-call".to_owned()].into()),
        other => panic!("{other:?}"),
    }
    // The audience decides which claims there are; none of them borrows another's.
    let system =
        json!({"iss": "bailey", "sub": "billing", "roles": [], "iat": NOW, "nbf": NOW, "exp": NOW + 60, "jti": "x"});
    let sign = |fields: Value| forge.sign(&forge.header().to_string(), &merged(system.clone(), &fields));
    let (name, roles) = ("root".parse().unwrap(), [].into());
    let mint = |ttl| forge.issuer.mint_system(&name, &SystemTokenSpec::Operator, &roles, ttl, NOW_MS, &Rng::system());
    mint(MAX_SYSTEM_TTL_SECONDS).unwrap();
    assert!(matches!(mint(MAX_SYSTEM_TTL_SECONDS + 1), Err(IssuerError::Ttl { .. })));
    let longer = json!({"aud": "bailey-operators", "exp": NOW + MAX_SYSTEM_TTL_SECONDS + 1});
    forge.refuses([("operator for longer", sign(longer))]);
    forge.identify(&sign(json!({"aud": "bailey-operators"})), NOW_MS).unwrap();
    forge.refuses([
        ("operator with a primitive", sign(json!({"aud": "bailey-operators", "entitlements": ["tree"]}))),
        ("operator for tenants", sign(json!({"aud": "bailey-operators", "tenants": "all"}))),
        ("service for nobody", sign(json!({"aud": "bailey-services"}))),
        ("service with a tenant", sign(json!({"aud": "bailey-services", "tenants": "all", "tenant": "acme"}))),
        ("user without a tenant", sign(json!({"aud": "bailey", "user": "billing"}))),
        ("two audiences", sign(json!({"aud": ["bailey", "bailey-operators"]}))),
        ("other audience", sign(json!({"aud": "bailey-everything"}))),
        ("user as operator", forge.with_claims(&json!({"aud": "bailey-operators"}))),
        ("a machine's user", forge.with_claims(&json!({"sub": "+ci", "user": "+ci"}))),
        ("act that is more", forge.with_claims(&json!({"act": {"sub": "billing", "act": {"sub": "x"}}}))),
        ("region without end", forge.with_claims(&json!({"region": "x".repeat(129)}))),
    ]);
}

#[test]
fn an_exchanged_token_says_who_acts_and_what_for() {
    let forge = Forge::new();
    let scope = Scope { actions: [Action::TreeRead].into(), paths: None, read_only: true };
    let extras = TokenExtras {
        region: Some("eu".to_owned()),
        project: None,
        actor: Some("billing".parse().unwrap()),
        scope: Some(scope.clone()),
    };
    let token = forge.issuer.mint_with(&spec(), &extras, NOW_MS, &Rng::system()).unwrap();
    let principal = forge.verify(token.reveal()).unwrap();
    assert_eq!(principal.actor.as_deref(), Some("billing"));
    assert_eq!(principal.region.as_deref(), Some("eu"));
    assert_eq!(principal.scope, Some(scope));
    assert_eq!(principal.credential.kind, CredentialKind::Exchanged);
    assert_eq!(principal.valid_until_ms, (NOW + 3600 + LEEWAY_SECONDS) * 1000);
}

#[test]
fn what_cannot_be_verified_is_not_minted() {
    let forge = Forge::new();
    let mint = |spec: &TokenSpec| forge.issuer.mint(spec, NOW_MS, &Rng::system());
    assert!(matches!(mint(&TokenSpec { ttl_seconds: 0, ..spec() }), Err(IssuerError::Ttl { .. })));
    assert!(matches!(mint(&TokenSpec { ttl_seconds: u64::MAX, ..spec() }), Err(IssuerError::Ttl { .. })));
    assert!(matches!(mint(&TokenSpec { user: "+ci".parse().unwrap(), ..spec() }), Err(IssuerError::Machine)));
    let roles = (0..17).map(|n| format!("r{n}").parse().unwrap()).collect();
    assert!(matches!(mint(&TokenSpec { roles, ..spec() }), Err(IssuerError::Roles { given: 17 })));
    let longest = TokenSpec {
        tenant: "t".repeat(63).parse().unwrap(),
        user: "u".repeat(128).parse().unwrap(),
        roles: (10..26).map(|n| format!("{n}{}", "r".repeat(61)).parse().unwrap()).collect(),
        ..spec()
    };
    forge.verify(mint(&longest).unwrap().reveal()).unwrap();
}

#[test]
fn the_key_set_is_public_and_debug_shows_no_secret() {
    let forge = Forge::new();
    let text = forge.issuer.jwks().unwrap();
    let jwks: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 1);
    assert_eq!(jwks["keys"][0].as_object().unwrap().len(), 6, "{text}");
    let token = forge.issuer.mint(&spec(), NOW_MS, &Rng::system()).unwrap();
    let shown = format!("{:?} {:?} {:?}", token, forge.issuer, forge.issuer.authenticator());
    let pem = std::fs::read_to_string(forge.dir.path().join("keys/issuer.pem")).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    for part in token.reveal().split('.').chain([secret]) {
        assert!(!shown.contains(part) && !text.contains(part), "{shown}");
    }
}

#[test]
fn the_key_is_made_once_even_by_many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..16).map(|_| scope.spawn(|| Issuer::open(dir.path(), uid()).unwrap().jwks().unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    let names: Vec<_> =
        std::fs::read_dir(dir.path().join("keys")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["issuer.pem"]);
    let meta = std::fs::metadata(dir.path().join("keys/issuer.pem")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::metadata(dir.path().join("keys")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_key_that_others_could_know_or_swap_is_refused() {
    let open = |dir: &std::path::Path| Issuer::open(dir, uid());
    let made = || {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        let file = dir.path().join("keys/issuer.pem");
        (dir, file)
    };
    let exposed = |answer| matches!(answer, Err(IssuerError::KeyFile(KeyFileError::Exposed { .. })));
    let mode =
        |path: &std::path::Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();

    let (dir, file) = made();
    mode(&file, 0o640);
    assert!(exposed(open(dir.path())));
    let (dir, _) = made();
    mode(&dir.path().join("keys"), 0o777);
    assert!(exposed(open(dir.path())));

    let (dir, file) = made();
    std::fs::rename(&file, dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &file).unwrap();
    assert!(open(dir.path()).is_err());

    let (dir, file) = made();
    std::fs::write(&file, "not a key").unwrap();
    assert!(matches!(open(dir.path()), Err(IssuerError::KeyFile(KeyFileError::NotPem { .. }))));
    let (dir, file) = made();
    std::fs::write(&file, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(matches!(open(dir.path()), Err(IssuerError::NotAKey)));
    let (dir, file) = made();
    std::fs::write(&file, "x".repeat(1 << 20)).unwrap();
    assert!(open(dir.path()).is_err());
}

#[test]
fn root_makes_the_key_for_the_server() {
    if uid() != 0 {
        eprintln!("SKIPPED root_makes_the_key_for_the_server: needs root");
        return;
    }
    let server = bailey_protocol::jail::SERVER_UID;
    let dir = tempfile::tempdir().unwrap();
    let serve = dir.path().join("serve");
    let issuer = Issuer::open(&serve, server).unwrap();
    for path in [serve.clone(), serve.join("keys"), serve.join("keys/issuer.pem")] {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (server, server), "{}", path.display());
    }
    assert_eq!(Issuer::open(&serve, server).unwrap().jwks().unwrap(), issuer.jwks().unwrap());
    // Somebody else's key is not ours.
    assert!(matches!(Issuer::open(&serve, 0), Err(IssuerError::KeyFile(KeyFileError::Exposed { .. }))));
    // The server swaps its folder for a link: root follows nothing.
    let swapped = dir.path().join("swapped");
    std::fs::create_dir(&swapped).unwrap();
    std::os::unix::fs::chown(&swapped, Some(server), Some(server)).unwrap();
    std::os::unix::fs::symlink("/etc", swapped.join("keys")).unwrap();
    assert!(Issuer::open(&swapped, server).is_err());
    assert!(!std::path::Path::new("/etc/issuer.pem").exists());
}
