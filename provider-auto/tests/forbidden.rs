//! Where a process may not share memory, its connections go the other way. Each case is a process of its own.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod side;

use std::process::Command;

use rustix::process::{Resource, Rlimit, setrlimit};
use side::{Side, way};

/// Set for the process that may not.
const FORBIDDEN: &str = "TEST_IS_FORBIDDEN";

fn goes_the_other_way(name: &str, forbid: fn()) {
    if std::env::var_os(FORBIDDEN).is_some() {
        forbid();
        let (one, other) = (Side::new("auto"), Side::new("auto"));
        let (end, own) = one.connect(&other, &other.listen());
        assert_eq!((way(&end), way(&own)), ("tcp", "tcp"));
        let why = end.path().unwrap().to_string();
        assert!(why.contains("this process may not share memory"), "{why}");
        return one.settle(&end, &other, &own);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let ended = child.args([name, "--exact"]).env(FORBIDDEN, "").output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// As `ulimit -f` has it.
#[test]
fn where_files_are_small() {
    goes_the_other_way("where_files_are_small", || {
        let limit = Rlimit { current: Some(4096), maximum: None };
        setrlimit(Resource::Fsize, limit).unwrap();
    });
}

/// As systemd's `RestrictAddressFamilies` has it.
#[test]
fn where_sockets_are_of_other_families() {
    goes_the_other_way("where_sockets_are_of_other_families", || {
        let step = |code: u32, jt, jf, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
        let (load, equal, end) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::BPF_RET | libc::BPF_K,
        );
        // The call's number and the first argument (struct seccomp_data).
        let (call, argument) = (0, if cfg!(target_endian = "little") { 16 } else { 20 });
        let mut steps = [
            step(load, 0, 0, call),
            step(equal, 0, 3, libc::SYS_socket as u32),
            step(load, 0, 0, argument),
            step(equal, 0, 1, libc::AF_UNIX as u32),
            step(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
            step(end, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: prctl(2) reads the steps, which are there; they hold for this thread and those that it makes.
        let set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
                    == 0
        };
        assert!(set, "{}", std::io::Error::last_os_error());
    });
}
