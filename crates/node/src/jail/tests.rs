use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bailey_protocol::id::SandboxId;
use bailey_protocol::jail::{CageMount, JailFaultKind, StopFacts};
use bailey_protocol::limits::Limits;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::time::timeout;

use super::*;

/// The jail's end of the socket, played by hand. Blocking, so each step runs on a thread of its own.
pub(crate) struct Jail(OwnedFd);

impl Jail {
    pub(crate) fn read(&self) -> (JailRequest, Vec<OwnedFd>) {
        let mut bytes = vec![0; MAX_JAIL_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MOUNTS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let fds = control
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
                _ => Vec::new(),
            })
            .collect();
        (serde_json::from_slice(&bytes[..got.bytes]).unwrap(), fds)
    }

    /// The next request, until there is none to come.
    pub(crate) fn next(&self) -> Option<(JailRequest, Vec<OwnedFd>)> {
        let mut byte = [0];
        let (received, _) = rustix::net::recv(&self.0, &mut byte, RecvFlags::PEEK).ok()?;
        (received > 0).then(|| self.read())
    }

    fn write(&self, bytes: &[u8], fds: &[&OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    pub(crate) fn answer(&self, id: u64, result: Result<JailAnswer, JailFault>, fds: &[&OwnedFd]) {
        self.write(&serde_json::to_vec(&JailReply { id, result }).unwrap(), fds);
    }
}

pub(crate) fn connect() -> (JailClient, Jail) {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (JailClient::start(ours, &Tasks::new()).unwrap(), Jail(theirs))
}

pub(crate) fn sandbox(n: u8) -> SandboxId {
    SandboxId::mint(1, [n; 10])
}

fn claim(mounts: Vec<CageMount>) -> JailOp {
    let share = "0".repeat(32).parse().unwrap();
    JailOp::Claim { sandbox: sandbox(1), share, limits: Limits::default(), mounts }
}

fn park(n: u8) -> JailOp {
    JailOp::Park { sandbox: sandbox(n), template: "0".repeat(64).parse().unwrap(), limits: Limits::default() }
}

fn stop(n: u8) -> JailOp {
    JailOp::Stop { sandbox: sandbox(n) }
}

pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    let (a, b) = UnixStream::pair().unwrap();
    (a.into(), b.into())
}

#[tokio::test]
async fn answers_find_their_requests_in_any_order_with_their_descriptors() {
    let (client, jail) = connect();
    let script = std::thread::spawn(move || {
        let mut requests = vec![jail.read().0, jail.read().0];
        requests.sort_by_key(|request| matches!(request.op, JailOp::Park { .. }));
        let (stream, far) = pair();
        let (death, _life) = pair();
        for request in requests {
            match request.op {
                JailOp::Park { .. } => {
                    let answer = JailAnswer::Parked { fences: vec!["x".to_owned()] };
                    jail.answer(request.id, Ok(answer), &[&stream, &death]);
                }
                _ => jail.answer(request.id, Ok(JailAnswer::Stopped { facts: StopFacts::default() }), &[]),
            }
        }
        UnixStream::from(far).write_all(b"hi").unwrap();
    });
    let (parked, stopped) = tokio::join!(client.call(park(1), Vec::new()), client.call(stop(2), Vec::new()));
    script.join().unwrap();
    assert!(matches!(stopped.unwrap().answer, JailAnswer::Stopped { .. }));
    let stream = parked.unwrap().fds.swap_remove(0);
    let mut text = String::new();
    UnixStream::from(stream).read_to_string(&mut text).unwrap();
    assert_eq!(text, "hi");
}

#[tokio::test]
async fn descriptors_go_out_in_order() {
    let (client, jail) = connect();
    let script = std::thread::spawn(move || {
        let (request, fds) = jail.read();
        for (fd, text) in fds.into_iter().zip(["a", "b"]) {
            UnixStream::from(fd).write_all(text.as_bytes()).unwrap();
        }
        jail.answer(request.id, Ok(JailAnswer::Claimed {}), &[]);
    });
    let ((a, mut far_a), (b, mut far_b)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let mount = |at: &str| CageMount { at: at.parse().unwrap(), writable: true };
    let op = claim(vec![mount("/a"), mount("/b")]);
    client.call(op, vec![Arc::new(a.into()), Arc::new(b.into())]).await.unwrap();
    script.join().unwrap();
    for (far, text) in [(&mut far_a, "a"), (&mut far_b, "b")] {
        let mut got = String::new();
        far.read_to_string(&mut got).unwrap();
        assert_eq!(got, text);
    }
}

#[tokio::test]
async fn a_refusal_names_the_request_and_leaves_the_connection_usable() {
    let (client, jail) = connect();
    let script = std::thread::spawn(move || {
        let fault = JailFault { kind: JailFaultKind::Exhausted, step: "s".to_owned(), message: "m".to_owned() };
        jail.answer(jail.read().0.id, Err(fault), &[]);
        jail.answer(jail.read().0.id, Ok(JailAnswer::Stopped { facts: StopFacts::default() }), &[]);
    });
    let refused = client.call(park(1), Vec::new()).await.unwrap_err();
    assert!(matches!(refused, JailError::Refused { op: "park", .. }), "{refused}");
    client.call(stop(1), Vec::new()).await.unwrap();
    script.join().unwrap();
}

#[tokio::test]
async fn a_broken_reply_ends_the_connection_for_everyone() {
    type Script = fn(&Jail, u64);
    let scripts: [Script; 8] = [
        |jail, _| jail.write(b"{", &[]),
        |jail, _| jail.write(&[b'x'; 70_000], &[]),
        |jail, id| jail.answer(id + 1, Ok(JailAnswer::Destroyed {}), &[]),
        |jail, id| jail.answer(id, Ok(JailAnswer::Destroyed {}), &[]),
        |jail, id| jail.answer(id, Ok(JailAnswer::Parked { fences: vec![] }), &[&pair().0]),
        |jail, id| {
            let (a, b) = pair();
            jail.answer(id, Ok(JailAnswer::Parked { fences: vec![] }), &[&a, &b, &a, &b, &a, &b]);
        },
        |jail, id| {
            let fault = JailFault { kind: JailFaultKind::Internal, step: String::new(), message: String::new() };
            jail.answer(id, Err(fault), &[&pair().0]);
        },
        |jail, id| jail.write(format!(r#"{{"id":{id},"result":{{"Ok":{{"claimed":{{}}}}}},"x":1}}"#).as_bytes(), &[]),
    ];
    for (number, script) in scripts.into_iter().enumerate() {
        let (client, jail) = connect();
        let script = std::thread::spawn(move || {
            // A datagram larger than the socket takes is no attack.
            rustix::net::sockopt::set_socket_send_buffer_size(&jail.0, 1 << 20).unwrap();
            let requests = [jail.read().0, jail.read().0];
            let park = requests.iter().find(|request| matches!(request.op, JailOp::Park { .. })).unwrap();
            script(&jail, park.id);
            jail
        });
        let calls = async { tokio::join!(client.call(park(1), Vec::new()), client.call(stop(2), Vec::new())) };
        let (parked, stopped) = timeout(Duration::from_secs(5), calls).await.expect("the client hangs");
        assert!(matches!(parked, Err(JailError::Lost)), "script {number}");
        assert!(matches!(stopped, Err(JailError::Lost)), "script {number}");
        assert!(matches!(client.call(stop(3), Vec::new()).await, Err(JailError::Lost)));
        assert!(client.is_lost());
        drop(script.join().unwrap());
    }
}

#[tokio::test]
async fn the_other_end_closing_fails_open_requests() {
    let (client, jail) = connect();
    let script = std::thread::spawn(move || drop(jail.read()));
    assert!(matches!(client.call(park(1), Vec::new()).await, Err(JailError::Lost)));
    script.join().unwrap();
    client.lost().await;
}

#[tokio::test]
async fn a_request_over_a_datagram_is_refused_here() {
    let (client, _jail) = connect();
    let at = format!("/{}", vec!["x".repeat(250); 16].join("/"));
    let mount = CageMount { at: at.parse().unwrap(), writable: true };
    let op = claim(vec![mount; 17]);
    assert!(matches!(client.call(op, Vec::new()).await, Err(JailError::TooLarge { .. })));
    assert!(!client.is_lost());
}

#[tokio::test]
async fn a_caller_that_left_costs_nothing_but_its_answer() {
    let (client, jail) = connect();
    let (stream, mut far) = UnixStream::pair().unwrap();
    let script = std::thread::spawn(move || {
        let first = jail.read().0.id;
        let second = jail.read().0.id;
        let stream = OwnedFd::from(stream);
        let (death, _life) = pair();
        jail.answer(first, Ok(JailAnswer::Parked { fences: vec![] }), &[&stream, &death]);
        drop(stream);
        jail.answer(second, Ok(JailAnswer::Stopped { facts: StopFacts::default() }), &[]);
    });
    let gone = timeout(Duration::from_millis(50), client.call(park(1), Vec::new())).await;
    assert!(gone.is_err());
    client.call(stop(1), Vec::new()).await.unwrap();
    script.join().unwrap();
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).expect("the late descriptor is closed");
}
