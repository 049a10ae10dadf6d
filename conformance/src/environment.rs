//! The machine that a run was made on.

use std::fs;
use std::thread;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// What a report says of the machine. Empty or zero is what could not be found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Environment {
    /// Its name in the network.
    #[serde(default)]
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The instruction set.
    pub architecture: String,
    /// What the processors call themselves.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The product that the firmware names, such as a virtual machine's.
    pub machine: String,
    /// When the run began, in seconds since 1970 (UTC).
    pub began: u64,
}

impl Environment {
    /// This machine, now. See proc(5), os-release(5).
    pub fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let line = |path| read(path).lines().next().unwrap_or_default().trim().to_owned();
        let field = |path, name| field(&read(path), name);
        let memory = field("/proc/meminfo", "MemTotal:");
        let memory = memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Environment {
            host: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            system: field("/etc/os-release", "PRETTY_NAME=").trim_matches('"').to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            processor: field("/proc/cpuinfo", "model name")
                .trim_start_matches([':', ' '])
                .to_owned(),
            processors: thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory.unwrap_or_default() << 10,
            machine: line("/sys/class/dmi/id/product_name"),
            began: since.as_secs(),
        }
    }
}

/// What follows `name` at the start of a line.
fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap_or_default().trim().to_owned()
}
