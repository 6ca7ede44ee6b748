//! `/metrics`: what the sandbox uses, as the kernel tells a process inside it.

use std::fs;

use rustix::time::ClockId;
use serde::Serialize;

use super::Agent;

#[derive(Debug, Serialize)]
pub(super) struct Metrics {
    ts: i64,
    cpu_count: usize,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
}

pub(super) fn metrics(agent: &Agent) -> Metrics {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |key: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let (total, available, cached) = (kib("MemTotal"), kib("MemAvailable"), kib("Cached"));
    let disk = rustix::fs::statvfs("/").ok();
    let (disk_total, disk_free) = disk.map_or((0, 0), |d| (d.f_blocks * d.f_frsize, d.f_bfree * d.f_frsize));
    Metrics {
        ts: rustix::time::clock_gettime(ClockId::Realtime).tv_sec,
        cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
        cpu_used_pct: cpu_percent(agent),
        mem_total: total,
        mem_used: total.saturating_sub(available),
        mem_cache: cached,
        disk_used: disk_total.saturating_sub(disk_free),
        disk_total,
    }
}

/// Share of CPU time that was used since the last call.
fn cpu_percent(agent: &Agent) -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let all: u64 = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    let busy = all.saturating_sub(idle);
    let (busy_before, all_before) = agent.cpu_before.replace((busy, all));
    let passed = all.saturating_sub(all_before).max(1);
    let permille = busy.saturating_sub(busy_before).saturating_mul(1000) / passed;
    f64::from(u32::try_from(permille).unwrap_or(1000)) / 10.0
}
