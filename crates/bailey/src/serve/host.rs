//! What a server needs of its machine before anything else.

use super::ServeError;

/// The oldest kernel that has everything.
const KERNEL: (u32, u32) = (6, 1);
pub(crate) const KERNEL_TEXT: &str = "6.1";

pub(crate) fn require_root() -> Result<(), ServeError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(ServeError::NotRoot) }
}

pub(crate) fn require_kernel() -> Result<(), ServeError> {
    let release = release();
    if new_enough(&release) { Ok(()) } else { Err(ServeError::Kernel { release, least: KERNEL_TEXT }) }
}

pub(crate) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

pub(crate) fn new_enough(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    found >= KERNEL
}

/// CPU time per second of all processors, in thousandths of one, and bytes of memory.
pub(crate) fn size() -> (u64, u64) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(info.mem_unit.into());
    (u64::try_from(cores).unwrap_or(u64::MAX).saturating_mul(1000), memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for (release, fine) in [
            ("6.1.0-18-amd64", true),
            ("6.18.44", true),
            ("10.0", true),
            ("5.15.0", false),
            ("6.0.9", false),
            ("", false),
        ] {
            assert_eq!(new_enough(release), fine, "{release}");
        }
    }
}
