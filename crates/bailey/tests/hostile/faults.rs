//! R19, D12: whatever is killed at whatever moment, nothing keeps running, nothing acknowledged is lost, and the next
//! start finds no trace.

use std::time::Duration;

use rustix::process::Signal;

use crate::host::{self, within};
use crate::residue::{Residue, ledger, server_of_its_own, strays};
use crate::run::Order;
use crate::server::{BRISK, Server, User, alone, kill};

/// A run that is cut short: the answer may be refused, broken off, or whole.
fn cut_short(server: &Server, user: &User, order: &Order) {
    if let Ok(mut answer) = server.post_run(user, order) {
        let mut body = Vec::new();
        std::io::Read::read_to_end(&mut answer.body, &mut body).ok();
    }
}

/// Statuses of the runs of a user, as the server lists them.
fn statuses(server: &Server, user: &User) -> Vec<String> {
    let list = server.request(user, "GET", "/v1/runs", b"").json();
    let runs = list["runs"].as_array().unwrap();
    runs.iter()
        .map(|run| format!("{} {}", run["status"].as_str().unwrap(), run["ending"]["kind"].as_str().unwrap_or("-")))
        .collect()
}

#[test]
fn r19_a_supervisor_killed_at_any_moment_leaves_nothing_for_long() {
    let _guard = alone();
    let _prepared = crate::server::shared();
    let (mut server, own) = server_of_its_own("killed-jail", BRISK);
    let ana = server.user("acme", "ana");
    let ledger = ledger(&server, &ana);
    let folder = server.folder.clone();
    let cache = own.to_string_lossy().into_owned();
    let mut written = 0;
    for step in 0..12_u64 {
        server.put(&ana, "acknowledged", step.to_string().as_bytes());
        written = step;
        let work = Order::shell("echo x > /data/file; sleep 0.01").data(&ana, "work");
        let long = Order::attack("stubborn", &[]);
        std::thread::scope(|scope| {
            for order in [&work, &long, &work] {
                scope.spawn(|| cut_short(&server, &ana, order));
            }
            std::thread::sleep(Duration::from_millis(step * 7));
            server.signal(Signal::KILL);
            assert!(server.wait(Duration::from_secs(5)));
        });
        let dead = within(Duration::from_secs(5), || strays(&ledger).is_empty());
        assert!(dead, "step {step}: {:?}", strays(&ledger));
        // A loop device lasts as long as any process of the dead jail's mount namespace does.
        let image = own.to_string_lossy();
        let let_go = within(Duration::from_secs(5), || host::loops(&image).is_empty());
        assert!(let_go, "step {step}: a child of the dead jail lives: {:?}", host::loops(&image));
        server = Server::start_in(&folder, &[("BAILEY_CACHE", &cache)]);
        let stuck = statuses(&server, &ana).into_iter().filter(|status| status.starts_with("running")).count();
        assert_eq!(stuck, 0, "step {step}: runs of an earlier life are said to run");
        assert_eq!(server.get(&ana, "acknowledged").body, step.to_string().as_bytes(), "an acknowledged write is lost");
        server.run(&ana, &Order::command(&["true"])).succeeded();
    }
    assert_eq!(written, 11);
    let listed = statuses(&server, &ana);
    assert!(listed.iter().any(|status| status == "ended node_restarted"), "{listed:?}");
    assert!(server.stop());
    let gone = within(Duration::from_secs(5), || Residue::outside(&ledger, &own).values().all(|count| *count == 0));
    assert!(gone, "after the last stop: {:?}", Residue::outside(&ledger, &own));
}

#[test]
fn d12_a_server_killed_at_any_moment_takes_its_cages_with_it_and_comes_back() {
    let _guard = alone();
    let _prepared = crate::server::shared();
    let (server, own) = server_of_its_own("killed-serve", BRISK);
    let ana = server.user("acme", "ana");
    let ledger = ledger(&server, &ana);
    for step in 0..6_u64 {
        let live = server.hold(&ana, &Order::attack("stubborn", &[]));
        let (sandbox, run) = (live.so_far().sandbox.clone(), live.so_far().run.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| cut_short(&server, &ana, &Order::shell("echo x > /data/file").data(&ana, "work")));
            std::thread::sleep(Duration::from_millis(step * 5));
            kill(server.serve(), Signal::KILL);
        });
        drop(live);
        let dead = within(Duration::from_secs(5), || host::cage(&sandbox).is_empty());
        assert!(dead, "step {step}: cages of a dead server live");
        assert!(within(Duration::from_secs(10), || server.healthy()), "step {step}: the server does not come back");
        let told = server.request(&ana, "GET", &format!("/v1/runs/{run}"), b"").json();
        assert_eq!(told["ending"]["kind"], "node_restarted", "{told}");
        server.run(&ana, &Order::command(&["true"])).succeeded();
    }
    assert!(server.stop());
    let gone = within(Duration::from_secs(5), || Residue::outside(&ledger, &own).values().all(|count| *count == 0));
    assert!(gone, "after the stop: {:?}", Residue::outside(&ledger, &own));
}

#[test]
fn a_second_server_on_the_same_data_is_refused_and_harms_nothing() {
    let _guard = alone();
    let server = crate::server::shared();
    let ana = server.user("acme", "ana");
    let live = server.hold(&ana, &Order::attack("holder", &[]));
    let second = std::process::Command::new("timeout")
        .arg("20")
        .arg(crate::server::binary())
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(server.data())
        .output()
        .unwrap();
    assert!(!second.status.success() && second.status.code() != Some(124), "{second:?}");
    assert!(live.processes().iter().all(|process| process.alive()), "the second server's sweep killed a sandbox");
    live.end();
    server.run(&ana, &Order::command(&["true"])).succeeded();
}
