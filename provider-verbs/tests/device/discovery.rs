//! What a user learns of a device that is there and cannot be used, or only for little.

use std::time::{Duration, Instant};

use fabric::{Access, Catalog, Discovered, Error, Hints, Info};

use crate::rig::{choice, open_builtin};
use crate::software::{DEVICE, NET, in_child, run};

/// What the programs do, in processes of their own.
pub(crate) const DOWN: &str = "down";
pub(crate) const FORBIDDEN: &str = "forbidden";
pub(crate) const POOR: &str = "poor";

/// What may be locked without the right to lock more.
const LOCKED: u64 = 256 << 10;

pub(crate) fn a_port_that_is_down() {
    drop(in_child(DOWN, &[]));
}

pub(crate) fn a_file_that_may_not_be_opened() {
    drop(in_child(FORBIDDEN, &[]));
}

pub(crate) fn little_memory_to_lock() {
    drop(in_child(POOR, &[]));
}

/// What `fabric info` shows of the device.
fn found() -> Discovered {
    let all = Catalog::builtin().discover_with(&choice(), &Hints::default()).unwrap();
    all.into_iter().find(|found| found.device == DEVICE).unwrap()
}

/// Discovery and opening both say all of this.
#[track_caller]
fn is_unusable(words: &[&str]) {
    let verdict = found().usable.unwrap_err();
    let error = open_builtin().unwrap_err().to_string();
    println!("{verdict}\n{error}");
    assert!(error.contains(DEVICE), "{error}");
    for word in words {
        assert!(verdict.contains(word), "{word}: {verdict}");
        assert!(error.contains(word), "{word}: {error}");
    }
}

fn detail<'a>(info: &'a Info, name: &str) -> &'a str {
    &info.details.iter().find(|(known, _)| known == name).unwrap().1
}

pub(crate) fn down() {
    let info = found().usable.unwrap();
    let libraries = detail(&info, "libraries");
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        assert!(libraries.contains(library), "{libraries}");
    }
    assert!(run(&format!("ip link set {NET}0 down")).success());
    is_unusable(&["port 1 is down", &format!("`ip link set {NET}0 up`")]);
    assert!(run(&format!("ip link set {NET}0 up")).success());
    let until = Instant::now() + Duration::from_secs(20);
    while let Err(why) = found().usable {
        assert!(Instant::now() < until, "{why}");
        std::thread::sleep(Duration::from_millis(50));
    }
    open_builtin().unwrap();
}

pub(crate) fn forbidden() {
    let file = uverbs();
    assert!(run(&format!("chmod 600 {file}")).success());
    become_nobody();
    is_unusable(&[&format!("no permission to open {file}"), "udev rule", "docker run"]);
}

pub(crate) fn poor() {
    let limit = libc::rlimit { rlim_cur: LOCKED, rlim_max: LOCKED };
    // SAFETY: a limit of this process, read from the value.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    become_nobody();
    let info = found().usable.unwrap();
    let warning = detail(&info, "warning");
    println!("{warning}");
    assert!(warning.contains("256 KiB") && warning.contains("ulimit -l"), "{warning}");

    let domain = open_builtin().unwrap();
    let little = domain.alloc(4096, Access::ALL).unwrap();
    let error = domain.alloc(4 << 20, Access::ALL).unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::NoMemory(_)), "{error:?}");
    let text = error.to_string();
    for word in ["4194304 bytes", "256 KiB", "ulimit -l unlimited", "LimitMEMLOCK", "docker run"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // What there is room for goes on.
    little.write_at(0, b"here").unwrap();
    domain.alloc(4096, Access::ALL).unwrap();
}

/// The GIDs are those of the kernel's table, but found without a look at each of its slots.
pub(crate) fn looks_at_no_empty_slot() {
    let info = found_anywhere().usable.unwrap();
    let (name, port) = info.device.split_once('/').unwrap_or((&info.device, "1"));
    let table = format!("/sys/class/infiniband/{name}/ports/{port}/gids");
    let slots = std::fs::read_dir(&table).unwrap().count();
    let id = |slot: usize| std::fs::read_to_string(format!("{table}/{slot}")).ok();
    let taken = |slot: &usize| {
        id(*slot).is_some_and(|id| id.trim().bytes().any(|b| b != b'0' && b != b':'))
    };
    let taken: Vec<_> = (0..slots).filter(taken).map(|slot| format!("GID {slot}")).collect();
    let before = reads();
    let info = found_anywhere().usable.unwrap();
    let reads = reads() - before;
    let listed = info.details.iter().map(|(name, _)| name).filter(|name| name.starts_with("GID "));
    assert_eq!(listed.collect::<Vec<_>>(), taken.iter().collect::<Vec<_>>());
    println!("{reads} reads, {slots} slots");
    assert!(slots < 200 || reads < slots as u64, "{reads} reads, {slots} slots");
}

/// The first device that can be used.
fn found_anywhere() -> Discovered {
    let all = Catalog::builtin().discover_with(&choice(), &Hints::default()).unwrap();
    all.into_iter().find(|found| found.usable.is_ok()).unwrap()
}

/// Calls of read(2) and its kind in this process, by proc(5).
fn reads() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse().unwrap()
}

/// The device's file.
fn uverbs() -> String {
    let mut class = std::fs::read_dir("/sys/class/infiniband_verbs").unwrap().map(Result::unwrap);
    let is = |ibdev: std::io::Result<String>| ibdev.is_ok_and(|name| name.trim() == DEVICE);
    let entry = class.find(|entry| is(std::fs::read_to_string(entry.path().join("ibdev"))));
    format!("/dev/infiniband/{}", entry.unwrap().file_name().to_str().unwrap())
}

/// Gives up root's rights, that to lock memory among them.
fn become_nobody() {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: numbers; the process has one thread that matters.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(NOBODY, NOBODY, NOBODY), 0);
        assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
    }
}
