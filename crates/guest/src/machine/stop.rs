//! `POST /stop`: everything but PID 1 is killed, and nothing can be started any more.

use std::rc::Rc;
use std::time::Duration;

use super::Phase;
use crate::agent::Agent;
use crate::agent::connect::{Answer, Code, RpcError, json_answer};

/// Time between two looks for whether anything is left.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(crate) async fn stop(agent: &Rc<Agent>) -> Result<Answer, RpcError> {
    let Some(machine) = &agent.machine else {
        return Err(RpcError::new(Code::NotFound, "this guest has no machine of its own"));
    };
    let Some(claimed) = machine.claimed.get().filter(|_| matches!(machine.phase.get(), Phase::Ready | Phase::Stopped))
    else {
        return Err(RpcError::new(Code::FailedPrecondition, "the sandbox is not initialised"));
    };
    // From here on no fork happens: this is the one thread that would.
    machine.phase.set(Phase::Stopped);
    // What cannot be killed keeps this from answering, and the node has a deadline.
    while machine.ground.kill_all()? {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let mut facts = machine.ground.facts()?;
    (facts.disk_full, facts.files_full) = claimed.scratch.full();
    Ok(json_answer(&facts))
}
