//! Oracle O1, the empty room: a fresh nonce is planted where it must not be readable, and every byte that an
//! attacker could ever receive is searched for it, in the disguises that an attacker could give it.

use std::io::Read as _;

/// First bytes of every nonce. Attack programs are told it: they hunt for anything that starts so.
pub(crate) const MARK: &str = "cnry-";

/// A fresh 256-bit nonce as text: [`MARK`] and 64 hex digits.
#[derive(Debug, Clone)]
pub(crate) struct Canary {
    text: String,
    needles: Vec<(&'static str, Vec<u8>)>,
}

impl Canary {
    pub(crate) fn fresh() -> Self {
        let mut secret = [0_u8; 32];
        let mut random = std::fs::File::open("/dev/urandom").expect("/dev/urandom");
        random.read_exact(&mut secret).expect("32 random bytes");
        let text = format!("{MARK}{}", hex(&secret));
        let needles = disguises(&text, &secret);
        Self { text, needles }
    }

    /// What is planted.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The disguise under which the nonce stands in `bytes`, compressed parts included; `None`: it does not.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        self.find_within(bytes, 2)
    }

    fn find_within(&self, bytes: &[u8], depth: u32) -> Option<&'static str> {
        let plain = self.find_plain(bytes);
        if plain.is_some() || depth == 0 {
            return plain;
        }
        let unpacked = compressed_parts(bytes).into_iter();
        unpacked
            .filter(|part| !part.is_empty())
            .find_map(|part| self.find_within(&part, depth - 1))
            .map(|_| "compressed")
    }

    /// One pass for all needles: most places are ruled out by their first two bytes.
    fn find_plain(&self, bytes: &[u8]) -> Option<&'static str> {
        let mut starts = vec![false; 1 << 16];
        for (_, needle) in &self.needles {
            starts[usize::from(u16::from_be_bytes([needle[0], needle[1]]))] = true;
        }
        let mut last = 0_u16;
        for (at, byte) in bytes.iter().enumerate() {
            last = (last << 8) | u16::from(*byte);
            if at > 0 && starts[usize::from(last)] {
                let rest = &bytes[at - 1..];
                if let Some((name, _)) = self.needles.iter().find(|(_, needle)| rest.starts_with(needle)) {
                    return Some(name);
                }
            }
        }
        None
    }
}

/// Every way to write the nonce that is searched for. The digits alone count too, with the mark cut off.
fn disguises(text: &str, secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let digits = hex(secret);
    let mut list = vec![
        ("plain", digits.clone().into_bytes()),
        ("plain, upper case", digits.to_uppercase().into_bytes()),
        ("reversed", digits.chars().rev().collect::<String>().into_bytes()),
        ("raw bytes", secret.to_vec()),
        ("raw bytes reversed", secret.iter().rev().copied().collect()),
        ("hex of the text", hex(digits.as_bytes()).into_bytes()),
        ("upper-case hex of the text", hex(digits.as_bytes()).to_uppercase().into_bytes()),
        ("URL", digits.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>().into_bytes()),
        ("JSON escape", digits.bytes().map(|byte| format!("\\u00{byte:02x}")).collect::<String>().into_bytes()),
        ("octal or hex escape", digits.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>().into_bytes()),
        ("UTF-16 little endian", digits.bytes().flat_map(|byte| [byte, 0]).collect()),
        ("UTF-16 big endian", digits.bytes().flat_map(|byte| [0, byte]).collect()),
    ];
    for bytes in [text.as_bytes(), digits.as_bytes(), secret] {
        for shift in 0..3 {
            list.push(("base64", base64_core(bytes, shift, false)));
            list.push(("base64, URL alphabet", base64_core(bytes, shift, true)));
        }
    }
    list
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The characters of base64 that depend on nothing but `bytes`, when `shift` unknown bytes stand before them.
fn base64_core(bytes: &[u8], shift: usize, url: bool) -> Vec<u8> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    let padded: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
    let text = if url { URL_SAFE_NO_PAD.encode(&padded) } else { STANDARD_NO_PAD.encode(&padded) };
    let first = (shift * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    text.as_bytes()[first..last].to_vec()
}

/// What every gzip or zlib stream inside `bytes` holds, as far as it can be unpacked (64 MiB each at most).
fn compressed_parts(bytes: &[u8]) -> Vec<Vec<u8>> {
    const MOST: u64 = 64 * 1024 * 1024;
    let mut parts = Vec::new();
    for at in 0..bytes.len().saturating_sub(2) {
        let rest = &bytes[at..];
        let mut out = Vec::new();
        // A damaged end is no reason to give up what came before it: errors are looked past on purpose.
        let outcome = match rest {
            [0x1f, 0x8b, 0x08, ..] => flate2::read::GzDecoder::new(rest).take(MOST).read_to_end(&mut out),
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => {
                flate2::read::ZlibDecoder::new(rest).take(MOST).read_to_end(&mut out)
            }
            _ => continue,
        };
        if outcome.is_ok() || out.len() >= 64 {
            parts.push(out);
        }
    }
    parts
}

#[test]
fn o1_finds_a_planted_nonce_in_every_disguise() {
    use std::io::Write as _;
    let canary = Canary::fresh();
    let digits = canary.text().strip_prefix(MARK).unwrap().to_owned();
    let gzip = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let base64 = |bytes: &[u8]| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(bytes).into_bytes()
    };
    let text = canary.text();
    let planted: Vec<Vec<u8>> = vec![
        text.into(),
        hex(text.as_bytes()).into(),
        base64(text.as_bytes()),
        base64(format!("a{text}z").as_bytes()),
        base64(format!("ab{text}z").as_bytes()),
        text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>().into(),
        text.bytes().map(|byte| format!("\\u00{byte:02x}")).collect::<String>().into(),
        text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        text.bytes().rev().collect(),
        gzip(format!("before {text} after").as_bytes()),
        gzip(&base64(text.as_bytes())),
        digits.to_uppercase().into(),
    ];
    for (index, planted) in planted.iter().enumerate() {
        let noise = [b"noise before ".as_slice(), planted, b" and after"].concat();
        assert!(canary.find(&noise).is_some(), "disguise {index} is not seen");
    }
    assert_eq!(Canary::fresh().find(&planted.concat()), None, "another nonce is taken for this one");
    assert_eq!(canary.find(&text.as_bytes()[..text.len() - 8]), None, "a part is taken for the whole");
}
