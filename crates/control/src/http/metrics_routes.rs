//! `/metrics`.

use axum::body::Body;
use http::Response;

use super::arguments::text_of;
use crate::api_error::ApiError;
use crate::control::{Control, OperatorCaller};
use crate::ops::metrics;

/// `GET /metrics`
pub(super) async fn show(control: Control, caller: OperatorCaller) -> Result<Response<Body>, ApiError> {
    Ok(text_of("text/plain; version=0.0.4", metrics::show(&control, &caller).await?))
}
