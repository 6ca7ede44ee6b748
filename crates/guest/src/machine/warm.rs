//! `POST /warm`: commands that run before anybody has the machine, for what they leave in memory.
//!
//! They are the template's, or the node's own. What they wrote goes with the parked root; what they started is killed
//! here, so that no process, and with it no generator that was seeded, comes along into a copy.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use bailey_protocol::guest::MachineWarm;
use bailey_protocol::limits::MAX_ARGS;
use bailey_sys::child::Folder;
use hyper::body::Incoming;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::{Machine, Phase};
use crate::agent::connect::{Answer, Code, RpcError, invalid, json_answer, read_unary};
use crate::agent::{Agent, Settings};
use crate::exec::environment;
use crate::exec::identity::User;
use crate::exec::registry::Exit;
use crate::exec::start::{Launch, launch, read_report};

/// Most commands in one request.
const MOST: usize = 64;
/// Time between two looks for whether anything is left.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Open files of a command.
const OPEN_FILES: u64 = 1024;

pub(crate) async fn warm(agent: &Rc<Agent>, body: Incoming) -> Result<Answer, RpcError> {
    let Some(machine) = &agent.machine else {
        return Err(RpcError::new(Code::NotFound, "this guest has no machine of its own"));
    };
    let request: MachineWarm = read_unary(body).await?;
    let whole = |command: &Vec<String>| !command.is_empty() && command.len() <= MAX_ARGS;
    if request.commands.len() > MOST || !request.commands.iter().all(whole) {
        return Err(invalid(format!("at most {MOST} commands, and none of them empty")));
    }
    if machine.phase.get() != Phase::Parked {
        return Err(RpcError::new(Code::FailedPrecondition, "the machine is not parked"));
    }
    // Whoever goes away meanwhile leaves a machine that can only be ended.
    machine.phase.set(Phase::Warming);
    let ran = run_all(agent, &request.commands).await;
    settle(machine).await?;
    agent.cgroups.sweep();
    agent.cgroups.prepare_spare();
    machine.phase.set(Phase::Parked);
    ran.map(|()| json_answer(&serde_json::json!({})))
}

async fn run_all(agent: &Rc<Agent>, commands: &[Vec<String>]) -> Result<(), RpcError> {
    for command in commands {
        match run(agent, command).await? {
            Exit::Code(0) => {}
            Exit::Code(code) => return Err(failed(command, &format!("it exited with {code}"))),
            Exit::Signal(signal) => return Err(failed(command, &format!("it was ended by signal {signal}"))),
        }
    }
    Ok(())
}

/// Runs one command to its end, with nothing to read and nobody to listen.
async fn run(agent: &Rc<Agent>, command: &[String]) -> Result<Exit, RpcError> {
    let program = command.first().map_or("", String::as_str);
    let settings = Settings { env: BTreeMap::new(), root: false, open_files: OPEN_FILES };
    let environment = environment::build(User::User, false, &settings.env, &BTreeMap::new());
    let programs = environment::candidates(program, None)?;
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed(command, &format!("open /dev/null: {errno}")))?;
    let folder = CString::new(User::User.home()).map_err(|_nul| failed(command, "its folder"))?;
    let group = agent.cgroups.take().map_err(|errno| failed(command, &format!("make a cgroup: {errno}")))?;
    let child = launch(
        agent,
        &settings,
        &Launch {
            programs: &programs,
            arguments: command.iter().map(|word| word.clone().into_bytes()).collect(),
            environment: environment.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
            folder: Folder::Path(&folder),
            stdio: [null.as_fd(); 3],
            terminal: false,
            user: User::User,
            group: &group,
        },
    );
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            agent.cgroups.retire(group);
            return Err(error);
        }
    };
    let ended = agent.registry.borrow_mut().wait_for(child.pid);
    let result = match read_report(child.report).await {
        Some(failure) => Err(failed(command, &failure.to_string())),
        None => Ok(ended.await.unwrap_or(Exit::Signal(libc::SIGKILL))),
    };
    agent.cgroups.retire(group);
    result
}

/// Waits until nothing but PID 1 is left.
async fn settle(machine: &Machine) -> Result<(), RpcError> {
    while machine.ground.kill_all()? {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

fn failed(command: &[String], why: &str) -> RpcError {
    let program = command.first().map_or("", String::as_str);
    RpcError::new(Code::Internal, format!("warm up with `{program}`: {why}"))
}
