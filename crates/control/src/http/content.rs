//! A file's content as an answer: whole or one range, in pieces, and never as something a browser would run.

use std::io::{Read, Seek, SeekFrom};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use bailey_tree::archive::Format;

use super::arguments::{Argument, Asked, Takes};
use super::tree_routes::insert_version;
use super::{archives, conditions};
use crate::api_error::{ApiError, ErrorKind};
use crate::ops::tree::{FileFound, FileKind};
use crate::threads::Threads;

/// Bytes read at once.
const PIECE: usize = 128 * 1024;

/// The part of a file that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Range { first: u64, last: u64 },
    Outside,
}

/// What a reader says about the form of the content.
pub(super) struct Reading(HeaderMap);

impl Argument for Reading {
    fn declare(takes: &mut Takes) {
        takes.headers.push(("Range", "`bytes=FIRST-LAST`: one part of a file."));
        takes.headers.push(("If-Range", "A tag: the part only if the file is still that, else the whole."));
        takes.headers.push(("If-None-Match", "Tags that the reader has: 304 if one is what is there."));
        takes.errors.insert(416);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(Self(asked.parts.headers.clone()))
    }
}

impl Reading {
    /// The archive that it asks for, if any.
    pub(super) fn archive(&self) -> Option<Format> {
        archives::wanted(&self.0)
    }
}

/// Answers with `file`, as its condition and range headers ask.
///
/// # Errors
/// When the range lies outside, or the store cannot be read.
pub(super) fn answer(
    threads: Threads,
    file: FileFound,
    Reading(headers): &Reading,
) -> Result<Response<Body>, ApiError> {
    let etag = conditions::tag(&file.id)?;
    let size = file.size;
    let mut response = Response::new(Body::empty());
    describe(response.headers_mut(), &file, &etag);
    if conditions::already_has(headers, &file.id) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let part = match headers.get(header::IF_RANGE) {
        Some(wanted) if *wanted != etag => Part::Whole,
        Some(_) | None => part(headers, size),
    };
    let (first, length) = match part {
        Part::Whole => (0, size),
        Part::Range { first, last } => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = HeaderValue::from_str(&format!("bytes {first}-{last}/{size}")).map_err(ApiError::internal)?;
            response.headers_mut().insert(header::CONTENT_RANGE, range);
            (first, last - first + 1)
        }
        Part::Outside => {
            let message = format!("the file has {size} bytes");
            let hint = "Ask for a range within the file.";
            return Err(ApiError::new(ErrorKind::RangeUnsatisfiable, "range_outside", message, hint));
        }
    };
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    *response.body_mut() = pieces(threads, file.content, first, length);
    Ok(response)
}

fn describe(headers: &mut HeaderMap, file: &FileFound, etag: &HeaderValue) {
    headers.insert(header::ETAG, etag.clone());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // No file name: one would have to be quoted, and the URL has it already.
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    let kind = match file.kind {
        FileKind::Plain => "file",
        FileKind::Executable => "executable",
        FileKind::Symlink => "symlink",
    };
    headers.insert("bailey-kind", HeaderValue::from_static(kind));
    insert_version(headers, &file.version);
}

/// One range is served; a list of ranges, or what is no range at all, is answered with the whole, as HTTP allows.
fn part(headers: &HeaderMap, size: u64) -> Part {
    let spec = headers.get(header::RANGE).and_then(|value| value.to_str().ok()?.trim().strip_prefix("bytes="));
    let Some((first, last)) = spec.and_then(|spec| spec.split_once('-')) else { return Part::Whole };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim(), last.trim()) {
        ("", length) => match number(length) {
            None => Part::Whole,
            Some(length) if length == 0 || size == 0 => Part::Outside,
            Some(length) => Part::Range { first: size.saturating_sub(length), last: size - 1 },
        },
        (first, "") => match number(first) {
            None => Part::Whole,
            Some(first) if first >= size => Part::Outside,
            Some(first) => Part::Range { first, last: size - 1 },
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first > last => Part::Whole,
            (Some(first), Some(_)) if first >= size => Part::Outside,
            (Some(first), Some(last)) => Part::Range { first, last: last.min(size - 1) },
            (None, _) | (_, None) => Part::Whole,
        },
    }
}

/// Reads `length` bytes from `first` on. Each piece is one short visit to a blocking thread, so that a slow client
/// holds none.
fn pieces(threads: Threads, content: bailey_tree::Blob, first: u64, length: u64) -> Body {
    let start = Some(first);
    Body::from_stream(stream::try_unfold((content, start, length), move |(mut content, seek, left)| {
        let threads = threads.clone();
        async move {
            if left == 0 {
                return Ok::<_, std::io::Error>(None);
            }
            let read = threads.spawn(move || {
                if let Some(first) = seek {
                    content.seek(SeekFrom::Start(first))?;
                }
                let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
                content.read_exact(&mut piece)?;
                Ok::<_, std::io::Error>((Bytes::from(piece), content))
            });
            let (piece, content) = read.await.map_err(std::io::Error::other)??;
            let left = left - piece.len() as u64;
            Ok(Some((piece, (content, None, left))))
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_http_says() {
        let range = |first, last| Part::Range { first, last };
        for (spec, expected) in [
            ("bytes=0-0", range(0, 0)),
            ("bytes=2-4", range(2, 4)),
            ("bytes=2-", range(2, 9)),
            ("bytes=-3", range(7, 9)),
            ("bytes=-30", range(0, 9)),
            ("bytes=5-100", range(5, 9)),
            ("bytes=10-", Part::Outside),
            ("bytes=10-11", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=4-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=0-18446744073709551616", Part::Whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, HeaderValue::from_static(spec));
            assert_eq!(part(&headers, 10), expected, "{spec}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=-5"));
        assert_eq!(part(&headers, 0), Part::Outside);
    }
}
