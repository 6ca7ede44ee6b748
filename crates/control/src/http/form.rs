//! Bodies that are forms: bounded, each field once, every field known.

use bailey_protocol::api::identity::TokenForm;
use http::header;
use serde_json::{Map, Value};

use super::arguments::{Argument, Asked, Content, Takes, describe};
use super::{MAX_SMALL, json};
use crate::api_error::{ApiError, ErrorKind};

/// A whole form.
pub(super) struct Form<T>(pub(super) T);

impl Argument for Form<TokenForm> {
    fn declare(takes: &mut Takes) {
        takes.takes_body(Content::Form(describe::<TokenForm>), Some(MAX_SMALL));
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        let (body, timeout) = (asked.body(), asked.control.config().http.body_timeout);
        let headers = &asked.parts.headers;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = kind.split(';').next().unwrap_or("").trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let hint = "Send `Content-Type: application/x-www-form-urlencoded`.";
            return Err(ApiError::new(ErrorKind::UnsupportedMedia, "not_a_form", "the body is no form", hint));
        }
        parse(&json::collect(headers, body, MAX_SMALL, timeout).await?).map(Self)
    }
}

pub(super) fn parse(body: &[u8]) -> Result<TokenForm, ApiError> {
    let fail = |message: String| {
        ApiError::invalid("invalid_request", message, "Send each field of RFC 8693 once, and no other.")
    };
    let text = std::str::from_utf8(body).map_err(|error| fail("the form is not UTF-8".to_owned()).because(error))?;
    // The URL library is what decodes forms here; only its query is used.
    let mut url: reqwest::Url = "form:/".parse().map_err(ApiError::internal)?;
    url.set_query(Some(text));
    let mut fields = Map::new();
    for (name, value) in url.query_pairs() {
        if fields.insert(name.clone().into_owned(), Value::String(value.into_owned())).is_some() {
            return Err(fail(format!("`{}` is sent twice", name.escape_default())));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_each_known_field_once() {
        let good = "grant_type=g&subject_token=a%2Fb&subject_token_type=t&scope=a+b";
        let form = parse(good.as_bytes()).unwrap();
        assert_eq!((form.subject_token.as_str(), form.scope.as_deref()), ("a/b", Some("a b")));
        for bad in [
            "",
            "grant_type=g",
            "grant_type=g&subject_token=a&subject_token_type=t&tenant=globex",
            "grant_type=g&grant_type=h&subject_token=a&subject_token_type=t",
            "grant_type=g&gr%61nt_type=h&subject_token=a&subject_token_type=t",
        ] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code, "invalid_request", "{bad}");
        }
        assert!(parse(b"\xff").is_err());
    }
}
