//! stub
use crate::agent::connect::{Answer, Code, RpcError};
use crate::agent::http::Caller;
use hyper::body::Incoming;
pub fn download(_p: &http::request::Parts, _c: Caller) -> Result<Answer, RpcError> {
    Err(RpcError::new(Code::Unimplemented, "files"))
}
pub async fn upload(_p: &http::request::Parts, _c: Caller, _b: Incoming) -> Answer {
    RpcError::new(Code::Unimplemented, "files").into_answer()
}
