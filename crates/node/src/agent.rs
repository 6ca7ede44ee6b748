//! Client of the guest agent: HTTP/1.1 over a stream, Connect-JSON behind it.
//!
//! Everything that comes back is hostile: heads, bodies and frames have limits that hold before parsing, unknown
//! events are passed over, and anything else that is not as it should be ends the conversation. Deadlines are the
//! caller's.

use bailey_protocol::guest::{InitRequest, InitResponse, MachineClaim, MachineClaimed, MachineWarm, StreamTarget};
use bailey_protocol::jail::StopFacts;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use crate::tasks::Tasks;
use crate::transport::{Transport, TransportError};

mod event;
mod exec;
mod files;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod input;

pub use exec::{Exec, ExecEvent, Program};
pub use input::{feed, feed_from};

/// Largest head of an answer, and largest piece of a body held at once.
const MAX_HEAD: usize = 64 * 1024;
/// Most headers in one answer.
const MAX_HEADERS: usize = 32;
/// Largest whole answer, where it is not a stream.
const MAX_ANSWER: usize = 64 * 1024;
/// Most fences that a guest may name, and the longest name.
const MAX_FENCES: usize = 64;
const MAX_FENCE_BYTES: usize = 64;
/// Longest part of a refusal that is kept.
const MAX_SAID: usize = 500;

/// Why the agent could not be made to do something.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No stream to it.
    #[error("no stream to the guest agent")]
    Transport(#[from] TransportError),
    /// Its HTTP is broken, or it is gone.
    #[error("http with the guest agent broke")]
    Http(#[from] hyper::Error),
    /// It does not keep to the protocol.
    #[error("the guest agent broke the protocol: {0}")]
    Broken(&'static str),
    /// It refuses to start the program, or to write a file.
    #[error("the guest agent refused: {refusal}: `{said}`")]
    Refused {
        /// As far as it is understood.
        refusal: Refusal,
        /// In its own words, for the log.
        said: String,
    },
}

/// A refusal, as far as it is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such program.
    #[error("not found")]
    NotFound,
    /// The program may not be executed.
    #[error("permission denied")]
    PermissionDenied,
    /// The working folder, the arguments or the environment cannot be used.
    #[error("invalid argument")]
    InvalidArgument,
    /// A limit of the sandbox is in the way.
    #[error("resource exhausted")]
    Exhausted,
    /// Something else.
    #[error("another reason")]
    Other,
}

/// One HTTP connection to the agent.
#[derive(Debug)]
pub struct Agent {
    requests: http1::SendRequest<Full<Bytes>>,
    driver: AbortOnDropHandle<()>,
}

impl Agent {
    /// Opens a connection. Nothing is exchanged yet but the stream's header.
    ///
    /// # Errors
    /// When the guest is gone.
    pub async fn connect(transport: &Transport, tasks: &Tasks) -> Result<Self, AgentError> {
        let stream = TokioIo::new(transport.open(StreamTarget::Agent).await?);
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
        let (requests, connection) = builder.handshake(stream).await?;
        // An error of the connection reaches whoever waits for its answer.
        let driver = tasks.spawn(async move { drop(connection.await) });
        Ok(Self { requests, driver: AbortOnDropHandle::new(driver) })
    }

    /// Asks whether the agent is up.
    ///
    /// # Errors
    /// When it is not.
    pub async fn health(&mut self) -> Result<(), AgentError> {
        let answer = self.send(Method::GET, "/health", "", Bytes::new()).await?;
        let status = answer.status();
        whole(answer).await?;
        if status.is_success() { Ok(()) } else { Err(AgentError::Broken("it is not healthy")) }
    }

    /// Tells the agent about its run, once.
    ///
    /// # Errors
    /// When the agent does not take it.
    pub async fn init(&mut self, init: &InitRequest) -> Result<Vec<String>, AgentError> {
        let answer: InitResponse = self.order("/init", init).await?;
        checked(answer.fences)
    }

    /// Makes a parked machine one of its own, once; the fences that this puts up.
    ///
    /// # Errors
    /// [`AgentError::Refused`] when the guest cannot, else when it is broken.
    pub async fn claim(&mut self, claim: &MachineClaim) -> Result<Vec<String>, AgentError> {
        let answer: MachineClaimed = self.order("/claim", claim).await?;
        checked(answer.fences)
    }

    /// Has the guest of a machine kill everything but itself; what it has counted.
    ///
    /// # Errors
    /// As for a claim.
    pub async fn stop(&mut self) -> Result<StopFacts, AgentError> {
        self.order("/stop", &serde_json::json!({})).await
    }

    /// Has a machine that nobody has claimed run commands, for what they leave in its memory.
    ///
    /// # Errors
    /// When one of them fails, or the guest is broken.
    pub async fn warm(&mut self, commands: &[Vec<String>]) -> Result<(), AgentError> {
        let request = MachineWarm { commands: commands.to_vec() };
        self.order::<serde::de::IgnoredAny>("/warm", &request).await.map(drop)
    }

    /// One request with a small answer.
    async fn order<T: DeserializeOwned>(
        &mut self,
        path: &'static str,
        order: &impl Serialize,
    ) -> Result<T, AgentError> {
        let answer = self.send(Method::POST, path, "application/json", json(order)?).await?;
        let status = answer.status();
        let body = whole(answer).await?;
        if status != StatusCode::OK {
            let refusal = if status == StatusCode::BAD_REQUEST { Refusal::InvalidArgument } else { Refusal::Other };
            return Err(AgentError::Refused { refusal, said: said(&body) });
        }
        serde_json::from_slice(&body).map_err(|_cause| AgentError::Broken("its answer is no message"))
    }

    /// Starts a program; the connection then carries its events.
    ///
    /// # Errors
    /// [`AgentError::Refused`] when the program cannot be started, else when the agent is broken.
    pub async fn start(mut self, program: &Program) -> Result<Exec, AgentError> {
        let body = frame::envelope(&json(program)?)?;
        let answer = self.send(Method::POST, "/process.Process/Start", "application/connect+json", body).await?;
        Exec::begin(answer, self.driver).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &'static str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Response<Incoming>, AgentError> {
        self.send_to(method, Uri::from_static(path), content_type, body).await
    }

    async fn send_to(
        &mut self,
        method: Method,
        target: Uri,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Response<Incoming>, AgentError> {
        self.requests.ready().await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        headers.insert(header::HOST, header::HeaderValue::from_static("agent"));
        if !content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
            headers.insert("connect-protocol-version", header::HeaderValue::from_static("1"));
        }
        Ok(self.requests.send_request(request).await?)
    }
}

/// Fences that a guest names, if they are names.
fn checked(fences: Vec<String>) -> Result<Vec<String>, AgentError> {
    let plain =
        |fence: &String| fence.len() <= MAX_FENCE_BYTES && fence.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if fences.len() > MAX_FENCES || !fences.iter().all(plain) {
        return Err(AgentError::Broken("its fences are no names"));
    }
    Ok(fences)
}

/// The beginning of what a guest says of its refusal, for the log.
fn said(body: &Bytes) -> String {
    String::from_utf8_lossy(body.get(..body.len().min(MAX_SAID)).unwrap_or_default()).into_owned()
}

/// A whole answer of limited size.
async fn whole(answer: Response<Incoming>) -> Result<Bytes, AgentError> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    Ok(body.map_err(|_cause| AgentError::Broken("its answer is cut or too large"))?.to_bytes())
}

fn json(value: &impl Serialize) -> Result<Bytes, AgentError> {
    let bytes = serde_json::to_vec(value).map_err(|_cause| AgentError::Broken("a request that is no message"))?;
    Ok(Bytes::from(bytes))
}
