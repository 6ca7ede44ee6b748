//! The HTTP API as functions. One per use of it; all of them refuse what the server was not meant to send.

pub(crate) mod events;

use std::time::Duration;

use bailey_protocol::api::{CutOff, ErrorBody};
use bailey_protocol::path::TreePath;
use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::ClientConfig;

pub(crate) use events::Events;

/// Largest JSON answer that is read into memory.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How the last line of a stream begins that breaks off.
const CUT_OFF: &[u8] = b"{\"cut_off\":";
/// A silent connection is probed this often: a run may say nothing for long, a server that is gone may not.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    #[error("cannot reach `{server}`: {why}")]
    Unreachable { server: String, why: String },
    #[error("the server answered {status} with what is no answer of Bailey's: {text}")]
    Strange { status: u16, text: String },
    #[error("the answer broke off: {source}")]
    Broken { source: reqwest::Error },
    #[error("the answer was broken off: {}", .0.message)]
    CutOff(Box<ErrorBody>),
    #[error("the answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
    #[error("the event stream broke off before the run's ending")]
    NoEnding,
    #[error("the event stream is damaged: {what}")]
    BadEvent { what: String },
}

/// Looks whether a line of a stream is its last: why it breaks off.
///
/// # Errors
/// When it is.
pub(crate) fn refuse_cut_off(line: &[u8]) -> Result<(), ClientError> {
    if !line.starts_with(CUT_OFF) {
        return Ok(());
    }
    let CutOff { cut_off } =
        serde_json::from_slice(line).map_err(|error| ClientError::BadEvent { what: error.to_string() })?;
    Err(ClientError::CutOff(Box::new(cut_off)))
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
    /// What named the token.
    token_from: String,
}

impl ClientError {
    /// What to do next, where it is not the server who says it.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => {
                Some("Start `bailey serve` there, or name another server with `--server` or BAILEY_URL.")
            }
            Self::Strange { .. } => Some("Look whether `--server` or BAILEY_URL names a Bailey server."),
            Self::Broken { .. } | Self::TooLarge | Self::NoEnding | Self::BadEvent { .. } => None,
            Self::Refused(_) | Self::CutOff(_) => None,
        }
    }
}

impl Client {
    pub(crate) fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("bailey/", env!("CARGO_PKG_VERSION")));
        let http = builder.build().map_err(|error| unreachable(&config.server, &error))?;
        let ClientConfig { server, token, token_from } = config;
        Ok(Self { http, server, token, token_from })
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

    /// A request with a JSON body or none, answered by JSON.
    pub(crate) async fn json<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<T, ClientError> {
        let request = self.request(method, path);
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        decode(self.send(request).await?).await
    }

    /// `DELETE`, whose answer's content does not matter.
    pub(crate) async fn remove(&self, path: &str, query: &[(&str, String)]) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, path).query(query)).await.map(drop)
    }

    /// The credential that it asks with.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// `POST` without a body, whose answer's content does not matter.
    pub(crate) async fn tell(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::POST, path)).await.map(drop)
    }

    /// `POST` of a JSON body, answered by JSON and by what the head of the answer warns of.
    pub(crate) async fn post_warned<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<(T, Vec<String>), ClientError> {
        let response = self.send(self.request(Method::POST, path).json(body)).await?;
        let warnings = warnings(&response);
        Ok((decode(response).await?, warnings))
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

    /// The raw answer of a read of so many bytes from the first on, to the end where none are named.
    pub(crate) async fn read_part(
        &self,
        path: &str,
        query: &[(&str, String)],
        (start, length): (u64, u64),
    ) -> Result<Response, ClientError> {
        let last = start.saturating_add(length.saturating_sub(1));
        let range = if length == 0 { format!("bytes={start}-") } else { format!("bytes={start}-{last}") };
        self.send(self.request(Method::GET, path).query(query).header("range", range)).await
    }

    /// The raw answer of a read, of that media type.
    pub(crate) async fn read_as(
        &self,
        path: &str,
        query: &[(&str, String)],
        accept: &str,
    ) -> Result<Response, ClientError> {
        self.send(self.request(Method::GET, path).query(query).header("accept", accept)).await
    }

    /// A JSON body on a condition, answered by JSON.
    pub(crate) async fn send_json<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        if_match: Option<&str>,
        body: &B,
    ) -> Result<T, ClientError> {
        let mut request = self.request(method, path).query(query).json(body);
        if let Some(id) = if_match {
            request = request.header("if-match", format!("\"{id}\""));
        }
        decode(self.send(request).await?).await
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
        let response = request.send().await.map_err(|error| unreachable(&self.server, &error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = collect(response).await?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(mut error) => {
                if status == StatusCode::UNAUTHORIZED {
                    error.hint.push_str(&format!(" The one sent is from {}.", self.token_from));
                }
                Err(ClientError::Refused(Box::new(error)))
            }
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

/// One segment of a path, percent-encoded.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What the head of an answer warns of.
fn warnings(response: &Response) -> Vec<String> {
    let values = response.headers().get_all("bailey-warning").into_iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
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

/// An answer that is JSON.
pub(crate) async fn decode<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let status = response.status().as_u16();
    let body = collect(response).await?;
    serde_json::from_slice(&body).map_err(|_not_ours| ClientError::Strange { status, text: excerpt(&body) })
}

pub(crate) fn broken(source: reqwest::Error) -> ClientError {
    ClientError::Broken { source: source.without_url() }
}

fn unreachable(server: &str, error: &reqwest::Error) -> ClientError {
    // The last cause says it: those before name the layers that it came through.
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    ClientError::Unreachable { server: shown(server), why: cause.to_string() }
}

/// An address without what may be a credential in it.
fn shown(server: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(server) else { return "an address that is none".to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    // Only an address without a host has no place for either.
    if url.set_username("").and_then(|()| url.set_password(None)).is_err() {
        return "an address without a host".to_owned();
    }
    url.as_str().trim_end_matches('/').to_owned()
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_is_told_with_an_address() {
        for address in ["http://ana:secret@host:1", "http://host:1/?token=secret", "http://secret@host:1/#secret"] {
            assert_eq!(shown(address), "http://host:1");
        }
        assert!(!shown("secret").contains("secret") && !shown("mailto:secret@x").contains("secret"));
    }

    #[test]
    fn every_byte_that_means_something_in_a_url_is_encoded() {
        let path: TreePath = "/tenants/acme/a b/é#?%2f;x\ny".parse().unwrap();
        assert_eq!(tree_path("tree", &path), "/v1/tree/tenants/acme/a%20b/%C3%A9%23%3F%252f%3Bx%0Ay");
    }
}
