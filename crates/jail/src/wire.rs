//! Datagrams with descriptors between jail and node.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::jail::{JailReply, JailRequest};
use bailey_protocol::limits::{MAX_JAIL_MESSAGE, MAX_MOUNTS};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Replies that may wait for a node that does not read.
const MAX_WAITING: usize = 4096;

/// One message from the node.
#[derive(Debug)]
pub(crate) enum Received {
    /// A request and its descriptors.
    Request(JailRequest, Vec<OwnedFd>),
    /// Bytes that are no request.
    Garbage,
    /// Nothing now.
    Nothing,
    /// The other end is gone.
    Closed,
}

/// The jail's end of the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

impl Connection {
    /// Wraps a `SOCK_SEQPACKET` socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: VecDeque::new() }
    }

    /// Whether replies wait for room in the socket.
    pub(crate) fn is_congested(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes one message.
    pub(crate) fn receive(&self) -> Result<Received, Errno> {
        let mut bytes = vec![0_u8; MAX_JAIL_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MOUNTS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(message) => message,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::Closed),
            Err(errno) => return Err(errno),
        };
        // Taken in any case, so that they are closed.
        let mut descriptors = Vec::new();
        for entry in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = entry {
                descriptors.extend(rights);
            }
        }
        if message.bytes == 0 && descriptors.is_empty() {
            return Ok(Received::Closed);
        }
        let cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        let text = bytes.get(..message.bytes).unwrap_or(&[]);
        match serde_json::from_slice(text) {
            Ok(request) if !cut => Ok(Received::Request(request, descriptors)),
            _ => Ok(Received::Garbage),
        }
    }

    /// Sends a reply, now or when there is room.
    ///
    /// # Errors
    /// `EPIPE` when the other end is gone, `ENOBUFS` when it has not read for too long.
    pub(crate) fn send(&mut self, reply: &JailReply, descriptors: Vec<OwnedFd>) -> Result<(), Errno> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(Errno::NOBUFS);
        }
        let bytes = serde_json::to_vec(reply).map_err(|_unprintable| Errno::INVAL)?;
        self.waiting.push_back((bytes, descriptors));
        self.flush()
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        while let Some((bytes, descriptors)) = self.waiting.front() {
            match send(&self.socket, bytes, descriptors) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[OwnedFd]) -> Result<(), Errno> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
}
