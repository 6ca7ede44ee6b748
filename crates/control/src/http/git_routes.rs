//! `/git/…`: smart HTTP for stock git. Nothing of the dumb protocol, and nothing of LFS.

use std::io::{self, Read};

use axum::body::Body;
use bailey_protocol::git::GitProtocol;
use bailey_protocol::path::TreePath;
use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::stream::{self, Stream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::{Argument, Asked, Query, Takes};
use super::cut::cut_answer;
use super::route::{self, Route};
use super::tree_path;
use super::upload::Upload;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::git::advertise::Service;
use crate::git::fetch::MAX_REQUEST;
use crate::ops::git::{self, Fetched, GitStream};
use crate::ops::git_push::{self, Source};
use crate::pipe::{PipeReader, pipe};

/// What all routes begin with.
pub(super) const PREFIX: &str = "/git/";
const PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
const HINT: &str = "Use `git clone http(s)://HOST/git/TENANT.git` or `…/git/TENANT/users/USER.git`.";

/// The routes, for the table.
pub(super) fn routes() -> Vec<Route> {
    const ADVERTISED: &[&str] =
        &["application/x-git-upload-pack-advertisement", "application/x-git-receive-pack-advertisement"];
    const ASKED: &[&str] = &["application/x-git-upload-pack-request", "application/x-git-receive-pack-request"];
    const ANSWERED: &[&str] = &["application/x-git-upload-pack-result", "application/x-git-receive-pack-result"];
    vec![
        route::get("/git/{*path}", "git_advertise", "What a git client may fetch or push to.", advertise)
            .gives_bytes(200, ADVERTISED)
            .errors(&[429]),
        route::post("/git/{*path}", "git_exchange", "Serves a git client's fetch or push.", exchange)
            .takes_bytes(ASKED)
            .gives_bytes(200, ANSWERED)
            .errors(&[409, 410, 415, 429, 507]),
    ]
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServiceQuery {
    /// `git-upload-pack` or `git-receive-pack`.
    service: Option<String>,
}

/// `GET /git/{repository}.git/info/refs?service=…`
async fn advertise(
    control: Control,
    caller: Caller,
    uri: Uri,
    Query(query): Query<ServiceQuery>,
    protocol: GitProtocol,
) -> Result<Response<Body>, ApiError> {
    let (repo, "info/refs") = address(&uri)? else { return Err(no_route()) };
    let service = match query.service.as_deref() {
        Some("git-upload-pack") => Service::Fetch,
        Some("git-receive-pack") => Service::Push,
        Some(_) => return Err(ApiError::invalid("invalid_service", "there is no such git service", HINT)),
        None => {
            return Err(ApiError::invalid("dumb_protocol", "the dumb protocol is not served", "Use a current git."));
        }
    };
    let body = git::advertise(&control, &caller, &repo, service, protocol).await?;
    Ok(answer(Body::from(body), &format!("application/x-{}-advertisement", service.name())))
}

/// `POST /git/{repository}.git/git-upload-pack` and `…/git-receive-pack`
async fn exchange(
    control: Control,
    caller: Caller,
    uri: Uri,
    protocol: GitProtocol,
    encoded: Encoded,
    upload: Upload,
) -> Result<Response<Body>, ApiError> {
    let (repo, service) = match address(&uri)? {
        (repo, "git-upload-pack") => (repo, Service::Fetch),
        (repo, "git-receive-pack") => (repo, Service::Push),
        _ => return Err(no_route()),
    };
    let gzip = encoded.check(service)?;
    let (writer, reader) = pipe();
    let body = match service {
        Service::Fetch => {
            let reading = git::read_whole(&control, &caller, move || read(source(reader, gzip)));
            let asked = upload.feed(writer, reading).await?;
            match git::fetch(&control, &caller, &repo, protocol, asked).await? {
                Fetched::Whole(bytes) => Body::from(bytes),
                Fetched::Stream(stream, watched) => {
                    let answer =
                        answer(Body::from_stream(pieces(stream)), &format!("application/x-{}-result", service.name()));
                    let request = caller.request.clone();
                    let until = async { ApiError::from(watched.until_unreadable(control, caller).await) };
                    return Ok(cut_answer(answer, &request, until));
                }
            }
        }
        Service::Push => {
            let pushing = git_push::push(&control, &caller, &repo, source(reader, gzip));
            Body::from(upload.feed(writer, pushing).await?)
        }
    };
    Ok(answer(body, &format!("application/x-{}-result", service.name())))
}

fn pieces(stream: GitStream) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold(stream, |mut stream| async {
        let piece = stream.next().await?;
        Some((piece, stream))
    })
}

/// The repository's root in the tree, and what follows it in the URL.
pub(super) fn address(uri: &Uri) -> Result<(TreePath, &str), ApiError> {
    let rest = uri.path().strip_prefix(PREFIX).ok_or_else(no_route)?;
    let (repo, service) = rest.split_once(".git/").ok_or_else(no_route)?;
    if service == "info/lfs" || service.starts_with("info/lfs/") {
        let message = "git LFS is not served here";
        let hint = "Keep large files in the tree itself: they are streamed, of any size.";
        return Err(ApiError::new(ErrorKind::NotFound, "lfs_not_served", message, hint));
    }
    let path = tree_path::parse(&format!("/tenants/{repo}"), "")?;
    // A repository is a whole store: nothing is below its path.
    if path.inner().is_empty() { Ok((path, service)) } else { Err(no_route()) }
}

fn no_route() -> ApiError {
    ApiError::not_found("there is no such git repository or service", HINT)
}

/// The newest version of the protocol that the client names.
fn protocol(headers: &HeaderMap) -> GitProtocol {
    let text = headers.get(PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut versions = text.split(':').filter_map(|part| match part {
        "version=1" => Some(GitProtocol::V1),
        "version=2" => Some(GitProtocol::V2),
        _ => None,
    });
    versions.next_back().unwrap_or(GitProtocol::V0)
}

impl Argument for GitProtocol {
    fn declare(takes: &mut Takes) {
        takes.headers.push(("Git-Protocol", "The newest version of git's protocol that the client speaks."));
        takes.text_errors = true;
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(protocol(&asked.parts.headers))
    }
}

/// What a client says about the form of its body.
struct Encoded(HeaderMap);

impl Argument for Encoded {
    fn declare(takes: &mut Takes) {
        takes.headers.push(("Content-Encoding", "`gzip`, or none."));
        takes.errors.insert(415);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(Self(asked.parts.headers.clone()))
    }
}

impl Encoded {
    /// Whether it is zipped.
    ///
    /// # Errors
    /// When it is no body of this service.
    fn check(&self, service: Service) -> Result<bool, ApiError> {
        let wanted = format!("application/x-{}-request", service.name());
        if self.0.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) != Some(wanted.as_bytes()) {
            let message = format!("the body is not `{wanted}`");
            return Err(ApiError::new(ErrorKind::UnsupportedMedia, "unsupported_media_type", message, "Use git."));
        }
        is_gzip(&self.0)
    }
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, ApiError> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip" | b"x-gzip") => Ok(true),
        Some(_) => {
            let message = "the body's encoding is not known here";
            Err(ApiError::new(
                ErrorKind::UnsupportedMedia,
                "unsupported_encoding",
                message,
                "Send it plain, or as gzip.",
            ))
        }
    }
}

/// Inflated piece by piece: what becomes too large is noticed while it does.
fn source(reader: PipeReader, gzip: bool) -> Source {
    if gzip { Box::new(Gunzip::Waiting(Some(reader))) } else { Box::new(reader) }
}

/// A decoder that begins with the first read, as it reads itself when it is made.
enum Gunzip {
    Waiting(Option<PipeReader>),
    Going(Box<GzDecoder<PipeReader>>),
}

impl Read for Gunzip {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Self::Waiting(reader) = self
            && let Some(reader) = reader.take()
        {
            *self = Self::Going(Box::new(GzDecoder::new(reader)));
        }
        match self {
            Self::Going(decoder) => decoder.read(out),
            Self::Waiting(_) => Ok(0),
        }
    }
}

/// All of a small request.
fn read(source: Source) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let read = source.take(MAX_REQUEST as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        ApiError::invalid("body_broken", "the request stopped before its end", "Send the whole body.").because(error)
    })?;
    if bytes.len() > MAX_REQUEST {
        let message = format!("the request has more than {MAX_REQUEST} bytes");
        return Err(ApiError::new(ErrorKind::TooLarge, "too_large", message, "Clone anew instead."));
    }
    Ok(bytes)
}

fn answer(body: Body, kind: &str) -> Response<Body> {
    let mut response = Response::new(body);
    if let Ok(kind) = HeaderValue::from_str(kind) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_whole_stores_only() {
        for (path, expected) in [
            ("/git/acme.git/info/refs", Some(("/tenants/acme", "info/refs"))),
            ("/git/acme/users/ana.git/git-upload-pack", Some(("/tenants/acme/users/ana", "git-upload-pack"))),
            ("/git/acme/users/ana%40x.git/info/refs", Some(("/tenants/acme/users/ana@x", "info/refs"))),
            ("/git/acme/reports.git/info/refs", None),
            ("/git/acme/users/ana/x.git/info/refs", None),
            ("/git/acme/users.git/info/refs", None),
            ("/git/acme/info/refs", None),
            ("/git/.git/info/refs", None),
            ("/git/acme/../globex.git/info/refs", None),
            ("/git/acme/%2e%2e/globex.git/info/refs", None),
            ("/git/acme.git/info/lfs/objects/batch", None),
            ("/git/acme%2fusers%2fana.git/info/refs", Some(("/tenants/acme/users/ana", "info/refs"))),
        ] {
            let uri: Uri = path.parse().unwrap();
            let found = address(&uri).ok();
            assert_eq!(found.as_ref().map(|(repo, service)| (repo.as_str(), *service)), expected, "{path}");
        }
    }

    #[test]
    fn the_newest_version_is_taken() {
        for (text, expected) in [
            ("version=2", GitProtocol::V2),
            ("version=1", GitProtocol::V1),
            ("version=3", GitProtocol::V0),
            ("x:version=2:y", GitProtocol::V2),
            ("", GitProtocol::V0),
        ] {
            let headers: HeaderMap = [(PROTOCOL, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(protocol(&headers), expected, "{text}");
        }
    }
}
