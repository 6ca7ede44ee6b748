//! A program's output as events: text where it is text, base64 where it is not, byte-exact either way.

use bailey_protocol::api::{OutputData, RunEventKind};
use bailey_protocol::node::OutputStream;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Turns the chunks of both streams into events. A character that a chunk's end cut in two waits for its second half.
#[derive(Debug, Default)]
pub(crate) struct OutputEncoder {
    /// At most three bytes each.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl OutputEncoder {
    /// The event for one more chunk, if there is anything to tell yet.
    pub(crate) fn push(&mut self, stream: OutputStream, data: &[u8]) -> Option<RunEventKind> {
        let waiting = self.waiting(stream);
        let mut bytes = std::mem::take(waiting);
        bytes.extend_from_slice(data);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            *waiting = bytes.split_off(error.valid_up_to());
        }
        (!bytes.is_empty()).then(|| event(stream, bytes))
    }

    /// What still waits, when no more comes.
    pub(crate) fn finish(&mut self) -> Vec<RunEventKind> {
        [OutputStream::Stdout, OutputStream::Stderr]
            .into_iter()
            .filter_map(|stream| {
                let bytes = std::mem::take(self.waiting(stream));
                (!bytes.is_empty()).then(|| event(stream, bytes))
            })
            .collect()
    }

    fn waiting(&mut self, stream: OutputStream) -> &mut Vec<u8> {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }
}

fn event(stream: OutputStream, bytes: Vec<u8>) -> RunEventKind {
    // JSON spells a control character with six; where base64 is the shorter form, output is no text to anybody.
    let controls = bytes.iter().filter(|byte| byte.is_ascii_control() && !b"\n\r\t".contains(byte)).count();
    let in_base64 = |bytes: &[u8]| OutputData { text: None, base64: Some(STANDARD.encode(bytes)) };
    let data = match String::from_utf8(bytes) {
        Ok(text) if controls * 5 > text.len() / 3 => in_base64(text.as_bytes()),
        Ok(text) => OutputData { text: Some(text), base64: None },
        Err(error) => in_base64(error.as_bytes()),
    };
    match stream {
        OutputStream::Stdout => RunEventKind::Stdout(data),
        OutputStream::Stderr => RunEventKind::Stderr(data),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(kind: &RunEventKind) -> Vec<u8> {
        let (RunEventKind::Stdout(data) | RunEventKind::Stderr(data)) = kind else { unreachable!() };
        match (&data.text, &data.base64) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64).unwrap(),
            _ => unreachable!(),
        }
    }

    #[test]
    fn control_characters_do_not_grow_sixfold() {
        let noise = OutputEncoder::default().push(OutputStream::Stdout, &[1; 3000]).unwrap();
        assert!(serde_json::to_string(&noise).unwrap().len() < 4100);
        let colour =
            OutputEncoder::default().push(OutputStream::Stdout, b"\x1b[31mred, as a terminal shows it\x1b[0m\n");
        let Some(RunEventKind::Stdout(data)) = colour else { unreachable!() };
        assert!(data.text.is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks_come_out_exactly(chunks: Vec<Vec<u8>>) {
            let mut encoder = OutputEncoder::default();
            let mut seen = Vec::new();
            for chunk in &chunks {
                seen.extend(encoder.push(OutputStream::Stdout, chunk).iter().flat_map(bytes_of));
            }
            seen.extend(encoder.finish().iter().flat_map(bytes_of));
            prop_assert_eq!(seen, chunks.concat());
        }

        #[test]
        fn text_stays_text_wherever_it_is_cut(text in "\\PC{0,40}", size in 1_usize..5) {
            let mut encoder = OutputEncoder::default();
            for chunk in text.as_bytes().chunks(size) {
                if let Some(kind) = encoder.push(OutputStream::Stderr, chunk) {
                    let plain = matches!(kind, RunEventKind::Stderr(data) if data.base64.is_none());
                    prop_assert!(plain);
                }
            }
            prop_assert!(encoder.finish().is_empty());
        }
    }
}
