//! Standard input of a program, on a connection of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Serialize;

use super::{Agent, AgentError, json, whole};

/// Bytes of input per request.
const PIECE: usize = 64 * 1024;

#[derive(Serialize)]
struct SendInput {
    process: Selector,
    input: Input,
}

#[derive(Serialize)]
struct CloseStdin {
    process: Selector,
}

#[derive(Clone, Copy, Serialize)]
struct Selector {
    pid: u32,
}

#[derive(Serialize)]
struct Input {
    stdin: String,
}

/// Sends all input and closes it. A program that does not read, or is over already, ends it early.
///
/// # Errors
/// When the agent does not take it; the program may have ended meanwhile, which is no error of the run.
pub async fn feed(mut agent: Agent, pid: u32, bytes: &[u8]) -> Result<(), AgentError> {
    let process = Selector { pid };
    for piece in bytes.chunks(PIECE) {
        let body = json(&SendInput { process, input: Input { stdin: STANDARD.encode(piece) } })?;
        let answer = agent.send(Method::POST, "/process.Process/SendInput", "application/json", body).await?;
        let accepted = answer.status().is_success();
        whole(answer).await?;
        if !accepted {
            return Ok(());
        }
    }
    let answer =
        agent.send(Method::POST, "/process.Process/CloseStdin", "application/json", json(&CloseStdin { process })?);
    whole(answer.await?).await?;
    Ok(())
}
