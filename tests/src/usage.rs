//! The resource use of a process, from `/proc`.

use anyhow::{Context, bail};
use std::fs;

/// Of a second in /proc/PID/stat.
const TICKS: f64 = 100.0;

/// Processor time that a process has taken.
///
/// # Errors
/// There is no such process.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    // The name, in brackets, may hold anything; the 14th and 15th field are user's and system's time.
    let rest = text.rsplit_once(") ").context("a process has a name")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let [user, system] = fields.get(11..13).context("a process has times")? else { bail!("two times are asked for") };
    Ok((user.parse::<f64>()? + system.parse::<f64>()?) / TICKS)
}

/// The most memory that a process has held.
///
/// # Errors
/// There is no such process.
pub fn most_memory_mib(pid: u32) -> anyhow::Result<f64> {
    status_mib(pid, "VmHWM:")
}

/// Has [`most_memory_mib`] begin again.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn forget_most_memory(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("writing {path}"))
}

/// The memory that a process holds now.
///
/// # Errors
/// There is no such process.
pub fn memory_mib(pid: u32) -> anyhow::Result<f64> {
    status_mib(pid, "VmRSS:")
}

fn status_mib(pid: u32, field: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("{field} of {pid}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
