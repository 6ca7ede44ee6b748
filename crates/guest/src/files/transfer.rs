//! `/files`: bytes of one file down, bytes of files up.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, BodyStream};
use hyper::body::Incoming;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::path::{open, parent_made, resolve};
use super::query;
use crate::agent::connect::{Answer, AnswerBody, RpcError, json_answer};
use crate::agent::http::Caller;
use crate::exec::identity::User;

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// Most files of one upload.
const MAX_PARTS: usize = 1024;

/// A transfer that cannot be done.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("`{1}`: {0}")]
    File(Errno, String),
    #[error("`{0}` is not a regular file")]
    NotRegular(String),
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Path(RpcError),
}

impl TransferError {
    fn into_answer(self) -> Answer {
        let status = match &self {
            Self::File(Errno::NOENT, _) => StatusCode::NOT_FOUND,
            Self::File(Errno::NOSPC | Errno::DQUOT, _) => StatusCode::INSUFFICIENT_STORAGE,
            Self::File(Errno::ACCESS | Errno::PERM | Errno::ROFS, _) => StatusCode::FORBIDDEN,
            Self::File(Errno::ISDIR | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::NAMETOOLONG, _)
            | Self::File(Errno::INVAL, _)
            | Self::NotRegular(_)
            | Self::Invalid(_)
            | Self::Path(_) => StatusCode::BAD_REQUEST,
            Self::File(..) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut answer = json_answer(&json!({ "code": status.as_u16(), "message": self.to_string() }));
        *answer.status_mut() = status;
        answer
    }
}

fn user(parts: &Parts, caller: Caller) -> Result<User, RpcError> {
    query::value(parts.uri.query(), "username").map_or(Ok(caller.user), |name| User::by_name(&name))
}

/// Answers with a file's bytes.
///
/// # Errors
/// When the user is unknown.
pub fn download(parts: &Parts, caller: Caller) -> Result<Answer, RpcError> {
    let path = query::value(parts.uri.query(), "path").unwrap_or_default();
    let path = resolve(&path, user(parts, caller)?)?;
    Ok(send(&path, parts.headers.get(header::RANGE)).unwrap_or_else(TransferError::into_answer))
}

fn send(path: &str, range: Option<&HeaderValue>) -> Result<Answer, TransferError> {
    let failed = |errno| TransferError::File(errno, path.to_owned());
    // Without waiting: a pipe without a writer would hold up the whole sandbox.
    let file = open(None, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).map_err(failed)?;
    let stat = regular(&file, path)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut left = u64::MAX;
    let mut status = StatusCode::OK;
    let mut content_range = None;
    match range.and_then(|value| value.to_str().ok()).map_or(Range::Whole, |text| Range::parse(text, size)) {
        Range::Whole => {}
        Range::Part(first, last) => {
            rustix::fs::seek(&file, SeekFrom::Start(first)).map_err(failed)?;
            left = last - first + 1;
            status = StatusCode::PARTIAL_CONTENT;
            content_range = Some(format!("bytes {first}-{last}/{size}"));
        }
        Range::Outside => {
            left = 0;
            status = StatusCode::RANGE_NOT_SATISFIABLE;
            content_range = Some(format!("bytes */{size}"));
        }
    }
    // No length is promised for a whole file: files in `/proc` do not know theirs, others may grow.
    let body: AnswerBody = Box::pin(FileBody { file, left });
    let mut answer = Answer::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(Ok(value)) = content_range.map(HeaderValue::try_from) {
        headers.insert(header::CONTENT_RANGE, value);
    }
    Ok(answer)
}

fn regular(file: &OwnedFd, path: &str) -> Result<Stat, TransferError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| TransferError::File(errno, path.to_owned()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(TransferError::NotRegular(path.to_owned())),
    }
}

/// What a `Range` header asks for.
#[derive(Debug, PartialEq, Eq)]
enum Range {
    Whole,
    /// First and last byte.
    Part(u64, u64),
    Outside,
}

impl Range {
    /// Anything but one plain range means the whole file, as HTTP allows.
    fn parse(text: &str, size: u64) -> Self {
        let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
            return Self::Whole;
        };
        let number = |text: &str| text.trim().parse::<u64>().ok();
        match (first.trim(), last.trim()) {
            ("", count) => match number(count) {
                Some(0) => Self::Outside,
                Some(_) if size == 0 => Self::Outside,
                Some(count) => Self::Part(size.saturating_sub(count), size - 1),
                None => Self::Whole,
            },
            (first, last) => match (number(first), if last.is_empty() { Some(u64::MAX) } else { number(last) }) {
                (Some(first), Some(last)) if first > last => Self::Whole,
                (Some(first), Some(_)) if first >= size => Self::Outside,
                (Some(first), Some(last)) => Self::Part(first, last.min(size - 1)),
                _ => Self::Whole,
            },
        }
    }
}

/// A file, read as its bytes are taken.
struct FileBody {
    file: OwnedFd,
    left: u64,
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(CHUNK);
        if most == 0 {
            return Poll::Ready(None);
        }
        let mut buffer = vec![0; most];
        match rustix::io::read(&self.file, &mut *buffer) {
            Ok(0) => Poll::Ready(None),
            Ok(read) => {
                buffer.truncate(read);
                self.left = self.left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
                Poll::Ready(Some(Ok(Frame::data(buffer.into()))))
            }
            Err(error) => Poll::Ready(Some(Err(error.into()))),
        }
    }
}

/// Writes files from a form's parts or from the body as it is.
pub async fn upload(parts: &Parts, caller: Caller, body: Incoming) -> Answer {
    let user = match user(parts, caller) {
        Ok(user) => user,
        Err(error) => return error.into_answer(),
    };
    match receive(parts, user, body).await {
        Ok(written) => json_answer(&written),
        Err(error) => error.into_answer(),
    }
}

async fn receive(parts: &Parts, user: User, mut body: Incoming) -> Result<Vec<Value>, TransferError> {
    let invalid = |text: &str| TransferError::Invalid(text.to_owned());
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let path = query::value(parts.uri.query(), "path").filter(|path| !path.is_empty());
    if let Some(encoding) = parts.headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Err(TransferError::Invalid(format!("content encoding `{encoding}` is not supported")));
    }
    if content_type.starts_with("application/octet-stream") {
        let path = path.ok_or_else(|| invalid("name the file by `path`"))?;
        let mut file = Upload::new(&path, user)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| TransferError::Invalid(format!("read the request: {error}")))?;
            file.write(frame.data_ref().map_or(&[], |bytes| bytes))?;
        }
        return Ok(vec![file.finish()]);
    }
    let boundary = multer::parse_boundary(content_type)
        .map_err(|_other| TransferError::Invalid(format!("content type `{content_type}` is not supported")))?;
    let frames = BodyStream::new(body).map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()));
    let mut form = multer::Multipart::new(frames, boundary);
    let broken = |error: multer::Error| TransferError::Invalid(format!("read the form: {error}"));
    let mut written: Vec<Value> = Vec::new();
    let mut paths: Vec<String> = Vec::new();
    while let Some(mut part) = form.next_field().await.map_err(broken)? {
        if part.name() != Some("file") {
            continue;
        }
        let target = path.clone().or_else(|| part.file_name().map(str::to_owned));
        let target = target.ok_or_else(|| invalid("name the file by `path` or by the part's file name"))?;
        if paths.contains(&target) || paths.len() >= MAX_PARTS {
            return Err(TransferError::Invalid(format!("`{target}` is there twice, or there are too many files")));
        }
        let mut file = Upload::new(&target, user)?;
        while let Some(chunk) = part.chunk().await.map_err(broken)? {
            file.write(&chunk)?;
        }
        paths.push(target);
        written.push(file.finish());
    }
    if written.is_empty() {
        return Err(invalid("the form has no part `file`"));
    }
    Ok(written)
}

/// A file that is being written.
struct Upload {
    path: String,
    file: OwnedFd,
}

impl Upload {
    fn new(path: &str, user: User) -> Result<Self, TransferError> {
        let path = resolve(path, user).map_err(TransferError::Path)?;
        let failed = |errno| TransferError::File(errno, path.clone());
        let (folder, name) = parent_made(&path, user).map_err(failed)?;
        // Truncated only once it is known to be a file.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let file = open(Some(&folder), name, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        regular(&file, &path)?;
        let (uid, gid) = user.ids();
        rustix::fs::fchown(&file, Some(uid), Some(gid)).map_err(failed)?;
        rustix::fs::ftruncate(&file, 0).map_err(failed)?;
        Ok(Self { path, file })
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), TransferError> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.file, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(TransferError::File(error, self.path.clone())),
            }
        }
        Ok(())
    }

    fn finish(self) -> Value {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        json!({ "name": name, "path": self.path, "type": "file" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (text, wanted) in [
            ("bytes=0-0", Range::Part(0, 0)),
            ("bytes=2-", Range::Part(2, 9)),
            ("bytes=2-99", Range::Part(2, 9)),
            ("bytes=-3", Range::Part(7, 9)),
            ("bytes=-99", Range::Part(0, 9)),
            ("bytes=10-", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=5-2", Range::Whole),
            ("bytes=0-1,4-5", Range::Whole),
            ("lines=1-2", Range::Whole),
            ("bytes=99999999999999999999-", Range::Whole),
        ] {
            assert_eq!(Range::parse(text, 10), wanted, "{text}");
        }
        assert_eq!(Range::parse("bytes=0-", 0), Range::Outside);
    }
}
