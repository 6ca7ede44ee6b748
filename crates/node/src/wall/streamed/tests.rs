//! The host's side against a guest that is played by hand: honest, hung, lost and lying.

use bailey_protocol::jail::JailAnswer;
use futures_util::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio_util::compat::TokioAsyncReadCompatExt;

use super::*;
use crate::jail::tests::{connect, sandbox};
use crate::tasks::Tasks;
use crate::transport::Transport;

/// What the guest does with a stream: by its target, and for requests the path, the bytes that it answers; `None` is a
/// stream that is never answered.
type Play = fn(&str) -> Option<Vec<u8>>;

/// A machine whose guest plays, in a cage of a jail that grants everything.
struct Scene {
    streamed: Streamed,
    live: Live,
    guest: AbortHandle,
    /// What the jail was asked for.
    asked: Arc<std::sync::Mutex<Vec<&'static str>>>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(play: Play) -> Self {
        let (client, jail) = connect();
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        std::thread::spawn(move || {
            let facts = StopFacts { cpu_us: 9, ..StopFacts::default() };
            // Until the socket closes.
            while let Some((request, _)) = jail.next() {
                let (name, answer) = match request.op {
                    JailOp::Claim { .. } => ("claim", JailAnswer::Claimed {}),
                    JailOp::Stop { .. } => ("stop", JailAnswer::Stopped { facts }),
                    JailOp::Count { .. } => ("count", JailAnswer::Counted { facts }),
                    _ => return,
                };
                heard.lock().unwrap().push(name);
                jail.answer(request.id, Ok(answer), &[]);
            }
        });
        let tasks = Tasks::new();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let guest = tasks.spawn(guest(theirs, play)).abort_handle();
        let transport = Arc::new(Transport::start(ours, &tasks));
        let patience =
            Patience { answer: Duration::from_secs(1), slice: Duration::from_secs(2), stop: Duration::from_secs(1) };
        let origins: Origins = Arc::new(|| Ok(Origin { now_ns: 1, random: [3; Origin::RANDOM] }));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("large"), vec![1; 4 << 20]).unwrap();
        Self {
            streamed: Streamed::new(Jailed::new(client, tasks, Duration::from_secs(5)), origins, patience),
            live: Live { sandbox: sandbox(1), transport },
            guest,
            asked,
            folder,
        }
    }

    async fn claim(&self) -> Result<Vec<String>, WallError> {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let lower = rustix::fs::open(self.folder.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let mounts = vec![ClaimMount { at: "/data".parse().unwrap(), writable: true, lower: Arc::new(lower) }];
        let order = ClaimOrder { share: "0".repeat(32).parse().unwrap(), limits: Limits::default(), mounts };
        let claimed = self.streamed.claim(&self.live, order, Limits::default());
        timeout(Duration::from_secs(5), claimed).await.expect("a claim without a deadline")
    }

    async fn stop(&self) -> StopFacts {
        let stopped = timeout(Duration::from_secs(5), self.streamed.stop(&self.live));
        stopped.await.expect("a stop without a deadline").unwrap()
    }

    async fn collect(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut changes = self.streamed.collect(&self.live, 0).await.take(1 << 20);
        let read = timeout(Duration::from_secs(5), changes.read_to_end(&mut bytes));
        // A stream that breaks is what a broken one is: its bytes have no end record.
        let _broken = read.await.expect("a guest that is gone goes on");
        bytes
    }

    fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().clone()
    }
}

async fn guest(socket: UnixStream, play: Play) {
    let mut connection = yamux::Connection::new(socket.compat(), yamux::Config::default(), yamux::Mode::Server);
    let mut streams = tokio::task::JoinSet::new();
    while let Some(Ok(stream)) = std::future::poll_fn(|cx| connection.poll_next_inbound(cx)).await {
        streams.spawn(answer(stream, play));
    }
}

async fn answer(mut stream: yamux::Stream, play: Play) -> std::io::Result<()> {
    let mut heard = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        let count = stream.read(&mut piece).await?;
        // A slice's content is not looked at.
        if heard.len() < piece.len() {
            heard.extend_from_slice(&piece[..count]);
        }
        let text = String::from_utf8_lossy(&heard).into_owned();
        let (target, rest) = text.split_once('\n').unwrap_or_default();
        let asked = match target {
            "agent" if rest.contains("\r\n\r\n") && rest.ends_with('}') => rest.split(' ').nth(1).unwrap(),
            "slice:0" if count == 0 => "slice",
            "collect:0" => "collect",
            _ if count == 0 => return Ok(()),
            _ => continue,
        };
        let Some(bytes) = play(asked) else { std::future::pending().await };
        stream.write_all(&bytes).await?;
        return stream.close().await;
    }
}

fn http(status: &str, body: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Some(bytes)
}

fn honest(asked: &str) -> Option<Vec<u8>> {
    match asked {
        "/claim" => http("200 OK", br#"{"fences":["scratch:tmpfs"]}"#),
        "/stop" => http("200 OK", &serde_json::to_vec(&StopFacts { disk_full: true, ..StopFacts::default() }).unwrap()),
        "slice" => Some(b"ok\n".to_vec()),
        "collect" => Some(b"changes".to_vec()),
        _ => None,
    }
}

#[tokio::test]
async fn a_machine_is_claimed_stopped_and_collected_and_killed_only_afterwards() {
    let scene = Scene::new(honest);
    assert_eq!(scene.claim().await.unwrap(), ["scratch:tmpfs"]);
    let facts = scene.stop().await;
    assert_eq!((facts.disk_full, facts.cpu_us), (true, 9));
    assert_eq!(scene.collect().await, b"changes");
    assert_eq!(scene.asked(), ["claim", "count"]);
}

#[tokio::test]
async fn m08_a_guest_that_hangs_is_killed_from_outside_and_its_changes_are_said_to_be_lost() {
    let scene = Scene::new(|asked| if asked == "/stop" { None } else { honest(asked) });
    scene.claim().await.unwrap();
    assert_eq!(scene.stop().await.cpu_us, 9);
    assert_eq!(scene.asked(), ["claim", "stop"]);
    scene.guest.abort();
    scene.live.transport.closed().await;
    assert_eq!(scene.collect().await, gone());
    let scene = Scene::new(|_asked| None);
    assert!(matches!(scene.claim().await, Err(WallError::Overdue { op: "claim" })));
    let scene = Scene::new(|asked| if asked == "slice" { None } else { honest(asked) });
    assert!(matches!(scene.claim().await, Err(WallError::Overdue { op: "slice" })));
}

#[tokio::test]
async fn m08_a_guest_that_lies_is_a_fault_with_a_type() {
    for (name, play) in [
        ("no http", (|_| Some(vec![0; 200_000])) as Play),
        ("huge", |asked| if asked == "/claim" { http("200 OK", &vec![b'x'; 1 << 20]) } else { honest(asked) }),
        ("no message", |asked| if asked == "/claim" { http("200 OK", b"[]") } else { honest(asked) }),
        ("control characters", |asked| match asked {
            "/claim" => http("200 OK", br#"{"fences":["a\u0007"]}"#),
            other => honest(other),
        }),
        ("refused", |asked| if asked == "/claim" { http("500 No", b"no") } else { honest(asked) }),
    ] {
        let claimed = Scene::new(play).claim().await;
        assert!(matches!(claimed, Err(WallError::Guest { op: "claim", .. })), "{name}: {claimed:?}");
    }
    for (name, play) in [
        ("silent", (|asked| if asked == "slice" { Some(Vec::new()) } else { honest(asked) }) as Play),
        ("unended", |asked| if asked == "slice" { Some(b"ok".to_vec()) } else { honest(asked) }),
        ("endless", |asked| if asked == "slice" { Some(vec![b'x'; 1 << 20]) } else { honest(asked) }),
        ("two lines", |asked| if asked == "slice" { Some(b"ok\nok\n".to_vec()) } else { honest(asked) }),
        ("refused", |asked| if asked == "slice" { Some(b"failed no\x07room\n".to_vec()) } else { honest(asked) }),
    ] {
        let claimed = Scene::new(play).claim().await;
        assert!(matches!(claimed, Err(WallError::Slice { number: 0, .. })), "{name}: {claimed:?}");
        let said = claimed.unwrap_err().to_string();
        assert!(said.len() < 1000 && !said.chars().any(char::is_control), "{said}");
    }
    for text in [&br#"{"oom_kills":-1}"#[..], b"{}", br#"{"more":1}"#, &[b'9'; 300_000]] {
        assert!(serde_json::from_slice::<StopFacts>(text).is_err());
    }
    let scene = Scene::new(|asked| if asked == "/stop" { http("200 OK", &[b' '; 300_000]) } else { honest(asked) });
    scene.stop().await;
    assert_eq!(scene.asked(), ["stop"]);
}

#[test]
fn a_claim_draws_everything_from_its_own_bytes() {
    let mut random = [0; Origin::RANDOM];
    for (byte, value) in random.iter_mut().zip(0..) {
        *byte = value;
    }
    let claim = machine_claim(Origin { now_ns: 7, random }, Limits::default(), &[]);
    assert_eq!(claim.now_ns, 7);
    assert_eq!(STANDARD.decode(&claim.entropy).unwrap(), (0..64).collect::<Vec<u8>>());
    assert_eq!(claim.machine_id, "404142434445464748494a4b4c4d4e4f");
    assert_eq!(claim.boot_id, "50515253-5455-4657-8859-5a5b5c5d5e5f");
}

#[test]
fn a_guest_that_lies_changes_nothing_but_the_ending() {
    let counted = StopFacts { cpu_us: 5, memory_peak_bytes: 6, oom_kills: 1, ..StopFacts::default() };
    let most = u64::MAX;
    let lie = StopFacts {
        oom_kills: most,
        pids_refused: 1,
        disk_full: true,
        files_full: true,
        cpu_us: most,
        memory_peak_bytes: most,
    };
    let facts = merged(lie, counted);
    assert_eq!((facts.cpu_us, facts.memory_peak_bytes, facts.oom_kills), (5, 6, most));
}
