//! No address space left: what needs some fails with an error and leaves nothing, and what is there goes on.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

#[path = "hostile/scene.rs"]
mod scene;

use fabric::{Access, Catalog, Choice, Domain, Error, Hints};
use provider_tcp::TcpProvider;
use rustix::process::{Resource, getrlimit, setrlimit};
use scene::*;

/// Less than a thread's stack, and more than all else that is needed.
const LEFT: u64 = 1 << 20;

fn open() -> fabric::Result<Domain> {
    let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
    catalog.open_with(&Choice::Auto, &Hints::default())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

#[test]
fn without_address_space_calls_fail_and_connections_go_on() {
    let scene = Scene::new();
    let (limits, before) = (getrlimit(Resource::As), descriptors());
    let few = address_space() + LEFT;
    setrlimit(Resource::As, rustix::process::Rlimit { current: Some(few), ..limits }).unwrap();

    let Err(error) = open() else { panic!("a thread without a stack") };
    let memory = scene.client.domain.alloc(64 << 20, Access::ALL);
    scene.check();
    setrlimit(Resource::As, limits).unwrap();

    assert!(error.to_string().contains("open domain"), "{error}");
    assert!(matches!(error, Error::NoMemory(_)), "{error:?}");
    assert!(matches!(memory, Err(Error::NoMemory(_))), "{memory:?}");
    assert_eq!(descriptors(), before);
    drop(open().unwrap());
    scene.check();
}
