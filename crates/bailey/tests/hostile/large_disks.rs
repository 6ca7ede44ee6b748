//! Group R and T again, for runs that write more than their memory holds.

use std::time::Duration;

use bailey_protocol::node::{Ending, LimitHit};
use serde_json::Value;

use crate::host::{cage, within};
use crate::run::Order;
use crate::server::{BRISK, Server, beside_others};

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// Fills the disk, with small writes at last, and says how far it came. A file of the mount is there before.
const FILL: &str = r#"
import errno, os
os.makedirs("/data", exist_ok=True)
open("/data/kept", "w").write("kept")
written = 0
try:
    with open("/tmp/big", "wb", 0) as out:
        for block in (1 << 20, 4096):
            data = (b"canary-large-disk-9d41" * 50000)[:block]
            try:
                while True:
                    written += out.write(data)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
finally:
    print("ready", written, flush=True)
import time
time.sleep(60)
"#;

/// Gets as much of the disk as it can without writing to it, and reads what is there.
const LOOK: &str = r#"
import os
with open("/tmp/look", "w+b") as out:
    os.posix_fallocate(out.fileno(), 0, 900 << 20)
    found = 0
    while block := out.read(1 << 20):
        found += block.count(b"canary") + (len(block) - block.count(0) > 0)
print("found", found, sorted(os.listdir("/tmp")))
"#;

fn server(name: &str) -> Server {
    Server::start(name, &format!("{BRISK}parked = 1\n[large_disks]\ncount = 1\nbytes = {GIB}\ninodes = 20000\n"))
}

fn large(order: Order) -> Order {
    order.limit("memory_bytes", 256 * MIB).limit("disk_bytes", GIB).limit("timeout_ms", 120_000)
}

/// Loop devices over something without a name in this server's folder.
pub(crate) fn loops(server: &Server) -> Vec<String> {
    let home = format!("{}/data/jail/", server.folder.file_name().unwrap().to_str().unwrap());
    let devices = std::fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    let backing = devices.filter_map(|device| std::fs::read_to_string(device.join("loop/backing_file")).ok());
    backing.filter(|backing| backing.contains(&home)).collect()
}

#[test]
fn r05_t06_a_large_disk_is_full_at_its_size_and_empty_for_the_next_tenant() {
    let _guard = beside_others();
    let server = server("large");
    let (ana, bob) = (server.user("acme", "ana"), server.user("globex", "bob"));
    server.put(&ana, "large/there", b"there");
    let live = server.hold(&ana, &large(Order::python(FILL)).data(&ana, "large"));
    assert!(live.so_far().fences.contains(&"sized_image".to_owned()), "{:?}", live.so_far().fences);
    let written: u64 = live.so_far().text().split_whitespace().nth(1).unwrap().parse().unwrap();
    // The run's other files and folders, and the extents of this one, are on it as well.
    assert!((GIB - 4 * MIB..=GIB).contains(&written), "{written}");
    assert_eq!(loops(&server).len(), 1, "{:?}", loops(&server));
    // The only one is taken: who wants one as well waits for it, and sees nothing of what was on it.
    let (outcome, next) = std::thread::scope(|scope| {
        let next = scope.spawn(|| server.start_run(&bob, &large(Order::python(LOOK))).finish());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!next.is_finished(), "two have the only one");
        (live.end(), next.join().unwrap())
    });
    assert!(outcome.hit(LimitHit::Disk) && !outcome.hit(LimitHit::Files), "{:?}", outcome.result);
    assert_eq!(outcome.ending(), Ending::Cancelled, "memory was enough: {}", outcome.summary());
    let looked = next.succeeded();
    assert_eq!(looked.text(), "found 0 ['look']\n");
    assert!(!looked.hit(LimitHit::Disk), "{:?}", looked.result);
    assert!(within(Duration::from_secs(5), || cage(&outcome.sandbox).is_empty() && loops(&server).is_empty()));
}

#[test]
fn r06_inodes_of_a_large_disk_run_out_and_what_is_on_it_lands() {
    let _guard = beside_others();
    let server = server("large-files");
    let ana = server.user("acme", "ana");
    server.put(&ana, "inodes/there", b"there");
    let code = "
import errno, os
os.mkdir('/data/made')
for number in range(100000):
    try:
        os.close(os.open(f'/data/made/{number}' if number < 10 else f'/tmp/{number}', os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        print('made', number, error.errno == errno.ENOSPC)
        break
";
    let order = large(Order::python(code)).data(&ana, "inodes").limit("disk_inodes", 5000);
    let outcome = server.run(&ana, &order).succeeded();
    assert!(outcome.hit(LimitHit::Files) && !outcome.hit(LimitHit::Disk), "{:?}", outcome.result);
    let text = outcome.text();
    let made: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((4900..5128).contains(&made) && text.contains("True"), "{text}");
    let listed = server.request(&ana, "GET", &format!("/v1/tree{}", ana.path("inodes/made")), b"");
    let listed: Value = serde_json::from_slice(&listed.body).unwrap();
    assert_eq!(listed["entries"].as_array().map(Vec::len), Some(10), "{listed}");
}

#[test]
fn a_disk_larger_than_any_is_refused_and_says_what_to_do() {
    let _guard = beside_others();
    let server = server("large-refused");
    let ana = server.user("acme", "ana");
    let greedy = Order::command(&["true"]).limit("memory_bytes", 256 * MIB).limit("disk_bytes", GIB + 1);
    let mut answer = server.post_run(&ana, &greedy).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut answer.body, &mut said).unwrap();
    assert_eq!(answer.status, 400, "{said}");
    assert!(said.contains("invalid_limit") && said.contains("[large_disks]"), "{said}");
}
