//! A token's three parts, as hostile bytes: size, shape and canonical encoding before anything is parsed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;

use super::MAX_TOKEN_BYTES;
use super::verify::AuthError;
use crate::strict_json;

/// A signed token in its compact form. Nothing in it is believed yet.
#[derive(Debug)]
pub(super) struct Jws<'a> {
    /// What was signed: header and payload, encoded.
    pub(super) message: &'a [u8],
    pub(super) header: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    pub(super) fn split(token: &'a str) -> Result<Self, AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::TooLarge);
        }
        let shape = || AuthError::Malformed { part: "shape" };
        let (message, signature) = token.rsplit_once('.').ok_or_else(shape)?;
        let (header, payload) = message.split_once('.').ok_or_else(shape)?;
        if payload.contains('.') {
            return Err(shape());
        }
        Ok(Self {
            message: message.as_bytes(),
            header: object(header, "header")?,
            payload: object(payload, "claims")?,
            signature: decode(signature, "signature")?,
        })
    }
}

/// One of the parts as a `T`.
pub(super) fn part<T: DeserializeOwned>(json: &[u8], part: &'static str) -> Result<T, AuthError> {
    serde_json::from_slice(json).map_err(|_unreadable| AuthError::Malformed { part })
}

/// The JSON object behind `text`, without a key said twice at any depth.
fn object(text: &str, part: &'static str) -> Result<Vec<u8>, AuthError> {
    let json = decode(text, part)?;
    // serde reads a struct from a list as well; a token's parts are objects (RFC 7515).
    if json.first() != Some(&b'{') || strict_json::check(&json).is_err() {
        return Err(AuthError::Malformed { part });
    }
    Ok(json)
}

fn decode(text: &str, part: &'static str) -> Result<Vec<u8>, AuthError> {
    // The engine refuses padding, other alphabets and trailing bits: one text for each value.
    URL_SAFE_NO_PAD.decode(text).map_err(|_undecodable| AuthError::Malformed { part })
}
