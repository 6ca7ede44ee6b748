//! What a program costs in a sandbox that lives already, asked of its agent as the node asks it; writes
//! `bench/results/exec.json`.
//!
//! As root, after `make static` and `bailey template prepare`; `make bench` does all of it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a program for developers")]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bailey_node::agent::{Agent, ExecEvent, Program};
use bailey_node::machine::Machine;
use bailey_node::pool::Recipe;
use bailey_node::tasks::Tasks;
use bailey_node::wall::container::ContainerWall;
use bailey_node::wall::jailed::Jailed;
use bailey_node::wall::{ClaimOrder, Wall};
use bailey_protocol::guest::{GENERATION, InitRequest};
use bailey_protocol::limits::Limits;
use bailey_protocol::node::Ending;
use report::{Goal, Report, Row, Samples};
use tokio::time::Instant;

#[path = "../tests/it/bench.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod bench;
#[path = "../tests/it/fake_wall.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod fake_wall;
#[path = "../tests/it/guest.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod guest;
#[path = "../tests/it/real.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod real;
#[path = "../../bailey/benches/run/report.rs"]
#[allow(dead_code, reason = "the other benches use the rest of it")]
mod report;

const TURNS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (socket, mut jail, template) = real::jail_with(folder.path(), Vec::new());
    let runtime = tokio::runtime::Runtime::new()?;
    let row = runtime.block_on(async {
        let tasks = Tasks::new();
        let jail = bailey_node::jail::JailClient::start(socket, &tasks)?;
        let wall = Arc::new(ContainerWall::new(Jailed::new(jail, tasks.clone(), PATIENCE)));
        let recipe = Recipe {
            wall: Arc::clone(&wall) as Arc<dyn Wall>,
            template,
            limits: Limits::default(),
            up_within: PATIENCE,
            mint: bench::mint(),
            tasks: tasks.clone(),
        };
        measure(&*wall, recipe.make().await?, &tasks).await
    })?;
    // Closes the socket, which is what tells the jail to end, and to take the sandbox with it.
    runtime.shutdown_timeout(PATIENCE);
    jail.wait()?;
    let mut report = Report::default();
    report.push(row);
    print!("{}", report.table());
    report.write("exec.json")
}

/// One `true` after the other in one sandbox, each on a connection of its own, beside bare processes of the host.
async fn measure(wall: &dyn Wall, mut machine: Machine, tasks: &Tasks) -> anyhow::Result<Row> {
    let limits = Limits::default();
    let order = ClaimOrder { share: "0".repeat(32).parse()?, limits, mounts: Vec::new() };
    wall.claim(&machine.live(), order).await?;
    let init = InitRequest {
        generation: GENERATION,
        env: BTreeMap::new(),
        mounts: Vec::new(),
        root: false,
        open_files: limits.open_files,
    };
    machine.take_agent().unwrap().init(&init).await?;
    let program = Program::new(&["true".to_owned()], None, false).unwrap();
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for _ in 0..TURNS {
        let start = Instant::now();
        let mut exec = Agent::connect(machine.transport(), tasks).await?.start(&program).await?;
        let ended = exec.next().await?;
        ours.push(start.elapsed());
        anyhow::ensure!(ended == ExecEvent::Ended(Ending::Exited { code: 0 }), "{ended:?}");
        let start = Instant::now();
        let status = Command::new("true").stdin(Stdio::null()).status()?;
        bare.push(start.elapsed());
        anyhow::ensure!(status.success(), "{status}");
    }
    let note = "over the agent's own protocol, without the API".to_owned();
    let name = "exec of true in a live sandbox".to_owned();
    Ok(Row::latency(name, &ours, "the same as a process of the host", &bare, Some(Goal::AtMost(2.0)), note))
}
