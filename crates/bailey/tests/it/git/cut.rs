//! A clone that is forbidden while it goes on.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Git;
use crate::server::{Server, eventually, text};

/// More than sockets hold between a server and a client that does not read.
const BYTES: usize = 48 << 20;
/// What of an answer passes before it is held up.
const PASSES: usize = 1 << 20;

/// Stands between a client and the server: an answer that is large stops on its way until it is let go.
struct Gate {
    url: String,
    held: Receiver<()>,
    go: Sender<()>,
}

impl Gate {
    fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = server.url.strip_prefix("http://").unwrap().to_owned();
        let ((tell, held), (go, wait)) = (mpsc::channel(), mpsc::channel());
        let wait = Arc::new(Mutex::new(wait));
        // Ends with the test's process, or with its last connection.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let upstream = TcpStream::connect(&target).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                std::thread::spawn(move || drop(std::io::copy(&mut from, &mut to)));
                let (tell, wait) = (tell.clone(), Arc::clone(&wait));
                std::thread::spawn(move || answer(upstream, client, &tell, &wait));
            }
        });
        Self { url, held, go }
    }
}

fn answer(mut from: TcpStream, mut to: TcpStream, tell: &Sender<()>, wait: &Mutex<Receiver<()>>) {
    let (mut passed, mut buffer) = (0, vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let before = passed;
        passed += count;
        if before < PASSES && passed >= PASSES {
            tell.send(()).unwrap();
            // Let go, or the test is over.
            wait.lock().unwrap().recv().unwrap_or_default();
        }
        if to.write_all(buffer.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Both));
}

#[test]
fn a_clone_that_policy_forbids_on_the_way_breaks_off() {
    let server = Server::start();
    let (ana, boss) = (server.user("acme", "ana"), server.admin("acme", "boss"));
    let folder = tempfile::tempdir().unwrap();
    let big = folder.path().join("big");
    // Nothing that could be packed.
    let mut random = std::fs::File::open("/dev/urandom").unwrap().take(BYTES as u64);
    std::io::copy(&mut random, &mut std::fs::File::create(&big).unwrap()).unwrap();
    ana.ok(&["put", big.to_str().unwrap(), "/tenants/acme/d/big"]);
    let gate = Gate::before(&server);
    let git = Git { url: format!("{}/git/acme.git", gate.url), ..Git::new(&server, &ana, "acme") };
    let mut cloning = git.command("", &["clone", "-q", &git.url, "copy"]);
    let cloning = cloning.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    gate.held.recv_timeout(Duration::from_secs(60)).expect("git sends nothing");
    let policy = folder.path().join("policy");
    let rule = r#"@reason("it moved") forbid (principal, action == Action::"tree_read", resource)
        when { resource has path && resource.path == "/tenants/acme/d/big" };"#;
    std::fs::write(&policy, rule).unwrap();
    boss.ok(&["policy", "put", "closed", policy.to_str().unwrap()]);
    let denied = ["audit", "--decision", "denied", "--action", "tree_read", "--user", "ana"];
    eventually("the clone is denied", || boss.ok(&denied).contains("/tenants/acme/d/big"));
    gate.go.send(()).unwrap();
    let output = cloning.wait_with_output().unwrap();
    assert!(!output.status.success(), "the clone was taken for whole: {}", text(&output.stderr));
    assert!(!git.path("copy").join("d/big").exists());
    // Who asks again is told why.
    let said = git.fails("", &["clone", "-q", &git.url, "again"]);
    assert!(said.contains("tenant/closed") || said.contains("403"), "{said}");
}
