//! A client that says exactly what a test wants to say.

use std::net::SocketAddr;

use bailey_protocol::api::{ErrorBody, RunEvent, RunEventKind};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::documented;

/// One caller.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub token: Option<String>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error, checked for what every error has to be.
    pub fn error(&self, status: u16) -> ErrorBody {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        let body: ErrorBody = self.json();
        assert_eq!(body.code, status);
        assert_eq!(self.headers["x-request-id"], body.request_id.as_str());
        assert!(!body.error.is_empty() && !body.message.is_empty() && !body.hint.is_empty(), "{body:?}");
        for leak in ["/tmp", "SELECT", "INSERT", "panicked", ".rs:", "sqlite", "serve/"] {
            assert!(!String::from_utf8_lossy(&self.body).contains(leak), "{leak} in {body:?}");
        }
        body
    }

    pub fn ok(self) -> Self {
        assert!(self.status.is_success(), "{self:?}");
        self
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub fn events(&self) -> Vec<RunEvent> {
        assert_eq!(self.status, 200, "{self:?}");
        let lines = self.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// The last event, which has to be the end.
    pub fn last(&self) -> RunEventKind {
        let last = self.events().pop().unwrap().kind;
        assert!(matches!(last, RunEventKind::Ended(_) | RunEventKind::Failed { .. }), "{last:?}");
        last
    }
}

/// A request in the making.
pub struct Asking<'a> {
    client: &'a Client,
    request: http::request::Builder,
    method: Method,
    path: String,
    body: Bytes,
}

impl Client {
    pub fn ask(&self, method: Method, path: &str) -> Asking<'_> {
        let mut request = Request::builder().method(method.clone()).uri(path).header("host", "bailey");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Asking { client: self, request, method, path: path.to_owned(), body: Bytes::new() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).answer().await
    }

    pub async fn put(&self, path: &str, content: impl Into<Bytes>) -> Answer {
        self.ask(Method::PUT, path).body(content).answer().await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path).answer().await
    }

    pub async fn post(&self, path: &str, body: serde_json::Value) -> Answer {
        self.ask(Method::POST, path).body(body.to_string()).answer().await
    }

    pub async fn run(&self, body: serde_json::Value) -> Answer {
        self.post("/v1/runs", body).await
    }
}

impl Asking<'_> {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The head of the answer and its body as it comes.
    pub async fn begin(self) -> http::Response<Incoming> {
        let (method, path) = (self.method.clone(), self.path.clone());
        let response = self.send().await;
        documented::check(&method, &path, response.status(), response.headers(), None);
        response
    }

    async fn send(self) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.client.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(self.request.body(Full::new(self.body)).unwrap()).await.unwrap()
    }

    pub async fn answer(self) -> Answer {
        let (method, path) = (self.method.clone(), self.path.clone());
        let (head, body) = self.send().await.into_parts();
        let body = body.collect().await.unwrap_or_else(|error| panic!("{method} {path}: {error}")).to_bytes();
        documented::check(&method, &path, head.status, &head.headers, Some(&body));
        Answer { status: head.status, headers: head.headers, body }
    }
}
