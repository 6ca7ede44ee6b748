//! Says on standard error what takes long. Work of less than two seconds says nothing.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `work`; once two seconds have passed, and every ten after, says that it is still doing `what`.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            let mut seconds = 0_u64;
            let mut pause = 2;
            while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(Duration::from_secs(pause)) {
                seconds += pause;
                match seconds {
                    2 => eprintln!("bailey: {what} …"),
                    _ => eprintln!("bailey: {what} … {seconds} s"),
                }
                pause = if seconds == 2 { 8 } else { 10 };
            }
        });
        let result = work();
        drop(done);
        result
    })
}
