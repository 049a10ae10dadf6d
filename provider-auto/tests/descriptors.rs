//! A process that may open nothing more. Alone in its program: the limit is the process's.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use fabric::Error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use side::{SOON, Side, way};

#[test]
fn want_of_descriptors_is_no_reason_to_go_another_way() {
    let all = Side::new("auto");
    let (listener, end) = (all.listen(), all.endpoint());
    let before = getrlimit(Resource::Nofile);
    // But for the one that reads this.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    for more in 0..8 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(open + more), ..before }).unwrap();
        let begun = end.connect(listener.local_addr(), &[]);
        let path = all.domain.path_to(listener.local_addr());
        setrlimit(Resource::Nofile, before).unwrap();
        if let Ok(path) = path {
            assert_eq!(path.provider, "shm");
        }
        match begun {
            Err(Error::NoMemory(_)) => assert_eq!(end.path(), None),
            begun => {
                begun.unwrap();
                let own = all.endpoint();
                listener.accept(Some(SOON)).unwrap().accept(&own, &[]).unwrap();
                end.wait_connected(Some(SOON)).unwrap();
                assert!(more > 0 && way(&end) == "shm" && way(&own) == "shm");
                return;
            }
        }
    }
    panic!("8 descriptors are not enough to connect");
}
