//! The resource use of a process, from `/proc`.

use anyhow::{Context, bail};
use std::fs;

/// The ticks per second of /proc/PID/stat.
const TICKS: f64 = 100.0;

/// Returns the processor time of a process.
///
/// # Errors
/// The process does not exist.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    // The name is in parentheses, and may contain any character. Fields 14 and 15 are user time and system time.
    let rest = text.rsplit_once(") ").context("a process has a name")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let [user, system] = fields.get(11..13).context("a process has times")? else { bail!("two times are asked for") };
    Ok((user.parse::<f64>()? + system.parse::<f64>()?) / TICKS)
}

/// Returns the maximum memory of a process.
///
/// # Errors
/// The process does not exist.
pub fn most_memory_mib(pid: u32) -> anyhow::Result<f64> {
    status_mib(pid, "VmHWM:")
}

/// Starts [`most_memory_mib`] again.
///
/// # Errors
/// The process does not exist, or belongs to another user.
pub fn forget_most_memory(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("writing {path}"))
}

/// Returns the present memory of a process.
///
/// # Errors
/// The process does not exist.
pub fn memory_mib(pid: u32) -> anyhow::Result<f64> {
    status_mib(pid, "VmRSS:")
}

fn status_mib(pid: u32, field: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("{field} of {pid}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
