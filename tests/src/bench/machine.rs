//! The machine and the date of a benchmark.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// The file with the versions of the control plane.
const CONTROL_PLANE: &str = include_str!("../../controlplane/go.mod");

/// A machine at the time of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The name of the processor.
    pub processor: String,
    pub cores: u64,
    pub memory_mib: u64,
    /// The version of Linux.
    pub kernel: String,
    /// The version of kube-apiserver and kube-controller-manager.
    pub kubernetes: String,
    /// The day, in UTC.
    pub date: String,
    /// The commit of the tree. A plus means that the tree had changes.
    pub commit: String,
}

impl Machine {
    /// Returns this machine now. Unknown values are `unknown`.
    pub fn this() -> Machine {
        let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(unknown);
        let memory = field("/proc/meminfo", "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        // The text after the version number names the builder.
        let kernel = release.trim().split('-').next().filter(|number| !number.is_empty());
        let version = CONTROL_PLANE.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
        let changed =
            git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
        let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(unknown);
        Machine {
            processor,
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
            memory_mib: memory.unwrap_or(0_u64) / 1024,
            kernel: kernel.map_or_else(unknown, str::to_owned),
            kubernetes: version.and_then(|line| line.split(' ').next()).map_or_else(unknown, str::to_owned),
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            commit: if changed { format!("{commit}+") } else { commit },
        }
    }

    /// Returns the machine for the report of a benchmark.
    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor, "cores": self.cores, "memoryMiB": self.memory_mib, "kernel": self.kernel,
            "kubernetes": self.kubernetes, "date": self.date, "commit": self.commit,
        })
    }

    /// Reads the machine from a report. Missing values are `unknown`.
    pub fn of(json: &Value) -> Machine {
        let text = |name: &str| json[name].as_str().map_or_else(unknown, str::to_owned);
        let number = |name: &str| json[name].as_u64().unwrap_or(0);
        Machine {
            processor: text("processor"),
            cores: number("cores"),
            memory_mib: number("memoryMiB"),
            kernel: text("kernel"),
            kubernetes: text("kubernetes"),
            date: text("date"),
            commit: text("commit"),
        }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Returns the value after the first colon of the first line with this beginning.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn is_read_as_it_was_written() {
        let machine = Machine::this();
        assert!(machine.kubernetes.starts_with("v1."), "{machine:?}");
        assert_eq!(Machine::of(&machine.json()), machine);
    }
}
