//! What the node says to a machine, from the claim to the changes.

use std::time::{SystemTime, UNIX_EPOCH};

use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::guest::{GENERATION, MachineClaim};
use bailey_protocol::jail::{CageMount, StopFacts};
use bailey_protocol::limits::Limits;
use base64::Engine;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::collect::{Record, decode};
use crate::guest::{Client, init_request};

pub(crate) const MACHINE_ID: &str = "00112233445566778899aabbccddeeff";
pub(crate) const BOOT_ID: &str = "12345678-9abc-4def-8123-456789abcdef";

/// One thing in a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    Folder(&'static str),
    File(&'static str, &'static str),
    Link(&'static str, &'static str),
}

pub(crate) fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A claim with these mounts, of which those with a `!` cannot be written to.
pub(crate) fn claim(limits: Limits, mounts: &[&str]) -> MachineClaim {
    let mount = |at: &&str| CageMount { at: at.trim_end_matches('!').parse().unwrap(), writable: !at.ends_with('!') };
    MachineClaim {
        generation: GENERATION,
        now_ns: now_ns(),
        entropy: base64::engine::general_purpose::STANDARD.encode([5; 64]),
        hostname: "claimed".to_owned(),
        machine_id: MACHINE_ID.to_owned(),
        boot_id: BOOT_ID.to_owned(),
        limits,
        mounts: mounts.iter().map(mount).collect(),
    }
}

/// The stream of a slice.
pub(crate) fn slice(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for entry in entries {
        match entry {
            Entry::Folder(path) => Header::Directory { path: path.as_bytes() }.encode(&mut bytes).unwrap(),
            Entry::Link(path, target) => {
                Header::Symlink { path: path.as_bytes(), target: target.as_bytes() }.encode(&mut bytes).unwrap();
            }
            Entry::File(path, text) => {
                let size = text.len() as u64;
                Header::File { path: path.as_bytes(), executable: false, size }.encode(&mut bytes).unwrap();
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
    Header::End { records: entries.len() as u64 }.encode(&mut bytes).unwrap();
    bytes
}

impl Client {
    /// Claims the machine; the status and the answer.
    pub(crate) async fn claim(&self, claim: &MachineClaim) -> (u16, Value) {
        self.call("/claim", &serde_json::to_value(claim).unwrap()).await
    }

    /// Sends the bytes of a slice's stream; the line that comes back.
    pub(crate) async fn send_slice(&self, number: u32, bytes: &[u8]) -> String {
        let mut stream = self.stream(&format!("slice:{number}\n")).await;
        // The other side may have refused and gone before the last byte.
        let _refused = stream.write_all(bytes).await;
        let _refused = stream.shutdown().await;
        let mut line = String::new();
        stream.read_to_string(&mut line).await.unwrap();
        line
    }

    /// Takes a parked machine to where code can run: one writable mount at `/data` with these entries.
    pub(crate) async fn prepare(&self, limits: Limits, entries: &[Entry]) {
        let (status, answer) = self.claim(&claim(limits, &["/data"])).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(self.send_slice(0, &slice(entries)).await, "ok\n");
        self.init(&["/data"]).await;
    }

    pub(crate) async fn init(&self, mounts: &[&str]) {
        let mut request = init_request(true);
        request["mounts"] = json!(mounts);
        let (status, answer) = self.call("/init", &request).await;
        assert_eq!(status, 200, "{answer}");
    }

    pub(crate) async fn stop(&self) -> StopFacts {
        let (status, answer) = self.call("/stop", &json!({})).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_value(answer).unwrap()
    }

    /// The bytes of a mount's change stream.
    pub(crate) async fn collect_raw(&self, number: u32) -> Vec<u8> {
        let mut stream = self.stream(&format!("collect:{number}\n")).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    pub(crate) async fn collect(&self, number: u32) -> Vec<Record> {
        decode(&self.collect_raw(number).await)
    }
}
