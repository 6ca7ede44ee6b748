//! Attacks on PID 1, on the channel behind `sudo`, and on everything else that answers inside a sandbox.

use std::net::TcpListener;
use std::time::Duration;

use bailey_protocol::node::Ending;

use crate::host::{cage, within};
use crate::run::Order;
use crate::server::{beside_others, shared};

const MIB: u64 = 1024 * 1024;

#[test]
fn pid_1_survives_garbage_signals_and_crowds_and_gives_no_root() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    for order in [Order::attack("shim", &[]), Order::attack("shim", &["all"]).root(), Order::attack("shim", &["all"])] {
        let asked_for_root = format!("{order:?}").contains("\"root\"");
        let live = server.hold(&ana, &order.limit("timeout_ms", 50_000));
        let init = live.init();
        assert!(init.alive(), "PID 1 died");
        assert!(!init.status("State").unwrap().starts_with('T'), "PID 1 is stopped");
        assert!(init.resident() < 64 * MIB, "PID 1 has {} bytes", init.resident());
        assert!(init.descriptors().len() < 600, "PID 1 has {} descriptors", init.descriptors().len());
        let roots = live
            .code()
            .into_iter()
            .filter(|process| process.uid_inside() == Some(0) || process.uid() == Some(0))
            .count();
        assert!(asked_for_root || roots == 0, "{roots} processes are root");
        assert!(live.code().iter().all(|process| process.uid().unwrap() >= bailey_protocol::jail::CAGE_UID_BASE));
        let outcome = live.end();
        assert_eq!(outcome.ending(), Ending::Cancelled, "{}", outcome.summary());
        assert!(within(Duration::from_secs(3), || cage(&outcome.sandbox).is_empty()));
    }
    server.run(&ana, &Order::shell("true")).succeeded();
}

#[test]
fn killing_everything_inside_ends_the_run_and_nothing_else() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let neighbour = server.hold(&gus, &Order::attack("holder", &[]));
    let before = neighbour.processes();
    for code in
        ["kill -9 -1; kill -9 1; sleep 30", "kill -9 $$", "sudo kill -9 -1; sudo kill -9 1; sudo pkill -9 .; sleep 30"]
    {
        let order = Order::shell(code).limit("timeout_ms", 3000);
        let outcome = server.run(&ana, &if code.contains("sudo") { order.root() } else { order });
        assert!(outcome.result.is_some() || outcome.failed.is_some(), "`{code}`: {}", outcome.summary());
        assert!(within(Duration::from_secs(3), || cage(&outcome.sandbox).is_empty()));
    }
    assert_eq!(neighbour.processes(), before);
    neighbour.end();
    assert!(server.healthy());
}

#[test]
fn n23_nothing_that_listens_on_the_host_can_be_reached() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let ports = [listener.local_addr().unwrap().port().to_string(), server.address.port().to_string()];
    let path = std::path::Path::new("/tmp").join(format!("bailey-hostile-{}", std::process::id()));
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    unix.set_nonblocking(true).unwrap();
    let code = "import socket,sys\n\
        for host in ('127.0.0.1','0.0.0.0','localhost','169.254.169.254','10.0.0.1','::1','::ffff:127.0.0.1','8.8.8.8'):\n\
        \x20for port in sys.argv[2:]:\n\
        \x20 try:\n\
        \x20  with socket.create_connection((host,int(port)),1) as s: s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print('reached',host,port,s.recv(100))\n\
        \x20 except OSError: pass\n\
        for prefix in ('','/proc/1/root','/proc/self/root'):\n\
        \x20try:\n\
        \x20 s=socket.socket(socket.AF_UNIX); s.connect(prefix+sys.argv[1]); print('reached unix')\n\
        \x20except OSError: pass\n\
        try:\n\
        \x20s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.sendto(b'x',('127.0.0.1',int(sys.argv[2]))); s.sendto(b'x',('8.8.8.8',53)); print('sent')\n\
        except OSError: pass\n\
        print('tried')";
    let path_text = path.to_string_lossy().into_owned();
    let command = ["python3", "-c", code, &path_text, &ports[0], &ports[1]];
    let arm = std::process::Command::new("bash")
        .args(["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo reached", ports[0])])
        .output()
        .unwrap();
    assert!(arm.stdout.starts_with(b"reached") && listener.accept().is_ok(), "the arm reached nothing");
    let outcome = server.run(&ana, &Order::command(&command)).succeeded();
    assert!(outcome.text().contains("tried"));
    assert!(listener.accept().is_err(), "the sandbox reached a listener of the host");
    assert!(unix.accept().is_err(), "the sandbox reached a socket of the host");
    assert!(!outcome.text().contains("reached"), "{}", outcome.summary());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn k33_clocks_cannot_be_set_and_do_not_tell_the_hosts_uptime() {
    let _guard = beside_others();
    let uptime =
        || -> f64 { std::fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap() };
    let server = shared();
    let ana = server.user("acme", "ana");
    let code = "import time,os\n\
        for c in (time.CLOCK_REALTIME,time.CLOCK_MONOTONIC,time.CLOCK_BOOTTIME):\n\
        \x20try: time.clock_settime(c,1.0); print('set')\n\
        \x20except OSError: pass\n\
        os.system('date -s 2001-01-01 2>/dev/null')\n\
        print('uptime',time.clock_gettime(time.CLOCK_BOOTTIME),time.clock_gettime(time.CLOCK_MONOTONIC))";
    let before = uptime();
    let outcome = server.run(&ana, &Order::python(code)).succeeded();
    assert!(uptime() >= before && !outcome.text().contains("set\n"), "{}", outcome.text());
    let line = outcome.text();
    let line = line.lines().find(|line| line.starts_with("uptime")).unwrap().to_owned();
    for told in line.split(' ').skip(1) {
        let told: f64 = told.parse().unwrap();
        assert!((told - uptime()).abs() > 5.0, "a clock tells the host's uptime: {told}");
    }
}

#[test]
fn k30_code_installs_no_filter_of_its_own() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    // Every filter costs the host memory that no cgroup is charged for, and locks that other sandboxes' starts need.
    let code = "import ctypes,struct,os\n\
        l=ctypes.CDLL(None,use_errno=True)\n\
        allow=ctypes.create_string_buffer(struct.pack('=HBBI',6,0,0,0x7fff0000)*4000)\n\
        prog=ctypes.create_string_buffer(struct.pack('=HxxxxxxQ',4000,ctypes.addressof(allow)))\n\
        l.prctl(38,1,0,0,0)\n\
        for flags in 0,1,2,4,8,16:\n\
        \x20 for high in 0,1<<32: print(l.syscall(317,ctypes.c_ulong(high|1),ctypes.c_ulong(flags),prog),ctypes.get_errno())\n\
        for high in 0,1<<32: print(l.prctl(22,ctypes.c_ulong(high|2),prog,0,0),ctypes.get_errno())\n\
        print(open('/proc/self/status').read().split('Seccomp_filters:')[1].split()[0])";
    let outcome = server.run(&ana, &Order::python(code).limit("timeout_ms", 20_000)).succeeded();
    let text = outcome.text();
    let (answers, filters) = text.trim().rsplit_once('\n').unwrap();
    // The prctl with a high bit is no mode at all to the kernel, whatever the filter makes of it.
    assert!(answers.lines().all(|line| line == "-1 1"), "{text}");
    // PID 1's two and the three of every exec.
    assert_eq!(filters, "5", "{text}");
}
