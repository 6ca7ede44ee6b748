//! Pseudo terminals.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// Both ends of a new pseudo terminal.
#[derive(Debug)]
pub struct Pty {
    /// What the keyboard writes to and the screen reads from.
    pub master: OwnedFd,
    /// What the program has as its standard input and outputs.
    pub terminal: OwnedFd,
}

/// Opens a pseudo terminal of the file system at `/dev/pts`, owned by `uid` and `gid`.
///
/// # Errors
/// When there is no such file system, or no terminal left.
pub fn open(uid: Uid, gid: Gid) -> Result<Pty, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    // By descriptor, so that no name under `/dev/pts` is trusted.
    let terminal = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    rustix::fs::fchown(&terminal, Some(uid), Some(gid))?;
    rustix::fs::fchmod(&terminal, Mode::RUSR | Mode::WUSR | Mode::WGRP)?;
    Ok(Pty { master, terminal })
}

/// Tells the terminal its size.
///
/// # Errors
/// When `master` is not a terminal.
pub fn resize(master: impl AsFd, columns: u16, rows: u16) -> Result<(), Errno> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size)
}
