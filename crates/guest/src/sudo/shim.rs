//! The program behind `/usr/bin/sudo`: asks PID 1, passes signals on, and ends as the command ended.

use std::ffi::OsString;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bailey_protocol::guest::SUDO_SOCKET;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::message::{Reply, Request};
use crate::exec::identity::User;

const USAGE: &str = "usage: sudo [-n] [-E] [-H] [-i | -s] [-u user] [NAME=value...] [--] [command [argument...]]";
/// Environment that is passed on without `-E`.
const KEPT: [&str; 4] = ["TERM", "COLORTERM", "LANG", "LANGUAGE"];

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Run {
        request: Request,
        keep_environment: bool,
        set_home: bool,
    },
    /// Nothing to run: `-v`, `-k`, `-h`.
    Nothing(&'static str),
}

/// Runs the shim.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    match parse(arguments.into_iter().map(OsString::into_vec).collect()) {
        Ok(Asked::Nothing(text)) => {
            eprint!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Asked::Run { mut request, keep_environment, set_home }) => {
            let own = std::env::vars_os().filter(|(name, _)| {
                let name = name.as_bytes();
                let kept = KEPT.iter().any(|kept| kept.as_bytes() == name) || name.starts_with(b"LC_");
                kept || keep_environment && !(set_home && name == b"HOME") && name != b"PATH"
            });
            let own = own.map(|(name, value)| [name.as_bytes(), value.as_bytes()].join(&b'='));
            // Assignments on the command line count more than what is passed on.
            let assigned = std::mem::take(&mut request.environment);
            request.environment = own.chain(assigned).collect();
            run(&request).unwrap_or_else(|error| {
                eprintln!("sudo: {error:#}");
                ExitCode::FAILURE
            })
        }
        Err(error) => {
            eprintln!("sudo: {error:#}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: Vec<Vec<u8>>) -> anyhow::Result<Asked> {
    let mut user = User::Root;
    let (mut keep_environment, mut set_home, mut login, mut shell) = (false, false, false, false);
    let mut rest = arguments.into_iter().peekable();
    while let Some(option) = rest.next_if(|argument| argument.len() > 1 && argument.starts_with(b"-")) {
        let text = String::from_utf8_lossy(&option).into_owned();
        let mut named = |value: Option<Vec<u8>>| -> anyhow::Result<()> {
            let name = String::from_utf8_lossy(&value.context("name a user after -u")?).into_owned();
            user = match &*name {
                "root" | "#0" => User::Root,
                "user" | "#1000" => User::User,
                other => bail!("unknown user {other}"),
            };
            Ok(())
        };
        match &*text {
            "--" => break,
            "--user" => named(rest.next())?,
            "--preserve-env" => keep_environment = true,
            "--set-home" => set_home = true,
            "--login" => login = true,
            "--shell" => shell = true,
            "--non-interactive" | "--stdin" | "--reset-timestamp" => {}
            "--validate" => return Ok(Asked::Nothing("")),
            "--help" | "--version" => return Ok(Asked::Nothing("sudo of the sandbox's agent\n")),
            long if long.starts_with("--user=") => named(long.split_once('=').map(|(_, v)| v.as_bytes().to_vec()))?,
            long if long.starts_with("--preserve-env=") => keep_environment = true,
            long if long.starts_with("--") => bail!("unknown option {long}"),
            short => {
                let mut letters = short.chars().skip(1);
                while let Some(letter) = letters.next() {
                    match letter {
                        'n' | 'S' | 'k' | 'A' | 'B' | 'P' => {}
                        'E' => keep_environment = true,
                        'H' => set_home = true,
                        'i' => login = true,
                        's' => shell = true,
                        'v' => return Ok(Asked::Nothing("")),
                        'V' | 'h' => return Ok(Asked::Nothing("sudo of the sandbox's agent\n")),
                        'u' => {
                            let joined: String = letters.by_ref().collect();
                            named(if joined.is_empty() { rest.next() } else { Some(joined.into_bytes()) })?;
                        }
                        'p' => {
                            let joined: String = letters.by_ref().collect();
                            if joined.is_empty() {
                                rest.next();
                            }
                        }
                        other => bail!("unknown option -{other}"),
                    }
                }
            }
        }
    }
    let mut environment = Vec::new();
    while let Some(pair) = rest.next_if(|argument| is_assignment(argument)) {
        environment.push(pair);
    }
    let command: Vec<Vec<u8>> = rest.collect();
    let arguments = match (command.is_empty(), login || shell) {
        (true, false) => bail!("nothing to run"),
        (false, false) => command,
        (_, true) => shell_command(&command, login),
    };
    Ok(Asked::Run { request: Request { user, arguments, environment }, keep_environment, set_home: set_home || login })
}

fn is_assignment(argument: &[u8]) -> bool {
    let Some(at) = argument.iter().position(|byte| *byte == b'=') else {
        return false;
    };
    let name = argument.get(..at).unwrap_or_default();
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// A shell, interactive or with the command's words quoted as sudo does: all but plain characters are escaped.
fn shell_command(command: &[Vec<u8>], login: bool) -> Vec<Vec<u8>> {
    let mut arguments = vec![b"/bin/bash".to_vec()];
    if login {
        arguments.push(b"-l".to_vec());
    }
    if !command.is_empty() {
        let mut line = Vec::new();
        for word in command {
            if !line.is_empty() {
                line.push(b' ');
            }
            for byte in word {
                if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"_-$".contains(byte) {
                    line.push(b'\\');
                }
                line.push(*byte);
            }
        }
        arguments.extend([b"-c".to_vec(), line]);
    }
    arguments
}

fn run(request: &Request) -> anyhow::Result<ExitCode> {
    let numbers = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];
    let signals = bailey_sys::signal::as_descriptor(&numbers).context("catch signals")?;
    let mut stream = UnixStream::connect(SUDO_SOCKET).context("this sandbox has no root user")?;
    send(&mut stream, request).context("ask the agent")?;
    loop {
        let mut watched = [PollFd::new(&stream, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).context("wait for the command"),
        }
        let [answered, signaled] = watched.map(|watched| !watched.revents().is_empty());
        if answered {
            return finish(&mut stream);
        }
        if signaled {
            let mut record = [0_u8; 128];
            if rustix::io::read(&signals, &mut record).is_ok() {
                // The number is the first word, and below 256.
                stream.write_all(&record[..1]).context("pass a signal on")?;
            }
        }
    }
}

fn send(stream: &mut UnixStream, request: &Request) -> anyhow::Result<()> {
    let folder = rustix::fs::openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), folder.as_fd()];
    let bytes = request.encode();
    let header = u32::try_from(bytes.len())?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        bail!("descriptors do not fit");
    }
    rustix::net::sendmsg(&*stream, &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&bytes)?;
    Ok(())
}

fn finish(stream: &mut UnixStream) -> anyhow::Result<ExitCode> {
    let mut bytes = [0_u8; 5];
    stream.read_exact(&mut bytes).context("the agent closed the connection")?;
    match Reply::parse(bytes).context("the agent's answer makes no sense")? {
        Reply::Exited(code) => Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))),
        Reply::Signaled(signal) => Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(255))),
        Reply::Refused(length) => {
            let mut text = vec![0; usize::try_from(length).unwrap_or(0).min(4096)];
            stream.read_exact(&mut text).context("the agent closed the connection")?;
            bail!("{}", String::from_utf8_lossy(&text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(line: &str) -> (User, Vec<String>, bool, bool) {
        match parse(line.split(' ').map(|word| word.as_bytes().to_vec()).collect()).unwrap() {
            Asked::Run { request, keep_environment, set_home } => {
                let words = request.environment.iter().chain(&request.arguments);
                let words = words.map(|word| String::from_utf8(word.clone()).unwrap()).collect();
                (request.user, words, keep_environment, set_home)
            }
            Asked::Nothing(text) => panic!("nothing: {text}"),
        }
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(run_of("-n -E ls -l"), (User::Root, words(&["ls", "-l"]), true, false));
        assert_eq!(run_of("-nEH -u user A=1 b"), (User::User, words(&["A=1", "b"]), true, true));
        assert_eq!(run_of("-uroot -- -x"), (User::Root, words(&["-x"]), false, false));
        assert_eq!(run_of("-i echo a;b"), (User::Root, words(&["/bin/bash", "-l", "-c", "echo a\\;b"]), false, true));
        assert_eq!(run_of("--user=root -s"), (User::Root, words(&["/bin/bash"]), false, false));
        for bad in ["-z ls", "-u nobody ls", "-n", "--bogus ls"] {
            assert!(parse(bad.split(' ').map(|word| word.as_bytes().to_vec()).collect()).is_err(), "{bad}");
        }
    }
}
