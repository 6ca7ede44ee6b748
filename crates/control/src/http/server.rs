//! Accepts connections, and ends in order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::connection::{Register, Registered, Socket};
use super::cut::HangUp;
use crate::config::HttpConfig;
use crate::control::Control;

/// Largest request head, in bytes: a token of 8 KiB and a path of 4 KiB, escaped, fit.
const MAX_HEAD: usize = 32 * 1024;
/// Most request headers.
const MAX_HEADERS: usize = 64;
/// Pause after the kernel refused to accept (no descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time that open connections get to finish once no run is going.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// Time that cancelled runs get to end.
const CANCEL_GRACE: Duration = Duration::from_secs(15);

/// Serves `control` on `listener` until `shutdown` fires.
///
/// Then new runs are refused, those that are going have `drain` to end before they are cancelled, and connections
/// close when their answer is complete. Everything that this started has ended when it returns.
///
/// # Errors
/// When the listener's address cannot be read.
pub async fn serve(
    listener: TcpListener,
    control: Control,
    shutdown: CancellationToken,
    drain: Duration,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let closing = CancellationToken::new();
    let connections = TaskTracker::new();
    let server = Server {
        router: super::routes::router(control.clone()),
        config: control.config().http,
        register: Register::default(),
        closing: closing.clone(),
        connections: connections.clone(),
    };
    tracing::info!(%address, "listening");
    let ending = async {
        shutdown.cancelled().await;
        tracing::info!(?drain, "draining");
        control.drain(drain, CANCEL_GRACE).await;
    };
    tokio::select! {
        () = server.accept(&listener) => {}
        () = ending => {}
    }
    drop(listener);
    closing.cancel();
    connections.close();
    if tokio::time::timeout(CLOSE_GRACE * 2, connections.wait()).await.is_err() {
        tracing::warn!("connections left at the end");
    }
    Ok(())
}

struct Server {
    router: Router,
    config: HttpConfig,
    register: Register,
    closing: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.welcome(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn welcome(&self, stream: TcpStream, peer: SocketAddr) {
        // Events are small and somebody waits for each.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "connection lost at once");
            return;
        }
        let Some(registered) = self.register.enter(self.config.max_connections) else {
            tracing::warn!(%peer, "connection refused: too many");
            return;
        };
        let socket = Socket::new(stream, self.config.write_timeout);
        let connection =
            converse(socket, registered, self.router.clone(), self.config.header_timeout, self.closing.clone());
        self.connections.spawn(connection);
    }
}

async fn converse(
    socket: Socket,
    registered: Registered,
    router: Router,
    header_timeout: Duration,
    closing: CancellationToken,
) {
    let (known, close) = (registered.known.clone(), registered.close.clone());
    let heads = socket.heads();
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(known.clone());
        let (ambiguous, is_last) = heads.next();
        if let Some(ambiguous) = ambiguous {
            request.extensions_mut().insert(ambiguous);
        }
        let (mut router, close) = (router.clone(), close.clone());
        async move {
            let mut response = unfailing(router.call(request).await);
            HangUp::bind(&response, &close);
            if is_last {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
        .serve_connection(socket, service);
    let mut connection = pin!(connection);
    let mut retires = false;
    let outcome = loop {
        tokio::select! {
            outcome = connection.as_mut() => break outcome,
            () = registered.close.cancelled() => return,
            () = registered.retire.cancelled(), if !retires => {
                connection.as_mut().graceful_shutdown();
                retires = true;
            }
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(CLOSE_GRACE, connection).await {
                    Ok(outcome) => break outcome,
                    Err(_elapsed) => return,
                }
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended early");
    }
}

fn unfailing<T>(outcome: Result<T, Infallible>) -> T {
    match outcome {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
