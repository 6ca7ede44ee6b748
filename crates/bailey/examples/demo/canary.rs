//! Canaries: 256 fresh random bits each, and the search for them in any disguise that code is known to use.

use std::io::Read as _;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use flate2::read::{MultiGzDecoder, ZlibDecoder};

/// Bytes of a canary's text that count as a find: 64 of its 256 bits.
const PIECE: usize = 16;
/// Most bytes that one packed part may unpack to.
const MAX_UNPACKED: u64 = 64 << 20;
/// Packed in packed in packed.
const MAX_DEPTH: u32 = 3;

/// Bytes to be searched.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) bytes: Vec<u8>,
    /// Whether they were packed in others.
    packed: bool,
}

/// A secret that must not turn up.
#[derive(Debug, Clone)]
pub(crate) struct Canary {
    /// Where it is planted.
    pub(crate) place: &'static str,
    /// What is planted there.
    pub(crate) text: String,
    needles: Vec<(&'static str, Vec<u8>)>,
}

impl Canary {
    pub(crate) fn fresh(place: &'static str) -> anyhow::Result<Self> {
        let mut bits = [0; 32];
        rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty()).context("draw a canary")?;
        let hex: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self::known(place, format!("canary-{hex}"), hex.as_bytes(), &bits))
    }

    /// One that something else made: its text, and the bits behind it.
    pub(crate) fn of_key(place: &'static str, pem: &str) -> anyhow::Result<Self> {
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(&body).context("read the stored key")?;
        // The seed of an Ed25519 key lies behind the second of two nested OCTET STRING headers (RFC 8410).
        let header = [0x04, 0x22, 0x04, 0x20];
        let at = der.windows(header.len()).position(|window| window == header).context("find the key's seed")?;
        let seed = der.get(at + header.len()..at + header.len() + 32).context("read the key's seed")?;
        let hex: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut canary = Self::known(place, pem.to_owned(), hex.as_bytes(), seed);
        // The line of the file that holds the seed, as a thief would copy it.
        let tail = body.get(body.len().saturating_sub(40)..).unwrap_or(&body);
        canary.needles.extend(disguises("plain", tail.as_bytes()));
        Ok(canary)
    }

    fn known(place: &'static str, text: String, hex: &[u8], bits: &[u8]) -> Self {
        let pieces = hex.chunks(PIECE).flat_map(|piece| disguises("plain", piece));
        let raw = bits.chunks(PIECE).flat_map(|piece| disguises("raw", piece));
        Self { place, text, needles: pieces.chain(raw).collect() }
    }

    /// The disguises in which it is among the bytes, those in packed parts included.
    pub(crate) fn search(&self, layers: &[Layer]) -> Vec<&'static str> {
        let mut forms = Vec::new();
        for (form, needle) in &self.needles {
            for layer in layers {
                let form = if layer.packed { "gzip" } else { form };
                if !forms.contains(&form) && contains(&layer.bytes, needle) {
                    forms.push(form);
                }
            }
        }
        forms
    }
}

/// One piece in every form: as it is, reversed, as hex, and as base64 wherever it may begin in a group of three.
fn disguises(plain: &'static str, piece: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let reversed: Vec<u8> = piece.iter().rev().copied().collect();
    let mut all = vec![(plain, piece.to_vec()), ("reversed", reversed.clone())];
    for side in [piece, &reversed] {
        let hex: String = side.iter().map(|byte| format!("{byte:02x}")).collect();
        all.push(("hex", hex.to_uppercase().into_bytes()));
        all.push(("hex", hex.into_bytes()));
        for skip in 0..3 {
            all.extend(aligned(side, skip).into_iter().map(|text| ("base64", text)));
        }
    }
    all
}

/// Base64 of `piece` behind `skip` unknown bytes, without the digits that depend on its neighbours.
fn aligned(piece: &[u8], skip: usize) -> Vec<Vec<u8>> {
    let mut padded = vec![0; skip];
    padded.extend_from_slice(piece);
    let first = (skip * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)]
        .into_iter()
        .filter_map(|text| text.as_bytes().get(first..last).map(<[u8]>::to_vec))
        .collect()
}

/// The bytes themselves, and whatever is packed in them: gzip and zlib at any place, also behind base64, hex or
/// reversal of the whole.
pub(crate) fn unpack(name: &str, data: &[u8]) -> Vec<Layer> {
    let mut all = vec![Layer { bytes: name.as_bytes().to_vec(), packed: false }];
    layers(data, false, MAX_DEPTH, &mut all);
    all
}

fn layers(data: &[u8], packed: bool, depth: u32, all: &mut Vec<Layer>) {
    all.push(Layer { bytes: data.to_vec(), packed });
    if depth == 0 {
        return;
    }
    for at in 0..data.len() {
        let rest = data.get(at..).unwrap_or_default();
        let unpacked = match rest {
            [0x1f, 0x8b, 8, ..] => inflate(MultiGzDecoder::new(rest)),
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => inflate(ZlibDecoder::new(rest)),
            _ => None,
        };
        if let Some(unpacked) = unpacked {
            layers(&unpacked, true, depth - 1, all);
        }
    }
    // Text may be base64 or hex of something packed, line by line or as a whole.
    let lines = data.split(|byte| byte.is_ascii_whitespace()).filter(|line| line.len() >= 2 * PIECE);
    for line in lines {
        if let Ok(decoded) = STANDARD.decode(line) {
            layers(&decoded, packed, depth - 1, all);
        }
    }
}

fn inflate(packed: impl std::io::Read) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // What came before an error counts: rubbish may follow.
    let read = packed.take(MAX_UNPACKED).read_to_end(&mut out);
    (read.is_ok() || !out.is_empty()).then_some(out).filter(|out| !out.is_empty())
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    let Some((first, rest)) = needle.split_first() else { return false };
    let mut from = 0;
    while let Some(found) = haystack.get(from..).and_then(|tail| tail.iter().position(|byte| byte == first)) {
        let after = from + found + 1;
        if haystack.get(after..after + rest.len()) == Some(rest) {
            return true;
        }
        from = after;
    }
    false
}
