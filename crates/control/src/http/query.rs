//! Query parameters: known ones only, each once.

use axum::extract::Query;
use http::Uri;
use serde::de::DeserializeOwned;

use crate::api_error::ApiError;

/// The parameters of `uri` as a `T`, which denies unknown fields.
///
/// # Errors
/// When a parameter is unknown, given twice, or has no such value.
pub(super) fn parse<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    match Query::<T>::try_from_uri(uri) {
        Ok(Query(value)) => Ok(value),
        Err(rejection) => {
            // The rejection's own text repeats its layers; the innermost says what is wrong.
            let mut innermost: &dyn std::error::Error = &rejection;
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            let message = format!("the query does not fit: {innermost}");
            Err(ApiError::invalid("invalid_query", message, "Correct or remove that query parameter."))
        }
    }
}

/// The query of a route that takes none.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    #[derive(Default)]
    struct Wanted {
        after: Option<u64>,
    }

    #[test]
    fn unknown_doubled_and_unfit_parameters_are_refused() {
        for (uri, fine) in [
            ("/x", true),
            ("/x?after=3", true),
            ("/x?After=3", false),
            ("/x?after=3&after=4", false),
            ("/x?after=-1", false),
            ("/x?after=", false),
            ("/x?after=3&tenant=globex", false),
        ] {
            let outcome = parse::<Wanted>(&uri.parse().unwrap());
            assert_eq!(outcome.is_ok(), fine, "{uri}: {outcome:?}");
        }
        assert_eq!(parse::<Wanted>(&"/x?after=3".parse().unwrap()).unwrap().after, Some(3));
        assert!(parse::<NoQuery>(&"/x?verbose".parse().unwrap()).is_err());
    }
}
