//! Bodies that are JSON: bounded, in time too, without doubled keys, and with every field known.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::api_error::{ApiError, ErrorKind};
use crate::strict_json;

/// Reads a whole body of at most `limit` bytes and parses it.
///
/// # Errors
/// When it is not JSON, too large, too slow, or not a `T`.
pub(super) async fn read<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    timeout: Duration,
) -> Result<T, ApiError> {
    check_type(headers)?;
    parse(&collect(headers, body, limit, timeout).await?)
}

/// How many bytes the body is said to have.
pub(super) fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// No turn for a large body came in time.
pub(super) fn too_many() -> ApiError {
    let message = "too many large bodies are being read at once";
    ApiError::new(ErrorKind::Exhausted, "too_many_bodies", message, "Try again after the time in `Retry-After`.")
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorKind::UnsupportedMedia,
        "not_json",
        "the body is not declared as JSON",
        "Send `Content-Type: application/json`.",
    ))
}

/// The whole body, of at most `limit` bytes.
///
/// # Errors
/// When it is larger or too slow.
pub(super) async fn collect(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("the body has more than {limit} bytes");
        ApiError::new(ErrorKind::TooLarge, "body_too_large", message, "Put large content into the tree and mount it.")
    };
    if declared(headers).is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(timeout, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            let hint = "Send the whole body.";
            Err(ApiError::invalid("body_broken", "the body stopped before its end", hint).because(error))
        }
        Err(_elapsed) => Err(ApiError::new(
            ErrorKind::TooSlow,
            "body_too_slow",
            format!("the body did not arrive within {} s", timeout.as_secs()),
            "Send the whole body at once.",
        )),
    }
}

/// Parses `text`, refusing doubled keys at any depth, numbers that no machine holds, and fields that `T` lacks.
///
/// # Errors
/// With the place and what to correct.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    // A list would be taken for the fields in their order, without their names.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::invalid("invalid_json", "the body is not a JSON object", "Send an object: `{…}`."));
    }
    strict_json::check(text).map_err(|error| refusal(&error))?;
    serde_json::from_slice(text).map_err(|error| refusal(&error))
}

fn refusal(error: &serde_json::Error) -> ApiError {
    let message = error.to_string();
    let (code, hint) = if message.starts_with("unknown field") {
        ("unknown_field", "Correct or remove that field: a mis-spelled field is never ignored.")
    } else if message.starts_with("doubled key") || message.starts_with("duplicate field") {
        ("doubled_key", "Give every key once.")
    } else {
        ("invalid_json", "Correct the JSON at the place that the message names.")
    };
    // A field's name stands at the start, so that what is cut off from a long message is never the name.
    let hint = match message.split('`').nth(1).filter(|name| name.len() <= 64 && code == "unknown_field") {
        Some(name) => format!("Correct or remove `{}`: a mis-spelled field is never ignored.", name.escape_default()),
        None => hint.to_owned(),
    };
    ApiError::invalid(code, message, hint)
}

#[cfg(test)]
mod tests {
    use bailey_protocol::api::RunRequest;

    use super::*;

    fn code(text: &[u8]) -> &'static str {
        match parse::<RunRequest>(text) {
            Ok(_) => "fine",
            Err(error) => error.code,
        }
    }

    #[test]
    fn w05_hostile_json_is_refused() {
        let deep = [b"{\"command\":".as_slice(), "[".repeat(100_000).as_bytes()].concat();
        let keys: String = (0..100_000).map(|n| format!("\"k{n}\":1,")).collect();
        for (text, expected) in [
            (br#"{"command":["true"]}"#.as_slice(), "fine"),
            (&deep, "invalid_json"),
            (format!("{{\"env\":{{{keys}\"z\":1}}}}").as_bytes(), "invalid_json"),
            (br#"{"command":["a"],"command":["b"]}"#, "doubled_key"),
            (br#"{"command":["a"],"env":{"A":"1","A":"2"}}"#, "doubled_key"),
            (br#"{"command":["a"],"env":{"A":"1","\u0041":"2"}}"#, "doubled_key"),
            (br#"{"command":["a"],"r\u006fot":false,"root":true}"#, "doubled_key"),
            (br#"{"limits":{"pids":1e400}}"#, "invalid_json"),
            (br#"{"limits":{"pids":NaN}}"#, "invalid_json"),
            (br#"{"limits":{"pids":-1}}"#, "invalid_json"),
            (br#"{"limits":{"pids":1.5}}"#, "invalid_json"),
            (br#"{"limits":{"pids":"1"}}"#, "invalid_json"),
            (br#"{"command":["\ud800"]}"#, "invalid_json"),
            (b"\xef\xbb\xbf{\"command\":[\"a\"]}", "invalid_json"),
            (b"{\"command\":[\"\xff\"]}", "invalid_json"),
            (br#"{"command":["a"]} {}"#, "invalid_json"),
            (br#"{"command":["a"],}"#, "invalid_json"),
            (b"", "invalid_json"),
            (b"[]", "invalid_json"),
            (b"null", "invalid_json"),
            (br#"{"Read_Only":true}"#, "unknown_field"),
            (br#"{"mounts":[{"path":"/tenants/a","at":"/d","readonly":true}]}"#, "unknown_field"),
        ] {
            let shown = String::from_utf8_lossy(text.get(..text.len().min(80)).unwrap()).into_owned();
            assert_eq!(code(text), expected, "{shown}");
        }
    }

    #[test]
    fn t03_fields_that_would_widen_a_run_do_not_exist() {
        for field in ["tenant_id", "privileged", "host_path", "network", "uid", "runtime", "context", "entities"] {
            let error = parse::<RunRequest>(format!("{{\"{field}\":1}}").as_bytes()).unwrap_err();
            assert_eq!(error.code, "unknown_field");
            assert!(error.hint.contains(field), "{}", error.hint);
        }
    }

    #[test]
    fn an_answer_never_repeats_more_than_a_little_of_the_input() {
        let error = parse::<RunRequest>(format!("{{\"{}\":1}}", "x".repeat(100_000)).as_bytes()).unwrap_err();
        assert!(error.message.len() < 3000 && error.hint.len() < 200);
    }
}
