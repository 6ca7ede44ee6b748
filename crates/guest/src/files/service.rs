//! `filesystem.Filesystem`: the methods.

use std::rc::Rc;

use hyper::body::Incoming;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};

use super::entry::{Names, describe};
use super::path::{make_folders, open, resolve};
use super::{operation, watch};
use crate::agent::Agent;
use crate::agent::connect::{
    Answer, Code, RpcError, failed_stream, invalid, json_answer, read_enveloped, read_unary, stream_answer,
};
use crate::agent::http::Caller;

#[derive(Debug, Deserialize)]
struct PathRequest {
    path: String,
}

#[derive(Debug, Deserialize)]
struct MoveRequest {
    source: String,
    destination: String,
}

#[derive(Debug, Deserialize)]
struct ListRequest {
    path: String,
    #[serde(default)]
    depth: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchRequest {
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    include_entry: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatcherRequest {
    watcher_id: String,
}

/// Calls a method.
pub async fn call(agent: &Rc<Agent>, method: &str, caller: Caller, body: Incoming) -> Answer {
    if method == "WatchDir" {
        return match watch_dir(caller, body).await {
            Ok(answer) => answer,
            Err(error) => failed_stream(error),
        };
    }
    match unary(agent, method, caller, body).await {
        Ok(value) => json_answer(&value),
        Err(error) => error.into_answer(),
    }
}

async fn unary(agent: &Agent, method: &str, caller: Caller, body: Incoming) -> Result<Value, RpcError> {
    match method {
        "Stat" => {
            let request: PathRequest = read_unary(body).await?;
            entry_answer(&resolve(&request.path, caller.user)?, "stat")
        }
        "MakeDir" => {
            let request: PathRequest = read_unary(body).await?;
            make_dir(&resolve(&request.path, caller.user)?, caller)
        }
        "Move" => {
            let request: MoveRequest = read_unary(body).await?;
            let destination = resolve(&request.destination, caller.user)?;
            operation::rename(&resolve(&request.source, caller.user)?, &destination, caller.user)?;
            entry_answer(&destination, "move to")
        }
        "ListDir" => {
            let request: ListRequest = read_unary(body).await?;
            let entries = operation::list(&resolve(&request.path, caller.user)?, request.depth).await?;
            Ok(json!({ "entries": entries }))
        }
        "Remove" => {
            let request: PathRequest = read_unary(body).await?;
            operation::remove(&resolve(&request.path, caller.user)?)?;
            Ok(json!({}))
        }
        "CreateWatcher" => {
            let watch = watch_of(read_unary(body).await?, caller)?;
            let id = agent.watchers.borrow_mut().add(watch)?;
            Ok(json!({ "watcherId": id }))
        }
        "GetWatcherEvents" => {
            let request: WatcherRequest = read_unary(body).await?;
            Ok(json!({ "events": agent.watchers.borrow_mut().drain(&request.watcher_id)? }))
        }
        "RemoveWatcher" => {
            let request: WatcherRequest = read_unary(body).await?;
            agent.watchers.borrow_mut().remove(&request.watcher_id)?;
            Ok(json!({}))
        }
        other => Err(RpcError::new(Code::Unimplemented, format!("no method `{other}`"))),
    }
}

fn entry_answer(path: &str, doing: &str) -> Result<Value, RpcError> {
    let entry = describe(path, &Names::read()).map_err(|errno| RpcError::from_errno(errno, doing, path.as_bytes()))?;
    Ok(json!({ "entry": entry }))
}

fn make_dir(path: &str, caller: Caller) -> Result<Value, RpcError> {
    let failed = |errno| RpcError::from_errno(errno, "make folder", path.as_bytes());
    match open(None, path, OFlags::PATH, Mode::empty()) {
        Ok(there) => {
            let stat = rustix::fs::fstat(&there).map_err(failed)?;
            return Err(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => RpcError::new(Code::AlreadyExists, format!("folder `{path}` is there already")),
                _ => invalid(format!("`{path}` is there and is no folder")),
            });
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(failed(error)),
    }
    // Somebody else may make it in between; then it is there as asked for.
    make_folders(path, caller.user).map_err(failed)?;
    entry_answer(path, "make folder")
}

fn watch_of(request: WatchRequest, caller: Caller) -> Result<watch::Watch, RpcError> {
    watch::Watch::new(resolve(&request.path, caller.user)?, request.recursive, request.include_entry)
}

async fn watch_dir(caller: Caller, body: Incoming) -> Result<Answer, RpcError> {
    let watch = watch_of(read_enveloped(body).await?, caller)?;
    Ok(stream_answer(watch::stream(watch, caller.keepalive).until(caller.timeout)))
}
