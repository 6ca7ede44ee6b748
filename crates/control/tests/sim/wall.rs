//! A wall without isolation whose guests do what fate says: what they were asked for, or worse.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bailey_node::tasks::Tasks;
use bailey_node::wall::{BoxFuture, Capabilities, Changes, ClaimOrder, Hold, Live, Parked, Wall, WallError};
use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::id::{SandboxId, ShareTag, TemplateDigest};
use bailey_protocol::jail::StopFacts;
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

use crate::fate::Fate;
use crate::guest::{self, Script, Step, Written, answer, exited, output, started, stream_head};

/// What a guest's program starts with that writes a file: `write=NAME=CONTENT`.
pub const WRITE: &str = "write=";
/// And one that goes on until somebody stops it.
pub const LINGER: &str = "linger";

pub struct SimWall {
    fate: Arc<Fate>,
    tasks: Tasks,
    /// Most sandboxes of one tenant that may be claimed at once.
    most: usize,
    sandboxes: Mutex<BTreeMap<SandboxId, Sandbox>>,
}

struct Sandbox {
    guest: AbortHandle,
    life: Option<OwnedFd>,
    claimed: Option<ShareTag>,
    asked: Asked,
}

/// The file that the program was asked to write.
type Asked = Arc<Mutex<Option<(String, String)>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimWall {
    pub fn new(fate: Arc<Fate>, tasks: Tasks, most: usize) -> Arc<Self> {
        Arc::new(Self { fate, tasks, most, sandboxes: Mutex::default() })
    }

    /// Sandboxes that are there.
    pub fn alive(&self) -> usize {
        lock(&self.sandboxes).len()
    }

    /// Waits for a while, or fails.
    async fn may_fail(&self, call: &'static str, many: u64) -> Result<(), WallError> {
        let (pause, fails) = self.fate.dice(|dice| (dice.below(10), dice.one_in(many)));
        self.fate.step();
        tokio::time::sleep(Duration::from_millis(pause)).await;
        self.fate.note(|| format!("wall {call} fails={fails}"));
        if fails && !self.fate.is_calm() { Err(WallError::Overdue { op: call }) } else { Ok(()) }
    }
}

impl fmt::Debug for SimWall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimWall")
    }
}

impl Wall for SimWall {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kind: WallKind::Container, accelerated: None }
    }

    fn park(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        _limits: Limits,
    ) -> BoxFuture<'static, Result<Parked, WallError>> {
        Box::pin(async move {
            self.may_fail("park", 40).await?;
            let (stream, theirs) = UnixStream::pair().unwrap();
            let asked = Asked::default();
            let script = script(Arc::clone(&self.fate), Arc::clone(&asked));
            let guest = self.tasks.spawn(guest::play(theirs, script, Written::default())).abort_handle();
            let (death, life) = StdUnixStream::pair().unwrap();
            let state = Sandbox { guest, life: Some(life.into()), claimed: None, asked };
            assert!(lock(&self.sandboxes).insert(sandbox.clone(), state).is_none(), "an id was used twice");
            let hold = Hold::new(sandbox, Arc::clone(&self) as Arc<dyn Wall>, self.tasks.clone());
            Ok(Parked {
                hold,
                template,
                fences: vec!["none".to_owned()],
                stream,
                death: death.into(),
                warm: Vec::new(),
            })
        })
    }

    fn claim<'a>(&'a self, live: &'a Live, order: ClaimOrder) -> BoxFuture<'a, Result<Vec<String>, WallError>> {
        Box::pin(async move {
            self.may_fail("claim", 40).await?;
            let mut sandboxes = lock(&self.sandboxes);
            let going = sandboxes.values().filter(|sandbox| sandbox.claimed.as_ref() == Some(&order.share)).count();
            assert!(going < self.most, "a tenant has {} runs going, of {} allowed", going + 1, self.most);
            let state = sandboxes.get_mut(&live.sandbox).unwrap();
            assert!(state.claimed.replace(order.share).is_none(), "a sandbox serves two runs");
            Ok(Vec::new())
        })
    }

    fn stop<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<StopFacts, WallError>> {
        Box::pin(async move {
            self.may_fail("stop", 60).await?;
            let mut sandboxes = lock(&self.sandboxes);
            let state = sandboxes.get_mut(&live.sandbox).unwrap();
            state.guest.abort();
            (state.life, state.claimed) = (None, None);
            Ok(StopFacts::default())
        })
    }

    fn collect<'a>(&'a self, live: &'a Live, mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>> {
        Box::pin(async move {
            self.may_fail("collect", 30).await?;
            let asked = lock(&lock(&self.sandboxes)[&live.sandbox].asked).clone();
            let Some(asked) = asked else { return Ok(None) };
            let mut bytes = changes(&asked);
            // What goes wrong with a stream: it breaks, it is cut short, it stops.
            let end = match self.fate.dice(|dice| dice.below(if self.fate.is_calm() { 1 } else { 20 })) {
                17 => StreamEnd::Broken,
                18 => StreamEnd::Silent,
                19 => {
                    bytes.pop();
                    StreamEnd::Whole
                }
                _ => StreamEnd::Whole,
            };
            self.fate.note(|| format!("wall collects mount {mount}: {} bytes, {end:?}", bytes.len()));
            Ok(Some(Box::pin(ChangeStream { bytes, end }) as Changes))
        })
    }

    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(async move {
            let gone = lock(&self.sandboxes).remove(sandbox).expect("destroyed twice or never made");
            gone.guest.abort();
            self.fate.note(|| format!("wall destroy {sandbox}"));
            Ok(())
        })
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// What a guest does whenever it is asked for something.
fn script(fate: Arc<Fate>, asked: Asked) -> Script {
    Arc::new(move |path, body| {
        fate.step();
        let chance = fate.dice(|dice| if fate.is_calm() { 0 } else { dice.below(100) });
        fate.note(|| format!("guest {path} {chance}"));
        let worse = |steps: Vec<Step>| match chance {
            97 => vec![Step::Hang],
            98 => vec![Step::Die],
            99 => vec![Step::Say(b"HTTP/9 nonsense\r\n\r\n".to_vec()), Step::Hang],
            _ => steps,
        };
        match path {
            "/health" => worse(vec![Step::Say(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())]),
            "/init" => worse(vec![Step::Say(answer("200 OK", "application/json", br#"{"fences":["landlock"]}"#))]),
            "/process.Process/Start" => {
                let text = String::from_utf8_lossy(body);
                *lock(&asked) = text.split_once(WRITE).and_then(|(_, rest)| {
                    let (name, rest) = rest.split_once('=')?;
                    Some((name.to_owned(), rest.split('"').next()?.to_owned()))
                });
                let begun = [stream_head(), started()].concat();
                let takes = Step::Wait(Duration::from_millis(fate.dice(|dice| dice.below(60))));
                let lingers = text.contains(LINGER);
                worse(match chance {
                    _ if lingers => vec![Step::Say(begun), Step::Wait(Duration::from_secs(1)), Step::Say(exited(0))],
                    0..70 => {
                        vec![Step::Say(begun), Step::Say(output("stdout", b"hello\n")), takes, Step::Say(exited(0))]
                    }
                    70..78 => vec![Step::Say(begun), takes, Step::Say(exited(3))],
                    78..86 => vec![Step::Say(begun), Step::Hang],
                    86..91 => vec![Step::Say(begun), takes, Step::Die],
                    91..94 => vec![Step::Say(begun), takes, Step::Close],
                    _ => vec![Step::Say(begun), Step::Say(b"zz\r\n".to_vec()), Step::Hang],
                })
            }
            _ => worse(vec![Step::Say(answer("200 OK", "application/json", b"{}"))]),
        }
    })
}

fn changes((name, content): &(String, String)) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let header = Header::File { path: name.as_bytes(), executable: false, size: content.len() as u64 };
    header.encode(&mut out).unwrap();
    out.extend_from_slice(content.as_bytes());
    Header::End { records: 1 }.encode(&mut out).unwrap();
    out
}

/// The bytes of a change stream, and then its end.
struct ChangeStream {
    bytes: Vec<u8>,
    end: StreamEnd,
}

#[derive(Debug, Clone, Copy)]
enum StreamEnd {
    Whole,
    Broken,
    Silent,
}

impl AsyncRead for ChangeStream {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return match self.end {
                StreamEnd::Whole => Poll::Ready(Ok(())),
                StreamEnd::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                StreamEnd::Silent => Poll::Pending,
            };
        }
        let count = self.bytes.len().min(out.remaining()).min(7);
        out.put_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        Poll::Ready(Ok(()))
    }
}
