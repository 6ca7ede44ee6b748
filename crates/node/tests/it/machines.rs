//! The `microvm` wall over the real jail, QEMU and Debian's cloud kernel. Needs `bailey template prepare --wall microvm`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use bailey_node::agent::{ExecEvent, Program};
use bailey_node::jail::JailClient;
use bailey_node::machine::Machine;
use bailey_node::tasks::Tasks;
use bailey_node::wall::jailed::Jailed;
use bailey_node::wall::microvm::{MicrovmConfig, MicrovmWall};
use bailey_node::wall::streamed::{self, Origin, Origins, Streamed};
use bailey_node::wall::{ClaimOrder, Wall, WallError};
use bailey_protocol::guest::{GENERATION, InitRequest};
use bailey_protocol::id::ShareTag;
use bailey_protocol::limits::Limits;
use bailey_protocol::node::Ending;
use tokio::time::Instant;

use crate::bench::mint;
use crate::real;

const MIB: u64 = 1024 * 1024;
/// What a test may take on a host that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);
/// In no snapshot, though this process has it.
const CANARY: &str = "canary-of-the-host-7f3a91c2";

/// A jail with the image of the machines.
struct Bench {
    jail: Child,
    streamed: Streamed,
    tasks: Tasks,
    config: MicrovmConfig,
}

impl Bench {
    /// Called inside a runtime.
    fn start(name: &str) -> Self {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let folder = data.join("attached/machines");
        std::fs::create_dir_all(&data).unwrap();
        drop(std::fs::remove_dir_all(&folder));
        let (image, config) = real::microvm(&folder, 768 * MIB);
        let images = vec![image];
        let (socket, jail, _) = real::jail_with(&data, images);
        let tasks = Tasks::new();
        let streamed = streamed(socket, &tasks);
        Self { jail, streamed, tasks, config }
    }

    fn config(&self) -> MicrovmConfig {
        MicrovmConfig { canaries: vec![CANARY.as_bytes().to_vec()], ..self.config.clone() }
    }

    async fn wall(&self, config: MicrovmConfig) -> Arc<MicrovmWall> {
        MicrovmWall::start(self.streamed.clone(), config, real::processor(), mint()()).await.unwrap()
    }

    /// The monitors that there are: they are the jail's children.
    fn monitors(&self) -> Vec<rustix::process::Pid> {
        let is_one = |pid: &i32| {
            let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
            status.starts_with("Name:\tqemu-system") && status.contains(&format!("\nPPid:\t{}\n", self.jail.id()))
        };
        let all =
            std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let found: Vec<i32> = all.filter(is_one).collect();
        assert!(!found.is_empty(), "no monitor");
        found.into_iter().filter_map(rustix::process::Pid::from_raw).collect()
    }

    /// A parked machine, and how long that took.
    async fn park(&self, wall: &Arc<MicrovmWall>) -> (Machine, Duration) {
        let begun = Instant::now();
        let template = self.config.template.clone();
        let parked = Arc::clone(wall).park(mint()(), template, Limits::default()).await.unwrap();
        let machine = Machine::up(parked, PATIENCE, &self.tasks).await.unwrap();
        (machine, begun.elapsed())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _gone = self.jail.kill();
        let _reaped = self.jail.wait();
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn now() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).try_into().unwrap()
}

fn streamed(socket: OwnedFd, tasks: &Tasks) -> Streamed {
    let jail = JailClient::start(socket, &Tasks::new()).unwrap();
    let origins: Origins = Arc::new(|| {
        let mut random = [0; Origin::RANDOM];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(Origin { now_ns: u64::try_from(now().as_nanos()).unwrap(), random })
    });
    let patience = streamed::Patience { answer: PATIENCE, slice: PATIENCE, stop: PATIENCE };
    Streamed::new(Jailed::new(jail, tasks.clone(), PATIENCE), origins, patience)
}

fn order() -> ClaimOrder {
    ClaimOrder { share: "a".repeat(32).parse::<ShareTag>().unwrap(), limits: Limits::default(), mounts: Vec::new() }
}

/// What a program in a claimed machine writes.
async fn output(mut machine: Machine, command: &[&str]) -> String {
    let mut agent = machine.take_agent().unwrap();
    let init =
        InitRequest { generation: GENERATION, env: BTreeMap::new(), mounts: Vec::new(), root: false, open_files: 1024 };
    agent.init(&init).await.unwrap();
    let mut exec = agent.start(&Program::new(&words(command), None, false).unwrap()).await.unwrap();
    let mut said = Vec::new();
    loop {
        match exec.next().await.unwrap() {
            ExecEvent::Output(_, bytes) => said.extend_from_slice(&bytes),
            ExecEvent::Ended(ending) => {
                let said = String::from_utf8(said).unwrap();
                assert_eq!(ending, Ending::Exited { code: 0 }, "{said}");
                return said;
            }
        }
    }
}

/// What one program says of the machine that it is in; the time is its first line.
const PROBE: &str = "import time, os, random, uuid, secrets
print(repr(time.time()))
print(os.getrandom(16).hex())
print(open('/proc/sys/kernel/random/uuid').read().strip())
print(open('/proc/sys/kernel/random/boot_id').read().strip())
print(open('/etc/machine-id').read().strip())
print(os.uname().nodename)
print(random.getrandbits(128))
print(uuid.uuid4())
print(secrets.token_hex(16))";

#[tokio::test(flavor = "multi_thread")]
async fn every_clone_is_a_machine_of_its_own() {
    let bench = Bench::start("machines");
    let wall = bench.wall(bench.config()).await;
    let clones: usize = if std::env::var_os("BAILEY_LONG").is_some() { 1000 } else { 6 };
    let mut seen = vec![BTreeSet::new(); 8];
    for number in 0..clones {
        let (machine, took) = bench.park(&wall).await;
        let begun = Instant::now();
        let fences = wall.claim(&machine.live(), order()).await.unwrap();
        assert!(fences.iter().any(|fence| fence == "entropy"), "{fences:?}");
        let claimed = begun.elapsed();
        let before = now();
        let told = output(machine, &["python3", "-c", PROBE]).await;
        let ran = begun.elapsed();
        println!("clone {number}: parked after {took:?}, claimed {claimed:?}, ran {ran:?}");
        let mut lines = told.lines();
        let clock = Duration::from_secs_f64(lines.next().unwrap().parse().unwrap());
        let slack = Duration::from_millis(50);
        assert!(
            clock + slack >= before && clock <= now() + slack,
            "{clock:?} is not within {before:?} and {:?}",
            now()
        );
        for (values, value) in seen.iter_mut().zip(lines) {
            assert!(values.insert(value.to_owned()), "`{value}` a second time");
        }
    }
    assert!(seen.iter().all(|values| values.len() == clones), "{seen:?}");
    // What is on disk is used again, and what somebody has touched is not.
    let path = bench.config.folder.join("machine");
    let first = std::fs::read(&path).unwrap();
    let begun = Instant::now();
    let wall = bench.wall(bench.config()).await;
    println!("a snapshot that was there: {:?}, {} MiB", begun.elapsed(), first.len() as u64 / MIB);
    assert!(std::fs::read(&path).unwrap() == first, "it was made anew");
    bench.park(&wall).await;
    let mut touched = first.clone();
    let middle = touched.len() / 2;
    touched[middle] ^= 1;
    std::fs::write(&path, &touched).unwrap();
    let wall = bench.wall(bench.config()).await;
    assert!(std::fs::read(&path).unwrap() != touched, "it was taken as it is");
    bench.park(&wall).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_start_without_a_snapshot_too() {
    let bench = Bench::start("machines-cold");
    let begun = Instant::now();
    let wall = bench.wall(MicrovmConfig { cold: true, ..bench.config() }).await;
    assert!(!wall.capabilities().accelerated.unwrap());
    let (machine, took) = bench.park(&wall).await;
    println!("booted after {took:?}");
    wall.claim(&machine.live(), order()).await.unwrap();
    assert_eq!(output(machine, &["uname", "-s"]).await, "Linux\n");
    assert!(!bench.config.folder.join("machine").exists(), "a snapshot after {:?}", begun.elapsed());
    let (machine, _) = bench.park(&wall).await;
    let large = ClaimOrder { limits: Limits { memory_bytes: 4096 * MIB, ..Limits::default() }, ..order() };
    let refused = wall.claim(&machine.live(), large).await;
    assert!(matches!(refused, Err(WallError::Unable(_))), "{refused:?}");
    // Parked or not, a machine ends with its monitor, and everybody is told.
    for pid in bench.monitors() {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    tokio::time::timeout(Duration::from_secs(10), machine.died()).await.expect("it lives without its monitor");
    assert!(!machine.is_alive());
    let facts = wall.stop(&machine.live()).await.unwrap();
    assert!(facts.oom_kills == 0, "{facts:?}");
}
