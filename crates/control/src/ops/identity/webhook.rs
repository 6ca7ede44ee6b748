//! What identity providers say: somebody's rights are over. A message carries no credential but a signature over itself.
//!
//! It can only take away. A message that is caught and sent again takes away once more, for as long as it is fresh; that
//! is why there is no message that gives rights back.

use aws_lc_rs::hmac;
use bailey_policy::{CredentialId, CredentialKind, Operator};
use bailey_protocol::api::identity::{DisabledAnswer, IdentityEvent, IdentityEventKind};
use http::HeaderMap;

use super::standing;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Control, OperatorCaller};

/// Largest message, in bytes.
pub const MAX_BODY: usize = 16 * 1024;
/// How old a message may be, or how far ahead, in seconds.
const FRESH_SECONDS: u64 = 300;
/// Carries `t=SECONDS,v1=HEX`.
const HEADER: &str = "bailey-signature";
/// In whose name the message is decided on and audited. No token can say it: it is no [`bailey_protocol::id::UserId`].
const NAME: &str = "|webhook";

/// Proof that a message is signed. Only [`check`] makes one.
#[derive(Debug)]
pub struct Signed(());

/// Checks who a message is from, before anything in it is read.
///
/// # Errors
/// When it is not signed with the secret, or not now. There is one answer for all of that.
pub fn check(control: &Control, headers: &HeaderMap, body: &[u8]) -> Result<Signed, ApiError> {
    let refuse = || {
        let hint = "Sign `{t}.{body}` with HMAC-SHA-256 and send `Bailey-Signature: t=SECONDS,v1=HEX` once.";
        ApiError::new(ErrorKind::Unauthenticated, "unauthenticated", "the message is not signed", hint)
    };
    let secret = control.config().identity.webhook.as_ref().ok_or_else(refuse)?;
    let mut values = headers.get_all(HEADER).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(refuse()) };
    let (time, tag) = value.to_str().ok().and_then(parse).ok_or_else(refuse)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.bytes());
    let message = [time.to_string().as_bytes(), b".", body].concat();
    hmac::verify(&key, &message, &tag).map_err(|_forged| refuse())?;
    let now = control.now_ms() / 1000;
    if time.abs_diff(now) > FRESH_SECONDS { Err(refuse()) } else { Ok(Signed(())) }
}

/// Does what the message says.
///
/// # Errors
/// When policy denies it, or it cannot be recorded.
pub async fn receive(control: &Control, _signed: Signed, event: IdentityEvent) -> Result<DisabledAnswer, ApiError> {
    let IdentityEvent { event: IdentityEventKind::Disable, tenant, user } = event;
    let credential = CredentialId { kind: CredentialKind::Token, id: NAME.to_owned() };
    let operator = Operator { name: NAME.to_owned(), roles: [].into(), valid_until_ms: u64::MAX, credential };
    let caller = OperatorCaller { operator, request: control.mint_request_id() };
    standing::set_tenant(control, &caller, &tenant, user.as_ref(), true).await
}

fn parse(value: &str) -> Option<(u64, Vec<u8>)> {
    let (time, tag) = value.split_once(',')?;
    let digits = time.strip_prefix("t=")?;
    // One text for each number, as it is part of what is signed.
    let time = digits.parse::<u64>().ok().filter(|time| time.to_string() == digits)?;
    let hex = tag.strip_prefix("v1=")?;
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let tag = hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    Some((time, tag.collect::<Option<_>>()?))
}
