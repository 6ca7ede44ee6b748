//! `If-Match` and `If-None-Match`.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::arguments::{Argument, Asked, Takes};
use crate::api_error::ApiError;
use crate::ops::tree::Condition;

/// Most tags that one header may list.
const MAX_TAGS: usize = 16;

/// What a write is based on.
impl Argument for Condition {
    fn declare(takes: &mut Takes) {
        takes
            .headers
            .push(("If-Match", "Tags of earlier answers: the change is made only if one is what is there now."));
        takes.headers.push(("If-None-Match", "`*`: the change is made only if nothing is there."));
        takes.errors.insert(412);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        parse(&asked.parts.headers)
    }
}

/// # Errors
/// When a header is not a list of strong tags, or cannot be kept.
fn parse(headers: &HeaderMap) -> Result<Condition, ApiError> {
    let matches = tags(headers, &header::IF_MATCH)?;
    let excludes = tags(headers, &header::IF_NONE_MATCH)?;
    match (matches, excludes) {
        (None, None) => Ok(Condition::None),
        (Some(Tags::Any), None) => Ok(Condition::Exists),
        (Some(Tags::Some(ids)), None) => Ok(Condition::Is(ids)),
        (None, Some(Tags::Any)) => Ok(Condition::Absent),
        (None, Some(Tags::Some(_))) | (Some(_), Some(_)) => {
            Err(refuse("a write takes either `If-Match` or `If-None-Match: *`"))
        }
    }
}

/// Whether a reader already has the content `id`.
pub(super) fn already_has(headers: &HeaderMap, id: &str) -> bool {
    match tags(headers, &header::IF_NONE_MATCH) {
        Ok(Some(Tags::Any)) => true,
        Ok(Some(Tags::Some(ids))) => ids.iter().any(|known| known == id),
        Ok(None) | Err(_) => false,
    }
}

/// The tag of the content `id`.
pub(super) fn tag(id: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(&format!("\"{id}\"")).map_err(ApiError::internal)
}

enum Tags {
    Any,
    Some(Vec<String>),
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, ApiError> {
    let mut ids = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().map_err(|error| refuse("a tag is not text").because(error))?;
        if text.trim() == "*" {
            return Ok(Some(Tags::Any));
        }
        for tag in text.split(',') {
            let id = tag.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            match id {
                Some(id) if ids.len() < MAX_TAGS => ids.push(id.to_owned()),
                Some(_) | None => return Err(refuse("`If-Match` is not a short list of quoted tags")),
            }
        }
    }
    Ok((!ids.is_empty()).then_some(Tags::Some(ids)))
}

fn refuse(message: &str) -> ApiError {
    ApiError::invalid("invalid_condition", message, "Send the `ETag` of an earlier answer, quotes included.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_strong_and_few() {
        let none = || Vec::<(HeaderName, &'static str)>::new();
        let (matches, excludes) = (header::IF_MATCH, header::IF_NONE_MATCH);
        for (pairs, expected) in [
            (none(), Some(Condition::None)),
            (vec![(matches.clone(), "*")], Some(Condition::Exists)),
            (vec![(excludes.clone(), "*")], Some(Condition::Absent)),
            (vec![(matches.clone(), "\"a\", \"b\"")], Some(Condition::Is(vec!["a".to_owned(), "b".to_owned()]))),
            (vec![(matches.clone(), "W/\"a\"")], None),
            (vec![(matches.clone(), "a")], None),
            (vec![(matches.clone(), "\"")], None),
            (vec![(matches.clone(), "")], None),
            (vec![(excludes.clone(), "\"a\"")], None),
            (vec![(matches.clone(), "\"a\""), (excludes, "*")], None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in &pairs {
                headers.append(name, HeaderValue::from_static(value));
            }
            assert_eq!(parse(&headers).ok(), expected, "{pairs:?}");
        }
    }
}
