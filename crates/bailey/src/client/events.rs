//! A run's events, line by line, as they come. Ends only with the run's ending: everything else is an error.

use bailey_protocol::api::{OutputData, RunEvent};
use bailey_protocol::id::RunId;
use bailey_protocol::limits::MAX_EVENT_LINE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Response;

use super::{ClientError, broken, refuse_cut_off, warnings};

/// Reads events and checks that none is missing.
pub(crate) struct Events {
    response: Response,
    run: Option<RunId>,
    warnings: Vec<String>,
    buffer: Vec<u8>,
    /// Bytes of `buffer` already searched for a line's end.
    searched: usize,
    seq: u64,
}

impl Events {
    pub(super) fn new(response: Response, after: u64) -> Self {
        let run = response.headers().get("bailey-run").and_then(|id| id.to_str().ok()?.parse().ok());
        let warnings = warnings(&response);
        Self { response, run, warnings, buffer: Vec::new(), searched: 0, seq: after }
    }

    /// The run, as the answer's head names it.
    pub(crate) fn run(&self) -> Option<&RunId> {
        self.run.as_ref()
    }

    /// What the answer's head warns of.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The number of the last event that was read.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The next event. The stream's end is [`ClientError::NoEnding`]: callers stop at `ended` or `failed` themselves.
    ///
    /// CANCEL: safe; what was read stays in the buffer.
    pub(crate) async fn next(&mut self) -> Result<RunEvent, ClientError> {
        loop {
            if let Some(line) = self.line()? {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return self.parse(&line);
            }
            match self.response.chunk().await.map_err(broken)? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Err(ClientError::NoEnding),
            }
        }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(end) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.searched > MAX_EVENT_LINE {
                return Err(ClientError::BadEvent { what: format!("a line has more than {MAX_EVENT_LINE} bytes") });
            }
            return Ok(None);
        };
        let rest = self.buffer.split_off(self.searched + end + 1);
        self.searched = 0;
        Ok(Some(std::mem::replace(&mut self.buffer, rest)))
    }

    fn parse(&mut self, line: &[u8]) -> Result<RunEvent, ClientError> {
        refuse_cut_off(line)?;
        let event: RunEvent =
            serde_json::from_slice(line).map_err(|e| ClientError::BadEvent { what: e.to_string() })?;
        if event.seq != self.seq + 1 {
            let what = format!("event {} came after event {}", event.seq, self.seq);
            return Err(ClientError::BadEvent { what });
        }
        self.seq = event.seq;
        Ok(event)
    }
}

/// The bytes of one output event.
pub(crate) fn bytes(data: OutputData) -> Result<Vec<u8>, ClientError> {
    match (data.text, data.base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|e| ClientError::BadEvent { what: format!("output is no base64: {e}") })
        }
        _ => Err(ClientError::BadEvent { what: "output is neither text nor base64".to_owned() }),
    }
}
