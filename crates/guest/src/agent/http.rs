//! HTTP on an `agent` stream: which request goes where.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use http::{HeaderMap, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::connect::{Answer, Code, RpcError, empty_answer, json_answer};
use super::{Agent, facts, init};
use crate::exec::identity::User;
use crate::{exec, files, machine};

/// Time between signs of life on an idle stream, unless the caller names another.
const KEEPALIVE: Duration = Duration::from_secs(90);
/// Longest such time.
const MAX_KEEPALIVE_SECONDS: u64 = 3600;
/// Longest time that an exec can be given.
const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;

/// What the headers of a request say.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Whom the request acts as.
    pub user: User,
    /// How long an exec may take.
    pub timeout: Option<Duration>,
    /// Time between signs of life on an idle stream.
    pub keepalive: Duration,
}

/// Answers the requests of one connection, one after the other.
pub(super) async fn serve(agent: Rc<Agent>, stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let service = service_fn(|request| {
        let agent = Rc::clone(&agent);
        async move { Ok::<_, Infallible>(answer(&agent, request).await) }
    });
    // The caller sees a broken connection itself; there is nobody else to tell.
    let _closed = http1::Builder::new().max_buf_size(64 * 1024).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(agent: &Rc<Agent>, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    match (&parts.method, path) {
        (&Method::GET, "/health") => return empty_answer(StatusCode::NO_CONTENT),
        (&Method::POST, "/init") => return init::init(agent, body).await.unwrap_or_else(RpcError::into_answer),
        (&Method::POST, "/claim") => {
            return machine::claim::claim(agent, body).await.unwrap_or_else(RpcError::into_answer);
        }
        (&Method::POST, "/warm") => {
            return machine::warm::warm(agent, body).await.unwrap_or_else(RpcError::into_answer);
        }
        (&Method::POST, "/stop") => return machine::stop::stop(agent).await.unwrap_or_else(RpcError::into_answer),
        _ => {}
    }
    let Some(settings) = agent.settings.get() else {
        return RpcError::new(Code::FailedPrecondition, "the sandbox is not initialised").into_answer();
    };
    let caller = match caller(&parts.headers) {
        Ok(caller) => caller,
        Err(error) => return error.into_answer(),
    };
    match (&parts.method, path) {
        (&Method::GET, "/envs") => json_answer(&settings.env),
        (&Method::GET, "/metrics") => json_answer(&facts::metrics(agent)),
        (&Method::GET, "/files") => files::transfer::download(&parts, caller).unwrap_or_else(RpcError::into_answer),
        (&Method::POST, "/files") => files::transfer::upload(&parts, caller, body).await,
        (&Method::POST, path) => match path.split_once('/').and_then(|(_, rest)| rest.split_once('/')) {
            Some(("process.Process", method)) => exec::service::call(agent, method, caller, body).await,
            Some(("filesystem.Filesystem", method)) => files::service::call(agent, method, caller, body).await,
            _ => empty_answer(StatusCode::NOT_FOUND),
        },
        _ => empty_answer(StatusCode::NOT_FOUND),
    }
}

fn caller(headers: &HeaderMap) -> Result<Caller, RpcError> {
    let number = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    Ok(Caller {
        user: user(headers)?,
        timeout: number("connect-timeout-ms")
            .filter(|ms| *ms > 0)
            .map(|ms| Duration::from_millis(ms.min(MAX_TIMEOUT_MS))),
        keepalive: number("keepalive-ping-interval")
            .filter(|seconds| *seconds > 0)
            .map_or(KEEPALIVE, |seconds| Duration::from_secs(seconds.min(MAX_KEEPALIVE_SECONDS))),
    })
}

/// The user of `Authorization: Basic`, whose password is empty and not looked at: the node is believed.
fn user(headers: &HeaderMap) -> Result<User, RpcError> {
    let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        return Ok(User::User);
    };
    let Some(encoded) = value.strip_prefix("Basic ") else {
        return Ok(User::User);
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded.trim()).unwrap_or_default();
    let text = String::from_utf8_lossy(&decoded);
    User::by_name(text.split_once(':').map_or(&*text, |(name, _password)| name))
}
