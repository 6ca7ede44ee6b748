//! `process.Process`: the methods.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::registry::{Exec, Selector};
use super::start::{StartSpec, start, start_event};
use crate::agent::Agent;
use crate::agent::connect::{
    Answer, Code, Messages, RpcError, envelope, failed_stream, full, invalid, json_answer, parse, read_enveloped,
    read_unary, split_envelope, stream_answer,
};
use crate::agent::http::Caller;

/// A program to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// Its name or path.
    pub cmd: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Added to its environment.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Where it starts; the user's home if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct PtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

#[derive(Debug, Deserialize)]
struct Pty {
    size: PtySize,
}

#[derive(Debug, Deserialize)]
struct StartRequest {
    process: ProcessConfig,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct SelectRequest {
    process: Selector,
}

#[derive(Debug, Deserialize)]
struct UpdateRequest {
    process: Selector,
    pty: Option<Pty>,
}

/// Bytes for a process, as base64.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum InputBytes {
    Stdin(String),
    Pty(String),
}

#[derive(Debug, Deserialize)]
struct InputRequest {
    process: Selector,
    input: InputBytes,
}

#[derive(Debug, Deserialize)]
struct SignalRequest {
    process: Selector,
    signal: Value,
}

/// One message of `StreamInput`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StreamInputEvent {
    Start { process: Selector },
    Data { input: InputBytes },
    Keepalive {},
}

/// Calls a method.
pub async fn call(agent: &Rc<Agent>, method: &str, caller: Caller, body: Incoming) -> Answer {
    match method {
        "Start" => match start_method(agent, caller, body).await {
            Ok(messages) => stream_answer(messages),
            Err(error) => failed_stream(error),
        },
        "Connect" => connect(agent, caller, body).await.unwrap_or_else(failed_stream),
        "StreamInput" => match stream_input(agent, body).await {
            Ok(()) => {
                let last = crate::agent::connect::end_of_stream(Ok(()));
                stream_answer(full([envelope(&json!({})), last].concat()))
            }
            Err(error) => failed_stream(error),
        },
        _ => unary(agent, method, body).await.unwrap_or_else(RpcError::into_answer),
    }
}

async fn unary(agent: &Rc<Agent>, method: &str, body: Incoming) -> Result<Answer, RpcError> {
    let find = |selector: &Selector| agent.registry.borrow().find_running(selector);
    match method {
        "List" => return Ok(json_answer(&list(agent))),
        "Update" => {
            let request: UpdateRequest = read_unary(body).await?;
            let exec = find(&request.process)?;
            if let Some(Pty { size }) = request.pty {
                let terminal = exec.terminal.borrow().clone();
                let terminal = terminal.ok_or_else(|| invalid("the process has no terminal"))?;
                bailey_sys::pty::resize(terminal.master(), size.cols, size.rows)
                    .map_err(|errno| RpcError::new(Code::Internal, format!("resize the terminal: {errno}")))?;
            }
        }
        "SendInput" => {
            let request: InputRequest = read_unary(body).await?;
            send_input(&*find(&request.process)?, request.input).await?;
        }
        "SendSignal" => {
            let request: SignalRequest = read_unary(body).await?;
            send_signal(&*find(&request.process)?, &request.signal)?;
        }
        "CloseStdin" => {
            let request: SelectRequest = read_unary(body).await?;
            let exec = find(&request.process)?;
            if exec.terminal.borrow().is_some() {
                return Err(invalid("a terminal has no standard input to close; send the end-of-file key"));
            }
            exec.input.close();
        }
        other => return Err(RpcError::new(Code::Unimplemented, format!("no method `{other}`"))),
    }
    Ok(json_answer(&json!({})))
}

fn list(agent: &Agent) -> Value {
    let running = agent.registry.borrow().running();
    let processes = running.iter().map(|exec| {
        let mut process = json!({ "config": exec.config, "pid": exec.pid.as_raw_nonzero() });
        if let (Some(tag), Some(fields)) = (&exec.tag, process.as_object_mut()) {
            fields.insert("tag".to_owned(), json!(tag));
        }
        process
    });
    json!({ "processes": processes.collect::<Vec<_>>() })
}

async fn start_method(agent: &Rc<Agent>, caller: Caller, body: Incoming) -> Result<Messages, RpcError> {
    let request: StartRequest = read_enveloped(body).await?;
    let spec = StartSpec {
        config: request.process,
        pty: request.pty.map(|pty| pty.size),
        tag: request.tag,
        stdin: request.stdin.unwrap_or(true),
        user: caller.user,
        timeout: caller.timeout,
    };
    Ok(messages(start(agent, spec).await?, caller))
}

async fn connect(agent: &Rc<Agent>, caller: Caller, body: Incoming) -> Result<Answer, RpcError> {
    let request: SelectRequest = read_enveloped(body).await?;
    let exec = agent.registry.borrow().find(&request.process)?;
    let first = start_event(exec.pid);
    Ok(match exec.end.get() {
        Some(end) => stream_answer(full([first, end.clone()].concat())),
        // The deadline of a mere listener ends its listening; the exec's own is that of its start.
        None => stream_answer(messages(exec.feed.subscribe(first), caller).until(caller.timeout)),
    })
}

fn messages(events: tokio::sync::mpsc::Receiver<Bytes>, caller: Caller) -> Messages {
    Messages::new(events, caller.keepalive, envelope(&json!({ "event": { "keepalive": {} } })))
}

async fn send_input(exec: &Exec, input: InputBytes) -> Result<(), RpcError> {
    let has_terminal = exec.terminal.borrow().is_some();
    let text = match (input, has_terminal) {
        (InputBytes::Stdin(text), false) | (InputBytes::Pty(text), true) => text,
        (InputBytes::Stdin(_), true) => return Err(invalid("the process has a terminal: send `pty` input")),
        (InputBytes::Pty(_), false) => return Err(invalid("the process has no terminal: send `stdin` input")),
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    exec.input.send(bytes.map_err(|error| invalid(format!("decode the input: {error}")))?.into()).await
}

fn send_signal(exec: &Exec, signal: &Value) -> Result<(), RpcError> {
    let signal = match (signal.as_str(), signal.as_i64()) {
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Signal::KILL,
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Signal::TERM,
        (Some("SIGNAL_SIGINT"), _) | (_, Some(2)) => Signal::INT,
        _ => return Err(invalid(format!("signal `{signal}` cannot be sent"))),
    };
    // Between its end and its reaping a process id is still its own; after that the exec is not found.
    if exec.exit.borrow().is_some() {
        return Ok(());
    }
    if signal == Signal::KILL {
        exec.kill_all();
        return Ok(());
    }
    let sent = rustix::process::kill_process_group(exec.pid, signal);
    sent.map_err(|errno| RpcError::new(Code::Internal, format!("send the signal: {errno}")))
}

/// Reads messages as they come and passes their bytes on, each when the one before was taken.
async fn stream_input(agent: &Rc<Agent>, mut body: Incoming) -> Result<(), RpcError> {
    let mut pending = BytesMut::new();
    let mut exec: Option<Rc<Exec>> = None;
    loop {
        while let Some(message) = split_envelope(&mut pending)? {
            match parse(&message)? {
                StreamEnvelope { event: Some(StreamInputEvent::Start { process }) } => {
                    exec = Some(agent.registry.borrow().find_running(&process)?);
                }
                StreamEnvelope { event: Some(StreamInputEvent::Data { input }) } => {
                    let exec = exec.as_ref().ok_or_else(|| invalid("the first message must be `start`"))?;
                    send_input(exec, input).await?;
                }
                StreamEnvelope { event: Some(StreamInputEvent::Keepalive {}) | None } => {}
            }
        }
        let Some(frame) = body.frame().await else {
            return Ok(());
        };
        let frame = frame.map_err(|error| invalid(format!("read the request: {error}")))?;
        pending.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
    }
}

/// `{"event": {"start": …}}` as well as `{"start": …}`: both are in use.
#[derive(Debug)]
struct StreamEnvelope {
    event: Option<StreamInputEvent>,
}

impl<'de> Deserialize<'de> for StreamEnvelope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(inner) = value.get_mut("event") {
            value = inner.take();
        }
        let empty = value.as_object().is_none_or(serde_json::Map::is_empty);
        let event = if empty { None } else { Some(StreamInputEvent::deserialize(value)) };
        Ok(Self { event: event.transpose().map_err(serde::de::Error::custom)? })
    }
}
