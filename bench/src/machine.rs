//! What the figures were taken on.

use std::fs;
use std::process::Command;

use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cpus: usize,
    memory_gib: f64,
    kernel: String,
    system: String,
    /// It shows in the bandwidth, also over loopback: BBR paces.
    congestion_control: String,
    /// The load when it began: figures of a busy machine mean little.
    load: String,
    rustc: String,
    versions: Vec<String>,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str, separator: char) -> String {
    let value = |line: &str| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
    };
    text.lines().find_map(value).unwrap_or_else(|| "unknown".to_owned())
}

/// The first line that a program says.
fn says(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

impl Machine {
    pub(crate) fn look() -> Self {
        let memory = field(&read("/proc/meminfo"), "MemTotal", ':');
        let kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        let package =
            |name: &str| says("dpkg-query", &["-W", "-f", "${Package} ${Version}\n", name]);
        let versions = ["libfabric-bin", "ucx-utils", "perftest"].into_iter().filter_map(package);
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name", ':'),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gib: (kib / f64::from(1 << 20) * 10.0).round() / 10.0,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '='),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
            load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            rustc: says("rustc", &["--version"]).unwrap_or_else(|| "unknown".to_owned()),
            versions: versions.collect(),
        }
    }

    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let versions =
            if self.versions.is_empty() { "none".to_owned() } else { self.versions.join(", ") };
        vec![
            ("processor", format!("{}, {} usable", self.cpu, self.cpus)),
            ("memory", format!("{} GiB", self.memory_gib)),
            ("system", format!("{}, Linux {}", self.system, self.kernel)),
            ("congestion control", self.congestion_control.clone()),
            ("load at the start", self.load.clone()),
            ("built with", self.rustc.clone()),
            ("compared with", versions),
        ]
    }
}
