//! One message and its descriptors per datagram, without blocking.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::limits::{MAX_JAIL_MESSAGE, MAX_MOUNTS};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Most descriptors that any reply carries; a datagram with more is a broken jail.
const MAX_REPLY_FDS: usize = 4;

/// A `SOCK_SEQPACKET` socket registered with the runtime.
#[derive(Debug)]
pub(super) struct JailSocket {
    fd: AsyncFd<OwnedFd>,
}

/// A message as it came.
#[derive(Debug)]
pub(super) struct Datagram {
    /// The bytes; never empty.
    pub(super) bytes: Vec<u8>,
    /// The descriptors, in order.
    pub(super) fds: Vec<OwnedFd>,
}

impl JailSocket {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        #[expect(deprecated, reason = "sound for an `OwnedFd`; its successor asks for a promise")]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd })
    }

    /// Sends one datagram. CANCEL: nothing or all of it has been sent.
    pub(super) async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.fd
            .async_io(Interest::WRITABLE, |socket| {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MOUNTS))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
                if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
            })
            .await
    }

    /// Waits for one datagram; `None` when the other end is closed. CANCEL: no datagram is lost.
    pub(super) async fn receive(&self) -> io::Result<Option<Datagram>> {
        self.fd.async_io(Interest::READABLE, |socket| receive_now(socket.as_fd())).await
    }
}

fn receive_now(socket: BorrowedFd<'_>) -> io::Result<Option<Datagram>> {
    let mut bytes = vec![0; MAX_JAIL_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_REPLY_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(got.bytes);
    Ok(Some(Datagram { bytes, fds }))
}
