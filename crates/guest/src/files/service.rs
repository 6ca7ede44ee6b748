//! stub
use crate::agent::Agent;
use crate::agent::connect::{Answer, Code, RpcError};
use crate::agent::http::Caller;
use hyper::body::Incoming;
use std::rc::Rc;
pub async fn call(_agent: &Rc<Agent>, method: &str, _caller: Caller, _body: Incoming) -> Answer {
    RpcError::new(Code::Unimplemented, format!("no method `{method}`")).into_answer()
}
