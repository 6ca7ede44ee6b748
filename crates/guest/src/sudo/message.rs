//! What shim and PID 1 say to each other. PID 1 treats every byte as hostile: any program may talk to the socket.
//!
//! The shim sends a header of 4 bytes (length of the rest) together with four descriptors (the standard three, and
//! its working folder), then the request, then one byte for each signal to be forwarded. PID 1 answers with
//! [`Reply`]s of 5 bytes, and the text of a refusal.

use crate::exec::identity::User;

/// Largest request: arguments and environment have a limit of their own below it.
pub const MAX_REQUEST: usize = 300 * 1024;
/// Most strings in a request.
const MAX_STRINGS: usize = 8192;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whom it runs as.
    pub user: User,
    /// The program and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=value`, added to the environment.
    pub environment: Vec<Vec<u8>>,
}

impl Request {
    /// The request's bytes: the user, the number of arguments, then all strings, each ended by a NUL.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.user == User::Root)];
        bytes.extend_from_slice(&u32::try_from(self.arguments.len()).unwrap_or(u32::MAX).to_be_bytes());
        for text in self.arguments.iter().chain(&self.environment) {
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
        bytes
    }

    /// Reads a request; `None` if it is not one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&user, rest) = bytes.split_first()?;
        let (count, strings) = rest.split_first_chunk::<4>()?;
        let strings = strings.strip_suffix(&[0])?;
        let mut strings: Vec<Vec<u8>> = strings.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
        if count == 0 || count > strings.len() || strings.len() > MAX_STRINGS || user > 1 {
            return None;
        }
        let environment = strings.split_off(count);
        Some(Self { user: if user == 1 { User::Root } else { User::User }, arguments: strings, environment })
    }
}

/// What PID 1 answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The command exited with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Signaled(i32),
    /// It was not started; a text of this length follows.
    Refused(i32),
}

impl Reply {
    /// The reply's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; 5] {
        let (tag, value) = match self {
            Self::Exited(code) => (b'E', code),
            Self::Signaled(signal) => (b'S', signal),
            Self::Refused(length) => (b'R', length),
        };
        let [a, b, c, d] = value.to_be_bytes();
        [tag, a, b, c, d]
    }

    /// Reads a reply.
    #[must_use]
    pub fn parse([tag, a, b, c, d]: [u8; 5]) -> Option<Self> {
        let value = i32::from_be_bytes([a, b, c, d]);
        match tag {
            b'E' => Some(Self::Exited(value)),
            b'S' => Some(Self::Signaled(value)),
            b'R' => Some(Self::Refused(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_round_trip() {
        let request = Request {
            user: User::Root,
            arguments: vec![b"ls".to_vec(), b"".to_vec(), b"\xff".to_vec()],
            environment: vec![b"A=".to_vec()],
        };
        assert_eq!(Request::parse(&request.encode()), Some(request));
        for bad in [&b""[..], b"\x01", b"\x01\0\0\0\0", b"\x01\0\0\0\0\0", b"\x01\0\0\0\x09a\0", b"\x02\0\0\0\x01a\0"] {
            assert_eq!(Request::parse(bad), None);
        }
        for reply in [Reply::Exited(3), Reply::Signaled(9), Reply::Refused(70)] {
            assert_eq!(Reply::parse(reply.encode()), Some(reply));
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.encode(), bytes);
            }
        }
    }
}
