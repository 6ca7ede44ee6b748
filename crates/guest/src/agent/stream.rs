//! The one duplex stream to the node: yamux over it, and what each stream in it is for.

use std::rc::Rc;

use anyhow::Context;
use bailey_protocol::guest::{MAX_STREAM_HEADER, StreamTarget, WAITING};
use bailey_protocol::limits::{MAX_STREAMS, STREAM_WINDOW};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

use super::{Agent, http};
use crate::descriptor::Duplex;
use crate::machine;

/// One stream of the many in the node's.
pub(crate) type Stream = Compat<yamux::Stream>;

/// Longest time until a stream has said what it is for.
const HEADER_TIME: Duration = Duration::from_secs(10);

/// Serves until the stream ends, which is the end of the sandbox. Only a machine that knows no tenant yet waits for the
/// node to come back: it may have been saved meanwhile.
pub(super) async fn serve_all(agent: &Rc<Agent>, mut stream: Duplex) -> anyhow::Result<()> {
    loop {
        let served = serve(agent, &mut stream).await;
        match &agent.machine {
            Some(machine) if machine.waits_for_the_node() => {
                // On the console.
                eprintln!("{WAITING}");
                stream.peer().await;
            }
            _ => return served,
        }
    }
}

async fn serve(agent: &Rc<Agent>, stream: &mut Duplex) -> anyhow::Result<()> {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(MAX_STREAMS).set_max_connection_receive_window(Some(STREAM_WINDOW));
    let mut connection = yamux::Connection::new(stream.compat(), config, yamux::Mode::Server);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            next = std::future::poll_fn(|cx| connection.poll_next_inbound(cx)) => match next {
                Some(Ok(stream)) => { tasks.spawn_local(handle(Rc::clone(agent), stream.compat())); }
                Some(Err(error)) => return Err(error).context("the stream broke"),
                None => return Ok(()),
            },
            Some(_ended) = tasks.join_next() => {}
        }
    }
}

async fn handle(agent: Rc<Agent>, mut stream: Stream) {
    let Ok(Some(target)) = tokio::time::timeout(HEADER_TIME, read_target(&mut stream)).await else {
        return;
    };
    match target {
        StreamTarget::Agent => http::serve(agent, stream).await,
        StreamTarget::Tcp(port) => relay(stream, port).await,
        // Opened by the guest only.
        StreamTarget::Egress => {}
        StreamTarget::Slice(number) => machine::slice::receive(&agent, number, stream).await,
        StreamTarget::Collect(number) => machine::collect::send(&agent, number, stream).await,
    }
}

async fn read_target(stream: &mut Stream) -> Option<StreamTarget> {
    let mut line = Vec::with_capacity(MAX_STREAM_HEADER);
    while line.len() < MAX_STREAM_HEADER {
        match stream.read_u8().await.ok()? {
            b'\n' => return StreamTarget::parse(std::str::from_utf8(&line).ok()?),
            byte => line.push(byte),
        }
    }
    None
}

/// Carries bytes to a server on the sandbox's loopback. Dropping the stream tells the node that it is closed.
async fn relay(mut stream: Stream, port: u16) {
    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        // Either side's end is passed on by itself; an error ends both, and there is nobody to tell.
        let _ended = copy_bidirectional(&mut stream, &mut server).await;
    }
}
