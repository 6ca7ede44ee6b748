//! Standard input of a program, on a connection of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::Method;
use serde::Serialize;
use tokio::sync::mpsc;

use super::{Agent, AgentError, json, whole};

/// Bytes of input per request.
const PIECE: usize = 64 * 1024;
/// The same where there is much of it.
const LARGE_PIECE: usize = 512 * 1024;

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
    for piece in bytes.chunks(PIECE) {
        if !send(&mut agent, pid, piece).await? {
            return Ok(());
        }
    }
    close(agent, pid).await
}

/// As [`feed`], with what comes through a channel, until that is closed.
///
/// # Errors
/// As [`feed`].
pub async fn feed_from(mut agent: Agent, pid: u32, mut pieces: mpsc::Receiver<Bytes>) -> Result<(), AgentError> {
    let mut waiting = BytesMut::new();
    while let Some(piece) = pieces.recv().await {
        waiting.extend_from_slice(&piece);
        while waiting.len() < LARGE_PIECE {
            let Ok(more) = pieces.try_recv() else { break };
            waiting.extend_from_slice(&more);
        }
        while !waiting.is_empty() {
            let piece = waiting.split_to(waiting.len().min(LARGE_PIECE));
            if !send(&mut agent, pid, &piece).await? {
                return Ok(());
            }
        }
    }
    close(agent, pid).await
}

/// Sends one piece; `false` when the program takes no more.
async fn send(agent: &mut Agent, pid: u32, piece: &[u8]) -> Result<bool, AgentError> {
    let body = json(&SendInput { process: Selector { pid }, input: Input { stdin: STANDARD.encode(piece) } })?;
    let answer = agent.send(Method::POST, "/process.Process/SendInput", "application/json", body).await?;
    let accepted = answer.status().is_success();
    whole(answer).await?;
    Ok(accepted)
}

async fn close(mut agent: Agent, pid: u32) -> Result<(), AgentError> {
    let body = json(&CloseStdin { process: Selector { pid } })?;
    let answer = agent.send(Method::POST, "/process.Process/CloseStdin", "application/json", body);
    whole(answer.await?).await?;
    Ok(())
}
