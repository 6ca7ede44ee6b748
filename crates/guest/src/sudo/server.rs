//! stub
use crate::agent::Agent;
use crate::agent::connect::RpcError;
use std::rc::Rc;
pub fn listen(_a: &Rc<Agent>, _root: bool) -> Result<(), RpcError> {
    Ok(())
}
