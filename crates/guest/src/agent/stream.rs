//! The one duplex stream to the node: yamux over it, and what each stream in it is for.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::Context;
use bailey_protocol::guest::{MAX_STREAM_HEADER, StreamTarget};
use bailey_protocol::limits::{MAX_STREAMS, STREAM_WINDOW};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

use super::{Agent, http};

type Stream = Compat<yamux::Stream>;

/// Longest time until a stream has said what it is for.
const HEADER_TIME: Duration = Duration::from_secs(10);

/// Serves until the stream ends, which is the end of the sandbox.
pub(super) async fn serve(agent: &Rc<Agent>, stream: OwnedFd) -> anyhow::Result<()> {
    rustix::io::ioctl_fionbio(&stream, true).context("make the stream non-blocking")?;
    let stream = UnixStream::from_std(stream.into()).context("watch the stream")?;
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
