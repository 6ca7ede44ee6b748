//! Where a process meets the test that may kill it.
//!
//! An abstract Unix socket, as the server and the jail live in roots of their own, and in the host's network. A step is
//! one connection: the number of the point goes out, and the process goes on when a byte, or the end, comes back.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::OnceLock;

use crate::Point;

/// Names the socket. A process without it goes its way.
const VARIABLE: &str = "BAILEY_CRASH_POINTS";

fn socket() -> Option<&'static OsString> {
    static NAME: OnceLock<Option<OsString>> = OnceLock::new();
    NAME.get_or_init(|| std::env::var_os(VARIABLE)).as_ref()
}

pub(crate) fn environment() -> Vec<(String, String)> {
    let name = socket().and_then(|name| name.to_str());
    name.map(|name| (VARIABLE.to_owned(), name.to_owned())).into_iter().collect()
}

pub(crate) fn stand_still(point: Point) {
    let Some(name) = socket() else { return };
    // A test that is gone, or going, lets everybody pass.
    let meet = || {
        let mut line = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
        line.write_all(&[point.number()])?;
        line.read(&mut [0])
    };
    meet().ok();
}
