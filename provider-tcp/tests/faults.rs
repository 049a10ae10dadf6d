//! Calls to the C library that fail, each in turn. (What the engine asks of the kernel directly, to read and to write, has
//! tests of its own: there a failure is the end of a connection, which peers cause, too.)

#![allow(clippy::unwrap_used)] // helpers are of tests too

#[path = "../../tests/faults/mod.rs"]
mod faults;
#[path = "../../tests/held/mod.rs"]
mod held;

use fabric::{Catalog, Choice, Hints};
use faults::interposed;
use libc::{c_int, c_uint, c_void, epoll_event, sockaddr, socklen_t};
use provider_tcp::TcpProvider;

interposed! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int => -1, libc::EMFILE;
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int => -1, libc::EADDRNOTAVAIL;
    fn listen(fd: c_int, backlog: c_int) -> c_int => -1, libc::EOPNOTSUPP;
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int => -1, libc::ENETUNREACH;
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int => -1, libc::EMFILE;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int => -1, libc::ENOPROTOOPT;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int => -1, libc::ENOPROTOOPT;
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int => -1, libc::ENOBUFS;
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int => -1, libc::ENOBUFS;
    fn shutdown(fd: c_int, how: c_int) -> c_int => -1, libc::ENOTCONN, after;
    fn epoll_create1(flags: c_int) -> c_int => -1, libc::EMFILE;
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int => -1, libc::ENOSPC;
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int => -1, libc::EINTR;
    fn eventfd(value: c_uint, flags: c_int) -> c_int => -1, libc::ENFILE;
    fn getifaddrs(all: *mut *mut libc::ifaddrs) -> c_int => -1, libc::ENOMEM;
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attr: *const libc::pthread_attr_t,
        run: extern "C" fn(*mut c_void) -> *mut c_void,
        with: *mut c_void
    ) -> c_int => libc::EAGAIN, 0;
}

#[test]
fn every_call_may_fail() {
    let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
    faults::sweep(
        || catalog.open_with(&Choice::Auto, &Hints::default()),
        &["epoll_wait", "accept4"],
        &[],
    );
}
