//! Tokens of foreign issuers as an attacker makes them. The keys come from a real process over HTTP.

use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::KeyPair as _;
use bailey_control::auth::{AuthError, Freshness, LEEWAY_SECONDS};
use bailey_policy::Entitlement;
use serde_json::{Value, json};

use crate::issuer::{IssuerProcess, Pair, SigningKey, encode};
use crate::trust::{FRESHNESS, NOW, Trust, claims, fine, mapping, named, with};

#[tokio::test]
async fn every_kind_of_key_signs_for_its_user() {
    let issuer = IssuerProcess::start();
    let keys = SigningKey::all();
    issuer.serve(&keys.iter().collect::<Vec<_>>());
    let trust = Trust::new(issuer.config(mapping()));
    for key in &keys {
        let user = trust.user(&key.token(&claims(&issuer))).await;
        assert_eq!((user.tenant.as_str(), user.user.as_str()), ("acme", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"));
        assert_eq!(user.roles, ["member".to_owned()].into());
        assert_eq!(user.entitlements, [Entitlement::Execute].into());
        assert_eq!(user.valid_until_ms, (NOW + 600 + LEEWAY_SECONDS) * 1000);
    }
    // A type may be spelled as a media type, in any case.
    let header = with(keys[0].header(), &json!({"typ": "application/AT+JWT"})).to_string();
    trust.user(&keys[0].token_of(&header, &claims(&issuer).to_string())).await;
    assert_eq!(issuer.asked(), ["/.well-known/openid-configuration", "/keys"]);
}

#[tokio::test]
async fn a01_a02_the_algorithm_is_the_keys_own() {
    let issuer = IssuerProcess::start();
    let keys = SigningKey::all();
    issuer.serve(&keys.iter().collect::<Vec<_>>());
    // Nothing asks by the clock while this goes on.
    let slow = Freshness { every: Duration::from_secs(3600), ..FRESHNESS };
    let trust = Trust::with(issuer.config(mapping()), slow);
    trust.until(&keys[0].token(&claims(&issuer)), fine).await;
    let asked = issuer.asked();
    let mut tokens = Vec::new();
    for key in &keys {
        let algorithms = ["none", "None", "nOnE", "", "HS256", "RS256", "RS384", "PS256", "ES256", "ES384", "EdDSA"];
        for alg in algorithms.into_iter().filter(|alg| *alg != key.alg()) {
            let header = with(key.header(), &json!({"alg": alg})).to_string();
            let claims = claims(&issuer).to_string();
            tokens.push(named(&format!("{} as {alg}", key.kid), key.token_of(&header, &claims)));
            tokens.push(named(&format!("{} as {alg}, unsigned", key.kid), {
                format!("{}.{}.", encode(&header), encode(&claims))
            }));
            // A MAC made with the public key, in every form an attacker may have it.
            let message = format!("{}.{}", encode(&header), encode(&claims));
            let public = match &key.pair {
                Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
                Pair::P256(pair) => pair.public_key().as_ref().to_vec(),
                Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
            };
            for secret in [public, key.jwk().to_string().into_bytes()] {
                let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message.as_bytes());
                tokens.push(named(&format!("{} as {alg}, mac", key.kid), format!("{message}.{}", encode(tag))));
            }
        }
    }
    trust.refuses(tokens).await;
    assert_eq!(issuer.asked(), asked);
}

#[tokio::test]
async fn a03_a04_no_token_says_where_its_key_is() {
    let issuer = IssuerProcess::start();
    let (key, evil) = (SigningKey::rsa("r1"), SigningKey::rsa("r1"));
    issuer.serve(&[&key]);
    issuer.write("evil", &json!({"keys": [evil.jwk()]}).to_string());
    // Nothing asks by the clock while this goes on.
    let slow = Freshness { every: Duration::from_secs(3600), ..FRESHNESS };
    let trust = Trust::with(issuer.config(mapping()), slow);
    trust.until(&key.token(&claims(&issuer)), fine).await;
    let asked = issuer.asked();
    let mut tokens = Vec::new();
    let place = format!("{}/evil", issuer.url());
    for (name, value) in [
        ("jwk", evil.jwk()),
        ("jku", json!(place)),
        ("x5u", json!(place)),
        ("x5c", json!(["MIIB"])),
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
        ("cty", json!("JWT")),
    ] {
        for signer in [&key, &evil] {
            let header = with(key.header(), &json!({name: value})).to_string();
            tokens.push(named(name, signer.token_of(&header, &claims(&issuer).to_string())));
        }
    }
    let huge = "k".repeat(1 << 20);
    for kid in ["../../dev/null", "' UNION SELECT 'k", "", "/../evil", "a b", "k\0", &"k".repeat(129), &huge] {
        let header = with(key.header(), &json!({"kid": kid})).to_string();
        tokens.push(named(kid.get(..kid.len().min(20)).unwrap(), key.token_of(&header, &claims(&issuer).to_string())));
    }
    for fields in
        [json!({"kid": null}), json!({"kid": 1}), json!({"kid": ["r1"]}), json!({"typ": null}), json!({"typ": "JWT"})]
    {
        let header = with(key.header(), &fields).to_string();
        tokens.push(named(&fields.to_string(), key.token_of(&header, &claims(&issuer).to_string())));
    }
    for iss in
        [json!("https://evil.example"), json!(place), json!("bailey"), json!(format!("{}/", issuer.url())), json!(null)]
    {
        let claims = with(claims(&issuer), &json!({"iss": iss}));
        tokens.push(named(&iss.to_string(), key.token(&claims)));
    }
    tokens.push(named("another key of that name", evil.token(&claims(&issuer))));
    trust.refuses(tokens).await;
    assert_eq!(issuer.asked(), asked);
}

#[tokio::test]
async fn a05_a_signature_is_whole_and_canonical_for_every_algorithm() {
    let issuer = IssuerProcess::start();
    let keys = SigningKey::all();
    issuer.serve(&keys.iter().collect::<Vec<_>>());
    let trust = Trust::new(issuer.config(mapping()));
    trust.until(&keys[0].token(&claims(&issuer)), fine).await;
    let mut tokens = Vec::new();
    for key in &keys {
        let good = key.token(&claims(&issuer));
        trust.user(&good).await;
        let (message, signature) = good.rsplit_once('.').unwrap();
        let raw = key.sign(message.as_bytes());
        let sized = |bytes: &[u8]| format!("{message}.{}", encode(bytes));
        let mut tampered = raw.clone();
        tampered[9] ^= 1;
        let (header, _) = message.split_once('.').unwrap();
        let other = with(claims(&issuer), &json!({"tenant": "globex"})).to_string();
        for (name, token) in [
            ("empty", format!("{message}.")),
            ("zeros", sized(&vec![0; raw.len()])),
            ("ones", sized(&vec![255; raw.len()])),
            ("tampered", sized(&tampered)),
            ("truncated", sized(&raw[..raw.len() - 1])),
            ("longer", sized(&[raw.as_slice(), &[0]].concat())),
            ("zero in front", sized(&[&[0], raw.as_slice()].concat())),
            ("doubled", sized(&[raw.as_slice(), raw.as_slice()].concat())),
            ("padded", format!("{good}=")),
            ("line end", format!("{good}\n")),
            ("space", format!(" {good}")),
            ("two parts", message.to_owned()),
            ("four parts", format!("{good}.{signature}")),
            ("other claims", format!("{header}.{}.{signature}", encode(other))),
        ] {
            tokens.push(named(&format!("{} {name}", key.kid), token));
        }
        if let Pair::P256(_) = key.pair {
            // A DER signature where the fixed form has to be, and r or s out of range.
            let order = [
                0xff_u8, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
                0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
            ];
            let der = [&[0x30, 68, 2, 32][..], &raw[..32], &[2, 32], &raw[32..]].concat();
            tokens.push(named("der", sized(&der)));
            tokens.push(named("r zero", sized(&[&[0; 32], &raw[32..]].concat())));
            tokens.push(named("s zero", sized(&[&raw[..32], &[0; 32]].concat())));
            tokens.push(named("s order", sized(&[&raw[..32], &order[..]].concat())));
            tokens.push(named("r order", sized(&[&order[..], &raw[32..]].concat())));
        }
    }
    trust.refuses(tokens).await;
}

#[tokio::test]
async fn a06_times_and_audience_are_strict_for_foreign_tokens_too() {
    let issuer = IssuerProcess::start();
    let key = SigningKey::p256("e1");
    issuer.serve(&[&key]);
    let trust = Trust::new(issuer.config(mapping()));
    let sign = |fields: &Value| key.token(&with(claims(&issuer), fields));
    trust.until(&sign(&json!({})), fine).await;
    trust.user(&sign(&json!({"aud": ["other", "bailey-api"]}))).await;
    trust.user(&sign(&json!({"nbf": NOW + LEEWAY_SECONDS, "iat": NOW + LEEWAY_SECONDS}))).await;
    trust.user(&sign(&json!({"iat": NOW - 90, "exp": NOW - LEEWAY_SECONDS + 1}))).await;
    let mut tokens = Vec::new();
    for fields in [
        json!({"exp": NOW - LEEWAY_SECONDS, "iat": NOW - 100}),
        json!({"exp": (NOW + 60).to_string()}),
        json!({"exp": 1.8e9 + 60.5}),
        json!({"exp": 1e308}),
        json!({"exp": -1}),
        json!({"exp": null}),
        json!({"exp": [NOW + 60]}),
        json!({"exp": NOW, "iat": NOW}),
        json!({"iat": null}),
        json!({"iat": "now"}),
        json!({"iat": NOW + 61}),
        json!({"nbf": NOW + 61}),
        json!({"nbf": "soon"}),
        json!({"nbf": -1}),
        json!({"aud": "other"}),
        json!({"aud": null}),
        json!({"aud": []}),
        json!({"aud": ["other"]}),
        json!({"aud": {"bailey-api": 1}}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 5}),
        json!({"sub": ["ana"]}),
        json!({"sub": "x".repeat(200)}),
        json!({"tenant": null}),
        json!({"tenant": "ACME"}),
        json!({"tenant": "../globex"}),
        json!({"tenant": ["acme"]}),
        json!({"roles": ["Not A Role"]}),
        json!({"roles": [1]}),
        json!({"roles": {"admin": true}}),
        json!({"roles": (0..17).map(|n| format!("r{n}")).collect::<Vec<_>>()}),
        json!({"scope": 7}),
    ] {
        tokens.push(named(&fields.to_string(), sign(&fields)));
    }
    let null =
        key.token_of(&key.header().to_string(), &claims(&issuer).to_string().replace(&(NOW + 600).to_string(), "null"));
    tokens.push(named("exp null", null));
    trust.refuses(tokens).await;
}

#[tokio::test]
async fn a08_a_foreign_token_has_no_key_twice_no_depth_no_size() {
    let issuer = IssuerProcess::start();
    let key = SigningKey::ed25519("d1");
    issuer.serve(&[&key]);
    let trust = Trust::new(issuer.config(mapping()));
    let (header, claims) = (key.header().to_string(), claims(&issuer).to_string());
    trust.until(&key.token_of(&header, &claims), fine).await;
    let doubled = |text: &str, field: &str| format!("{}{field}}}", text.strip_suffix('}').unwrap());
    let deep = "[".repeat(2000) + &"]".repeat(2000);
    let tokens = [
        ("tenant twice", key.token_of(&header, &doubled(&claims, r#","tenant":"globex""#))),
        ("tenant twice, escaped", key.token_of(&header, &doubled(&claims, r#","\u0074enant":"globex""#))),
        ("something else twice", key.token_of(&header, &doubled(&claims, r#","x":1,"x":1"#))),
        ("twice below", key.token_of(&header, &doubled(&claims, r#","x":{"y":1,"\u0079":2}"#))),
        ("alg twice", key.token_of(&doubled(&header, r#","alg":"EdDSA""#), &claims)),
        ("kid twice, escaped", key.token_of(&doubled(&header, r#","\u006bid":"d1""#), &claims)),
        ("deep", key.token_of(&header, &doubled(&claims, &format!(r#","x":{deep}"#)))),
        ("list", key.token_of(&header, "[]")),
        ("trailing", key.token_of(&header, &format!("{claims} x"))),
        ("bom", key.token_of(&header, &format!("\u{feff}{claims}"))),
        ("too large", key.token_of(&header, &doubled(&claims, &format!(r#","x":"{}""#, "x".repeat(8192))))),
        ("jwe", format!("{}.a.b.c.d", encode(r#"{"alg":"dir","enc":"A256GCM","zip":"DEF"}"#))),
    ];
    trust.refuses(tokens.into_iter().map(|(name, token)| named(name, token)).collect()).await;
}

#[tokio::test]
async fn weak_and_foreign_keys_of_a_set_sign_nothing() {
    let issuer = IssuerProcess::start();
    let good = SigningKey::p256("good");
    let mut weak = SigningKey::rsa("weak").jwk();
    // 1024 bits: the upper half of a modulus.
    weak["n"] = json!(encode(vec![0xab; 128]));
    let other = SigningKey::rsa_of("big", KeySize::Rsa3072);
    let (mut sealing, mut hidden, mut even, mut misnamed) =
        (SigningKey::rsa("enc").jwk(), SigningKey::ed25519("ops").jwk(), SigningKey::rsa("even").jwk(), other.jwk());
    sealing["use"] = json!("enc");
    hidden["key_ops"] = json!(["sign"]);
    even["e"] = json!(encode([3]));
    misnamed["alg"] = json!("RS512");
    let symmetric = json!({"kty": "oct", "kid": "oct", "k": encode(b"secret")});
    let off_curve = json!({"kty": "EC", "crv": "P-256", "kid": "off", "x": encode([1; 32]), "y": encode([1; 32])});
    let nameless = json!({"kty": "OKP", "crv": "Ed25519", "x": encode([7; 32])});
    let keys = json!({"keys": [weak, sealing, hidden, even, misnamed, symmetric, off_curve, nameless, good.jwk()]});
    issuer.write("keys", &keys.to_string());
    let trust = Trust::new(issuer.config(mapping()));
    trust.until(&good.token(&claims(&issuer)), fine).await;
    assert!(trust.identify(&other.token(&claims(&issuer))).await.is_err());
    for kid in ["weak", "enc", "ops", "even", "oct", "off"] {
        let header = with(good.header(), &json!({"kid": kid, "alg": "RS256"})).to_string();
        let answer = trust.identify(&good.token_of(&header, &claims(&issuer).to_string())).await;
        assert_eq!(answer, Err(AuthError::UnknownKey), "{kid}");
    }
}
