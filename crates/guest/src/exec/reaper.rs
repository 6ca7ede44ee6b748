//! The one place where processes are reaped: execs' leaders, and every orphan of the sandbox.

use std::io;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::process::WaitOptions;
use tokio::io::Interest;

use super::registry::Exit;
use crate::agent::Agent;
use crate::descriptor::{Watched, watch};

/// Processes reaped before others get a turn.
const BATCH: usize = 256;

/// A descriptor that is readable when a child has ended. From here on the signal itself is blocked.
///
/// # Errors
/// When the kernel refuses.
pub fn children() -> io::Result<Watched> {
    let signals = bailey_sys::signal::as_descriptor(&[libc::SIGCHLD])?;
    watch(signals, Interest::READABLE)
}

/// Reaps for ever.
///
/// # Errors
/// When the descriptor fails.
pub async fn run(agent: &Rc<Agent>, children: &Watched) -> io::Result<()> {
    let mut records = [0_u8; 128];
    loop {
        let mut ready = children.readable().await?;
        // Signals of one kind are merged, so one record stands for any number of children.
        match rustix::io::read(children.get_ref(), &mut records) {
            Err(Errno::AGAIN) => ready.clear_ready(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while reap(agent) {
            tokio::task::yield_now().await;
        }
        agent.cgroups.sweep();
    }
}

/// Reaps a batch; says whether there may be more.
fn reap(agent: &Agent) -> bool {
    for _ in 0..BATCH {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(exit) = Exit::from_status(status) {
                    agent.registry.borrow_mut().reaped(pid, exit);
                }
            }
            Ok(None) | Err(_) => return false,
        }
    }
    true
}
