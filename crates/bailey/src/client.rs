//! The HTTP API as functions. One per use of it; all of them refuse what the server was not meant to send.

pub(crate) mod events;

use std::time::Duration;

use bailey_protocol::api::ErrorBody;
use bailey_protocol::path::TreePath;
use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::ClientConfig;

pub(crate) use events::Events;

/// Largest JSON answer that is read into memory.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A silent connection is probed this often: a run may say nothing for long, a server that is gone may not.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    #[error("cannot reach `{server}`: {source}")]
    Unreachable { server: String, source: reqwest::Error },
    #[error("the server answered {status} with what is no answer of Bailey's: {text}")]
    Strange { status: u16, text: String },
    #[error("the answer broke off: {source}")]
    Broken { source: reqwest::Error },
    #[error("the answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
    #[error("the event stream broke off before the run's ending")]
    NoEnding,
    #[error("the event stream is damaged: {what}")]
    BadEvent { what: String },
}

/// What a write carries.
pub(crate) struct Upload {
    pub(crate) content: reqwest::Body,
    /// Bytes, where `content` does not know them itself.
    pub(crate) length: Option<u64>,
}

/// A server and the right to ask it.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: String,
    token: String,
}

impl Client {
    pub(crate) fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("bailey/", env!("CARGO_PKG_VERSION")));
        let unreachable = |source| ClientError::Unreachable { server: config.server.clone(), source };
        let http = builder.build().map_err(unreachable)?;
        Ok(Self { http, server: config.server, token: config.token })
    }

    /// A request that needs no body and answers JSON.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, ClientError> {
        decode(self.send(self.request(Method::GET, path).query(query)).await?).await
    }

    /// `POST` of a JSON body, answered by JSON.
    pub(crate) async fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ClientError> {
        decode(self.send(self.request(Method::POST, path).json(body)).await?).await
    }

    /// `POST` without a body, whose answer's content does not matter.
    pub(crate) async fn tell(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::POST, path)).await.map(drop)
    }

    /// `POST` of a JSON body, answered by events.
    pub(crate) async fn post_events<B: Serialize>(&self, path: &str, body: &B) -> Result<Events, ClientError> {
        let request = self.request(Method::POST, path).header("accept", "application/x-ndjson").json(body);
        Ok(Events::new(self.send(request).await?, 0))
    }

    /// Events after the one numbered `after`.
    pub(crate) async fn get_events(&self, path: &str, after: u64) -> Result<Events, ClientError> {
        let request = self.request(Method::GET, path).query(&[("after", after.to_string())]);
        Ok(Events::new(self.send(request.header("accept", "application/x-ndjson")).await?, after))
    }

    /// The raw answer of a read.
    pub(crate) async fn read(&self, path: &str, query: &[(&str, String)]) -> Result<Response, ClientError> {
        self.send(self.request(Method::GET, path).query(query)).await
    }

    /// A write or delete, answered by JSON.
    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        if_match: Option<&str>,
        body: Upload,
    ) -> Result<T, ClientError> {
        let mut request = self.request(method, path).query(query).body(body.content);
        if let Some(length) = body.length {
            request = request.header("content-length", length);
        }
        if let Some(id) = if_match {
            request = request.header("if-match", format!("\"{id}\""));
        }
        decode(self.send(request).await?).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.server)).bearer_auth(&self.token)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let sent = request.send().await;
        let response =
            sent.map_err(|e| ClientError::Unreachable { server: self.server.clone(), source: e.without_url() })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = collect(response).await?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(error) => Err(ClientError::Refused(Box::new(error))),
            Err(_not_ours) => Err(ClientError::Strange { status, text: excerpt(&body) }),
        }
    }
}

/// The API's path of a tree path: every name percent-encoded on its own.
pub(crate) fn tree_path(front: &str, path: &TreePath) -> String {
    let mut text = format!("/v1/{front}");
    for byte in path.as_str().bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The whole body of an answer, within the limit.
pub(crate) async fn collect(mut response: Response) -> Result<Bytes, ClientError> {
    let mut all = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if all.len() + chunk.len() > MAX_ANSWER {
            return Err(ClientError::TooLarge);
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.into())
}

async fn decode<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let status = response.status().as_u16();
    let body = collect(response).await?;
    serde_json::from_slice(&body).map_err(|_not_ours| ClientError::Strange { status, text: excerpt(&body) })
}

pub(crate) fn broken(source: reqwest::Error) -> ClientError {
    ClientError::Broken { source: source.without_url() }
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_means_something_in_a_url_is_encoded() {
        let path: TreePath = "/tenants/acme/a b/é#?%2f;x\ny".parse().unwrap();
        assert_eq!(tree_path("tree", &path), "/v1/tree/tenants/acme/a%20b/%C3%A9%23%3F%252f%3Bx%0Ay");
    }
}
