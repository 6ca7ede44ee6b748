//! `POST /claim`: a copy becomes a machine of its own, with limits and a fresh root. Nothing of a tenant is in it before.
//!
//! The generators of this process need nothing: the agent makes no secret, and what a hash map or a scheduler draws
//! shows in no answer.

use std::rc::Rc;

use bailey_protocol::guest::{AGENT_PATH, GENERATION, MIN_ENTROPY, MachineClaim, MachineClaimed};
use bailey_protocol::jail::CageMount;
use bailey_protocol::limits::{Limits, MAX_MOUNTS};
use bailey_sys::entropy;
use base64::Engine;
use hyper::body::Incoming;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::mounts::Slice;
use super::root::file;
use super::scratch::Scratch;
use super::{Machine, MachineError, Phase, Step};
use crate::agent::Agent;
use crate::agent::connect::{Answer, Code, RpcError, invalid, json_answer, read_unary};

/// Places that a slice may not cover, lie in, or contain.
const RESERVED: [&str; 5] = ["/proc", "/dev", "/sys", "/run/bailey", AGENT_PATH];

/// What the claim made.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) limits: Limits,
    pub(super) scratch: Scratch,
    /// By the numbers of their streams.
    pub(super) slices: Vec<Slice>,
}

pub(crate) async fn claim(agent: &Rc<Agent>, body: Incoming) -> Result<Answer, RpcError> {
    let Some(machine) = &agent.machine else {
        return Err(RpcError::new(Code::NotFound, "this guest has no machine of its own"));
    };
    let request: MachineClaim = read_unary(body).await?;
    if request.generation != GENERATION {
        let message = format!("this guest speaks generation {GENERATION}, not {}", request.generation);
        return Err(RpcError::new(Code::FailedPrecondition, message));
    }
    let entropy = check(&request)?;
    let refusal = RpcError::new(Code::AlreadyExists, "the machine is claimed already");
    machine.advance((Phase::Parked, Phase::Claimed), refusal, || {
        let (claimed, fences) = take(machine, request, &entropy)?;
        let _only_once = machine.claimed.set(claimed);
        Ok(json_answer(&MachineClaimed { fences }))
    })
}

/// Checks what is asked for before anything is changed; the random bytes.
fn check(request: &MachineClaim) -> Result<Vec<u8>, RpcError> {
    let entropy = base64::engine::general_purpose::STANDARD.decode(&request.entropy);
    let entropy = entropy.map_err(|error| invalid(format!("decode the entropy: {error}")))?;
    if !(MIN_ENTROPY..=entropy::MOST).contains(&entropy.len()) {
        return Err(invalid(format!("entropy has {MIN_ENTROPY} to {} bytes", entropy::MOST)));
    }
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !(1..=63).contains(&request.hostname.len()) || !request.hostname.bytes().all(plain) {
        return Err(invalid("a host name has 1 to 63 letters, digits and `-`"));
    }
    if request.machine_id.len() != 32 || !hex(&request.machine_id) {
        return Err(invalid("a machine id has 32 hex digits"));
    }
    let groups: Vec<usize> = request.boot_id.split('-').map(str::len).collect();
    if groups != [8, 4, 4, 4, 12] || !request.boot_id.split('-').all(hex) {
        return Err(invalid("a boot id is a UUID"));
    }
    check_mounts(&request.mounts)?;
    Ok(entropy)
}

fn check_mounts(mounts: &[CageMount]) -> Result<(), RpcError> {
    if mounts.len() > MAX_MOUNTS {
        return Err(invalid(format!("more than {MAX_MOUNTS} mounts")));
    }
    for (number, mount) in mounts.iter().enumerate() {
        let at = mount.at.as_str();
        if at == "/" || RESERVED.iter().any(|place| overlap(at, place)) {
            return Err(invalid(format!("`{at}` is reserved")));
        }
        if let Some(other) = mounts.iter().take(number).find(|other| overlap(at, other.at.as_str())) {
            return Err(invalid(format!("`{at}` overlaps `{}`", other.at)));
        }
    }
    Ok(())
}

/// Whether one path contains the other.
fn overlap(a: &str, b: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    within(a, b) || within(b, a)
}

/// Every step, in an order in which nothing is drawn before the generator is the machine's own.
fn take(machine: &Machine, request: MachineClaim, entropy: &[u8]) -> Result<(Claimed, Vec<String>), MachineError> {
    let ground = &machine.ground;
    let mut fences = ground.begin_anew(entropy, request.now_ns)?;
    rustix::system::sethostname(request.hostname.as_bytes()).step("set the host name")?;
    let scratch = ground.furnish(&request.limits)?;
    write_machine_id(&request.machine_id).step("write the machine id")?;
    fences.extend(["hostname", "machine_id"]);
    fences.extend(ground.tell_boot_id(&scratch, &request.boot_id)?);
    fences.extend(ground.limit(&request.limits)?);
    let mut slices = Vec::new();
    for (number, mount) in request.mounts.into_iter().enumerate() {
        slices.push(Slice::make(&scratch, number, mount).step("make the layers of a slice")?);
    }
    let mut fences: Vec<String> = fences.into_iter().map(str::to_owned).collect();
    fences.push(format!("scratch:{}", scratch.kind()));
    Ok((Claimed { limits: request.limits, scratch, slices }, fences))
}

/// The template's own file, if it has one, is of all machines that start from it.
fn write_machine_id(id: &str) -> Result<(), Errno> {
    match rustix::fs::unlink("/etc/machine-id") {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    super::root::ensure_folder(&openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?, "etc")?;
    let new = file(CWD, "/etc/machine-id", 0o444)?;
    rustix::io::write(&new, format!("{id}\n").as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_overlap_by_whole_names() {
        assert!(overlap("/data", "/data/x"));
        assert!(overlap("/run", "/run/bailey"));
        assert!(!overlap("/data", "/database"));
    }

    #[test]
    fn a_claim_is_checked_field_by_field() {
        let good = MachineClaim {
            generation: GENERATION,
            now_ns: 0,
            entropy: base64::engine::general_purpose::STANDARD.encode([7; 64]),
            hostname: "sandbox".to_owned(),
            machine_id: "0123456789abcdef".repeat(2),
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
            limits: Limits::default(),
            mounts: vec![CageMount { at: "/data".parse().unwrap(), writable: true }],
        };
        assert_eq!(check(&good).unwrap(), [7; 64]);
        let short = base64::engine::general_purpose::STANDARD.encode([7; 63]);
        let data = || good.mounts.first().cloned().unwrap();
        for bad in [
            MachineClaim { entropy: "?".to_owned(), ..good.clone() },
            MachineClaim { entropy: short, ..good.clone() },
            MachineClaim { hostname: "a b".to_owned(), ..good.clone() },
            MachineClaim { hostname: String::new(), ..good.clone() },
            MachineClaim { machine_id: "x".repeat(32), ..good.clone() },
            MachineClaim { boot_id: "0".repeat(36), ..good.clone() },
            MachineClaim { mounts: vec![data(), data()], ..good.clone() },
            MachineClaim { mounts: vec![CageMount { at: "/dev/x".parse().unwrap(), writable: true }], ..good.clone() },
        ] {
            check(&bad).unwrap_err();
        }
    }
}
