//! `collect:N`: what changed below a mount, as the collector tells it.
//!
//! The walk waits for disks and for its reader, so it has a thread of its own while nothing else is alive; a pipe leads
//! from there to the node's stream. PID 1's Landlock fence is around it too.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncWriteExt, copy};

use crate::agent::Agent;
use crate::agent::stream::Stream;
use crate::collect::walk::Layers;
use crate::descriptor::Duplex;

/// Sends the change stream and closes. A stream without its end record tells the node that it failed.
pub(crate) async fn send(agent: &Rc<Agent>, number: u32, mut stream: Stream) {
    if let Ok(()) = collect(agent, number, &mut stream).await {
        // The node may be gone; then nobody misses the rest.
        let _closed = stream.shutdown().await;
    }
}

async fn collect(agent: &Agent, number: u32, stream: &mut Stream) -> std::io::Result<()> {
    let refused = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let machine = agent.machine.as_ref().filter(|machine| machine.is_stopped()).ok_or_else(refused)?;
    let claimed = machine.claimed.get().ok_or_else(refused)?;
    let place = usize::try_from(number).map_err(|_huge| refused())?;
    let layers = claimed.slices.get(place).and_then(|slice| slice.layers()).ok_or_else(refused)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let [upper, merged, lower] = layers.map(|layer| openat(layer, ".", flags, Mode::empty()));
    let layers = Layers { upper: upper?, merged: merged?, lower: lower? };
    let (changes, output) = pipe_with(PipeFlags::CLOEXEC)?;
    let walk = std::thread::Builder::new().name("collect".to_owned()).spawn(move || walk(layers, output))?;
    let mut changes = Duplex::socket(changes)?;
    // The stream's end says whether the walk was whole, as a collector's pipe does.
    let copied = copy(&mut changes, stream).await;
    // Ended with its end of the pipe, or stopped by the loss of the other one.
    drop(changes);
    let _ended = walk.join();
    copied.map(drop)
}

fn walk(layers: Layers, output: OwnedFd) {
    // What failed is in the stream, or the stream has no end.
    let _told = crate::collect::collect(layers, output);
}
