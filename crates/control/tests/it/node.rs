//! A node that follows a script.

use std::sync::{Arc, Mutex};

use bailey_control::node_link::StartRun;
use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::id::SandboxId;
use bailey_protocol::jail::StopFacts;
use bailey_protocol::node::{Ending, NodeFault, NodeFaultKind, OutputStream, RunStarted, RunStopped, RunUpdate};
use bailey_protocol::wall::WallKind;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

type Script = Arc<dyn Fn(StartRun) -> BoxFuture<'static, ()> + Send + Sync>;

/// Answers every order by the script that is set at the moment.
#[derive(Clone)]
pub struct FakeNode {
    script: Arc<Mutex<Script>>,
    pub seen: Arc<Mutex<Vec<bailey_protocol::node::RunSpec>>>,
}

impl FakeNode {
    pub fn start(mut orders: mpsc::Receiver<StartRun>) -> Self {
        let node = Self { script: Arc::new(Mutex::new(script(quick))), seen: Arc::default() };
        let this = node.clone();
        tokio::spawn(async move {
            while let Some(order) = orders.recv().await {
                this.seen.lock().unwrap().push(order.spec.clone());
                let script = Arc::clone(&this.script.lock().unwrap());
                tokio::spawn(script(order));
            }
        });
        node
    }

    pub fn follow<F: Future<Output = ()> + Send + 'static>(&self, f: impl Fn(StartRun) -> F + Send + Sync + 'static) {
        *self.script.lock().unwrap() = script(f);
    }
}

fn script<F: Future<Output = ()> + Send + 'static>(f: impl Fn(StartRun) -> F + Send + Sync + 'static) -> Script {
    Arc::new(move |order| Box::pin(f(order)))
}

/// Says `hello` and ends.
pub async fn quick(order: StartRun) {
    let updates = order.updates.clone();
    updates.send(started()).await.unwrap();
    updates.send(output("hello\n")).await.unwrap();
    updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
    unchanged(&order).await;
    updates.send(RunUpdate::Done).await.unwrap();
}

/// Starts, and ends only when it is cancelled.
pub async fn until_cancelled(order: StartRun) {
    order.updates.send(started()).await.unwrap();
    order.cancel.cancelled().await;
    order.updates.send(stopped(Ending::Cancelled)).await.unwrap();
    unchanged(&order).await;
    order.updates.send(RunUpdate::Done).await.unwrap();
}

/// Writes the same file into every writable mount and ends.
pub async fn writes(order: StartRun, name: &'static str, content: String) {
    order.updates.send(started()).await.unwrap();
    order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
    for (index, mount) in (0_u32..).zip(&order.spec.mounts) {
        if mount.writable {
            let stream = changes(&[(name, &content)]);
            send_changes(&order, index, &stream).await;
        }
    }
    order.updates.send(RunUpdate::Done).await.unwrap();
}

pub async fn unchanged(order: &StartRun) {
    for (index, mount) in (0_u32..).zip(&order.spec.mounts) {
        if mount.writable {
            send_changes(order, index, &changes(&[])).await;
        }
    }
}

pub async fn send_changes(order: &StartRun, mount: u32, stream: &[u8]) {
    for piece in stream.chunks(32 * 1024) {
        let data = Bytes::copy_from_slice(piece);
        // Control may have given the run up.
        if order.updates.send(RunUpdate::Changes { mount, data }).await.is_err() {
            return;
        }
    }
    order.updates.send(RunUpdate::ChangesEnd { mount }).await.unwrap_or_default();
}

/// A change stream that writes `files`.
pub fn changes(files: &[(&str, &str)]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for (path, content) in files {
        let header = Header::File { path: path.as_bytes(), executable: false, size: content.len() as u64 };
        header.encode(&mut out).unwrap();
        out.extend_from_slice(content.as_bytes());
    }
    Header::End { records: files.len() as u64 }.encode(&mut out).unwrap();
    out
}

pub fn started() -> RunUpdate {
    RunUpdate::Started {
        started: RunStarted {
            sandbox: SandboxId::mint(1, [7; 10]),
            wall: WallKind::Container,
            accelerated: None,
            parked: true,
            fences: vec!["seccomp".to_owned()],
        },
    }
}

pub fn output(text: &str) -> RunUpdate {
    RunUpdate::Output { stream: OutputStream::Stdout, data: Bytes::copy_from_slice(text.as_bytes()) }
}

pub fn stopped(ending: Ending) -> RunUpdate {
    let facts = StopFacts::default();
    RunUpdate::Stopped { stopped: RunStopped { ending, limits_hit: Vec::new(), output_dropped: 0, facts, wall_ms: 7 } }
}

pub fn failed(kind: NodeFaultKind, message: &str) -> RunUpdate {
    RunUpdate::Failed { fault: NodeFault { kind, message: message.to_owned() } }
}
