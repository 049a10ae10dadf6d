//! A Soft-RoCE device of the test's own, which comes and goes by command, and a program that uses it in a process of its
//! own: librdmacm keeps the devices that it used open as long as the process lives, and RXE does not let a device go before.

use std::fs;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use crate::rig::CHOICE;
use crate::{discovery, loss, port};

const ROLE: &str = "FABRIC_TEST_SOFTWARE";
pub(crate) const DEVICE: &str = "fabrictest0";
/// The net devices are this and a number; 0 has the RDMA device.
pub(crate) const NET: &str = "fabrictest";
const ADDRESS: &str = "10.79.77.1/24";
/// How the GID of the address ends.
const GID: &str = "ffff:0a4f:4d01";

/// Whether a device can be made here.
pub(crate) fn can_make_devices() -> bool {
    // SAFETY: no arguments.
    fs::exists("/sys/module/rdma_rxe").unwrap() && unsafe { libc::geteuid() } == 0
}

/// What the program does, if this process is it.
pub(crate) fn play() -> Option<ExitCode> {
    match std::env::var(ROLE).ok()?.as_str() {
        loss::ROLE => loss::lose(),
        loss::REFUSING => loss::lose_one_that_refuses(),
        port::ROLE => port::go_down_and_up(),
        discovery::DOWN => discovery::down(),
        discovery::FORBIDDEN => discovery::forbidden(),
        discovery::POOR => discovery::poor(),
        role => panic!("there is no role {role}"),
    }
    Some(ExitCode::SUCCESS)
}

/// Makes the device, and runs the program on it to its end.
pub(crate) fn in_child(role: &str, how: &[(&str, &str)]) -> Device {
    let device = Device::make();
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.env(ROLE, role).env(CHOICE, format!("verbs:{DEVICE}")).envs(how.iter().copied());
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(90);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    device
}

pub(crate) fn run(command: &str) -> ExitStatus {
    let mut words = command.split(' ');
    Command::new(words.next().unwrap()).args(words).status().unwrap()
}

/// A Soft-RoCE device on a net device of its own; it goes with the value.
pub(crate) struct Device;

impl Device {
    fn make() -> Self {
        let this = Device;
        for command in [
            format!("ip link add {NET}0 type veth peer name {NET}1"),
            format!("ip addr add {ADDRESS} dev {NET}0"),
            format!("ip link set {NET}0 up"),
            format!("ip link set {NET}1 up"),
            format!("rdma link add {DEVICE} type rxe netdev {NET}0"),
        ] {
            assert!(run(&command).success(), "{command}");
        }
        // Not by opening it: then this process would hold it.
        let until = Instant::now() + Duration::from_secs(20);
        while !has_gid() {
            assert!(Instant::now() < until, "{DEVICE} gets no GID of {ADDRESS}");
            std::thread::sleep(Duration::from_millis(50));
        }
        this
    }

    /// It was taken away, and nothing holds it any more.
    pub(crate) fn is_gone(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while fs::exists(format!("/sys/class/infiniband/{DEVICE}")).unwrap() {
            assert!(Instant::now() < until, "the device is still there");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Its RDMA device goes with it.
        run(&format!("ip link del {NET}0"));
    }
}

fn has_gid() -> bool {
    let gids = fs::read_dir(format!("/sys/class/infiniband/{DEVICE}/ports/1/gids")).unwrap();
    // Of a GID that is not there the file cannot be read.
    let mut gids = gids.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    gids.any(|gid| gid.contains(GID))
}
