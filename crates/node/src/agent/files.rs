//! Files that a run brings along, written before its program starts.

use bailey_protocol::node::SessionFile;
use http::{Method, StatusCode, Uri};

use super::{Agent, AgentError, Refusal, said, whole};

impl Agent {
    /// Writes a file that belongs to the program's user; missing folders on the way are made and belong to it, too.
    ///
    /// # Errors
    /// [`AgentError::Refused`] when it cannot be there, else when the agent is broken.
    pub async fn write_file(&mut self, file: &SessionFile) -> Result<(), AgentError> {
        let mut target = "/files?username=user&path=".to_owned();
        for byte in file.at.as_str().bytes() {
            target.push_str(&format!("%{byte:02x}"));
        }
        let target = Uri::try_from(target).map_err(|_cause| AgentError::Broken("a file whose path is none"))?;
        let answer = self.send_to(Method::POST, target, "application/octet-stream", file.content.clone()).await?;
        let status = answer.status();
        let body = whole(answer).await?;
        let refusal = match status {
            StatusCode::OK => return Ok(()),
            StatusCode::INSUFFICIENT_STORAGE => Refusal::Exhausted,
            StatusCode::FORBIDDEN => Refusal::PermissionDenied,
            StatusCode::NOT_FOUND => Refusal::NotFound,
            StatusCode::BAD_REQUEST => Refusal::InvalidArgument,
            _ => Refusal::Other,
        };
        Err(AgentError::Refused { refusal, said: said(&body) })
    }
}
