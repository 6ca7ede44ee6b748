//! Connect's envelope: one flags byte, a big-endian length, that many bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::AgentError;

/// Largest frame in either direction.
pub(super) const MAX_FRAME: usize = 1024 * 1024;
const HEADER: usize = 5;
/// The frame ends the stream.
const END_STREAM: u8 = 0b10;

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A message.
    Message(Bytes),
    /// The trailer of the stream.
    End(Bytes),
}

/// Bytes that become frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: BytesMut,
}

impl Frames {
    /// Adds bytes as they came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, AgentError> {
        let Some((&[flags, a, b, c, d], _)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(AgentError::Broken("a frame is too large"));
        }
        if flags & !END_STREAM != 0 {
            return Err(AgentError::Broken("a frame has unknown flags"));
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let body = self.buffer.split_to(length).freeze();
        Ok(Some(if flags == END_STREAM { Frame::End(body) } else { Frame::Message(body) }))
    }
}

/// A message in its envelope.
pub(super) fn envelope(message: &[u8]) -> Result<Bytes, AgentError> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MAX_FRAME);
    let length = length.ok_or(AgentError::Broken("a request that is too large"))?;
    let mut out = BytesMut::with_capacity(HEADER + message.len());
    out.put_u8(0);
    out.put_u32(length);
    out.put_slice(message);
    Ok(out.freeze())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn m08_a_4_gib_length_is_refused_before_its_bytes_come() {
        let mut frames = Frames::default();
        frames.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert!(frames.next().is_err());
        let mut frames = Frames::default();
        frames.push(&[1, 0, 0, 0, 0]);
        assert!(frames.next().is_err(), "compression was never agreed on");
    }

    proptest! {
        #[test]
        fn frames_come_out_whole_however_they_are_cut(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            cut in 1_usize..64,
        ) {
            let mut wire = Vec::new();
            for message in &messages {
                wire.extend_from_slice(&envelope(message).unwrap());
            }
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in wire.chunks(cut) {
                frames.push(piece);
                while let Some(frame) = frames.next().unwrap() {
                    got.push(frame);
                }
            }
            let expected: Vec<Frame> = messages.into_iter().map(|m| Frame::Message(Bytes::from(m))).collect();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn m08_garbage_never_panics(wire in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut frames = Frames::default();
            frames.push(&wire);
            while let Ok(Some(_)) = frames.next() {}
        }
    }
}
