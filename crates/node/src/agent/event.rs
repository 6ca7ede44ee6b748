//! What a program's event stream says, out of hostile JSON.

use bailey_protocol::node::{Ending, OutputStream};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;

use super::{AgentError, Refusal};

/// Longest words of a guest that reach the log, in characters.
pub(super) const MAX_SAID: usize = 200;

/// One message of the stream, as far as it is understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The program runs.
    Start { pid: u32 },
    /// It wrote something.
    Data(OutputStream, Bytes),
    /// It is over.
    End(Ending),
    /// A sign of life, or something newer than this node.
    Other,
}

#[derive(Deserialize)]
struct Message {
    event: Option<Body>,
}

#[derive(Deserialize)]
struct Body {
    start: Option<Start>,
    data: Option<Data>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct Start {
    pid: u32,
}

#[derive(Deserialize)]
struct Data {
    stdout: Option<String>,
    stderr: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct End {
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    exited: bool,
    #[serde(default)]
    signal: Option<i32>,
    #[serde(default)]
    status: String,
}

impl Event {
    pub(super) fn parse(message: &[u8]) -> Result<Self, AgentError> {
        let message: Message =
            serde_json::from_slice(message).map_err(|_cause| AgentError::Broken("an event is no message"))?;
        let Some(body) = message.event else { return Ok(Self::Other) };
        match body {
            Body { start: Some(start), data: None, end: None } => Ok(Self::Start { pid: start.pid }),
            Body { start: None, data: Some(data), end: None } => data.parse(),
            Body { start: None, data: None, end: Some(end) } => end.parse().map(Self::End),
            Body { start: None, data: None, end: None } => Ok(Self::Other),
            _ => Err(AgentError::Broken("an event is several at once")),
        }
    }
}

impl Data {
    fn parse(self) -> Result<Event, AgentError> {
        let (stream, text) = match (self.stdout, self.stderr) {
            (Some(text), None) => (OutputStream::Stdout, text),
            (None, Some(text)) => (OutputStream::Stderr, text),
            (None, None) => return Ok(Event::Other),
            (Some(_), Some(_)) => return Err(AgentError::Broken("output is of two streams at once")),
        };
        let bytes = STANDARD.decode(text).map_err(|_cause| AgentError::Broken("output is not base64"))?;
        Ok(Event::Data(stream, Bytes::from(bytes)))
    }
}

impl End {
    fn parse(self) -> Result<Ending, AgentError> {
        if self.exited {
            return match self.exit_code {
                code @ 0..=255 => Ok(Ending::Exited { code }),
                _ => Err(AgentError::Broken("an exit code is out of range")),
            };
        }
        match self.signal.or_else(|| named(&self.status)) {
            Some(signal @ 1..=64) => Ok(Ending::Signaled { signal }),
            _ => Err(AgentError::Broken("an end is neither an exit nor a signal")),
        }
    }
}

/// The signal behind a status such as `signal: killed`.
fn named(status: &str) -> Option<i32> {
    let name = status.strip_prefix("signal: ")?.trim_end_matches(" (core dumped)");
    Some(match name {
        "hangup" => 1,
        "interrupt" => 2,
        "quit" => 3,
        "illegal instruction" => 4,
        "trace/breakpoint trap" => 5,
        "aborted" => 6,
        "bus error" => 7,
        "floating point exception" => 8,
        "killed" => 9,
        "user defined signal 1" => 10,
        "segmentation fault" => 11,
        "user defined signal 2" => 12,
        "broken pipe" => 13,
        "alarm clock" => 14,
        "terminated" => 15,
        other => other.strip_prefix("signal ")?.parse().ok()?,
    })
}

#[derive(Deserialize)]
struct Trailer {
    error: Option<TrailerError>,
}

#[derive(Deserialize)]
struct TrailerError {
    code: String,
    #[serde(default)]
    message: String,
}

/// The refusal in a stream's trailer, if it is one.
pub(super) fn refusal(trailer: &[u8]) -> Result<Option<AgentError>, AgentError> {
    let trailer: Trailer =
        serde_json::from_slice(trailer).map_err(|_cause| AgentError::Broken("a trailer is no message"))?;
    Ok(trailer.error.map(|error| {
        let refusal = match error.code.as_str() {
            "not_found" => Refusal::NotFound,
            "permission_denied" => Refusal::PermissionDenied,
            "invalid_argument" => Refusal::InvalidArgument,
            "resource_exhausted" => Refusal::Exhausted,
            _ => Refusal::Other,
        };
        AgentError::Refused {
            refusal,
            said: error.message.chars().take(MAX_SAID).flat_map(char::escape_debug).collect(),
        }
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Event, AgentError> {
        Event::parse(text.as_bytes())
    }

    #[test]
    fn events_are_read_and_unknown_ones_passed_over() {
        assert_eq!(parse(r#"{"event":{"start":{"pid":7,"x":1}}}"#).unwrap(), Event::Start { pid: 7 });
        let data = parse(r#"{"event":{"data":{"stderr":"AP8="}}}"#).unwrap();
        assert_eq!(data, Event::Data(OutputStream::Stderr, Bytes::from_static(&[0, 255])));
        let end = |text: &str| parse(&format!(r#"{{"event":{{"end":{text}}}}}"#));
        assert_eq!(end(r#"{"exited":true,"status":"exit status 0"}"#).unwrap(), Event::End(Ending::Exited { code: 0 }));
        assert_eq!(end(r#"{"exitCode":3,"exited":true}"#).unwrap(), Event::End(Ending::Exited { code: 3 }));
        assert_eq!(end(r#"{"signal":9}"#).unwrap(), Event::End(Ending::Signaled { signal: 9 }));
        let text = r#"{"exitCode":-1,"status":"signal: segmentation fault (core dumped)"}"#;
        assert_eq!(end(text).unwrap(), Event::End(Ending::Signaled { signal: 11 }));
        for other in [r#"{"event":{"keepalive":{}}}"#, r#"{"event":{"new":1}}"#, "{}", r#"{"later":[]}"#] {
            assert_eq!(parse(other).unwrap(), Event::Other, "{other}");
        }
    }

    #[test]
    fn m08_events_that_cannot_be_are_refused() {
        for bad in [
            "",
            "[]",
            "{",
            r#"{"event":{"start":{"pid":-1}}}"#,
            r#"{"event":{"start":{"pid":1},"end":{"exited":true}}}"#,
            r#"{"event":{"data":{"stdout":"%%%"}}}"#,
            r#"{"event":{"data":{"stdout":"","stderr":""}}}"#,
            r#"{"event":{"end":{}}}"#,
            r#"{"event":{"end":{"exited":true,"exitCode":4096}}}"#,
            r#"{"event":{"end":{"signal":4096}}}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))).is_err(), "deep nesting");
    }

    proptest! {
        #[test]
        fn m08_no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(Event::parse(&bytes));
            drop(refusal(&bytes));
        }
    }
}
