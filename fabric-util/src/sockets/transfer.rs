//! Reading and writing memory that is not a Rust slice.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use fabric_core::likely;
use socket2::SockAddr;

use crate::stream::{IoVec, MAX_IO_VECS};

const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

fn iovec(runs: &[IoVec]) -> smallvec::SmallVec<[libc::iovec; MAX_IO_VECS]> {
    runs.iter().map(|&(base, len)| libc::iovec { iov_base: base.cast(), iov_len: len }).collect()
}

fn message(iov: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: a msghdr is plain data, for which zeroes mean "nothing".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov.as_mut_ptr();
    message.msg_iovlen = iov.len() as _;
    message
}

/// recv(2) or send(2). The functions of the C library are cancellation points, which in a process with threads costs two
/// atomic operations around each call, a tenth of a poll that finds nothing.
///
/// # Safety
/// As for the system call.
unsafe fn call(
    number: libc::c_long,
    fd: BorrowedFd<'_>,
    base: *mut u8,
    len: usize,
    flags: libc::c_int,
) -> isize {
    let nowhere = std::ptr::null_mut::<libc::sockaddr>();
    // SAFETY: the caller's promise; without an address these are recv(2) and send(2).
    let done = unsafe { libc::syscall(number, fd.as_raw_fd(), base, len, flags, nowhere, 0_usize) };
    done as isize
}

/// As [`call`], recv(2) of several runs.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn receive_message(fd: BorrowedFd<'_>, runs: &[IoVec]) -> isize {
    let mut iov = iovec(runs);
    let mut message = message(&mut iov);
    // SAFETY: the caller's promise; `message` and what it points to live through the call.
    unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) }
}

/// As [`call`], send(2) of several runs.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn transmit_message(fd: BorrowedFd<'_>, runs: &[IoVec]) -> isize {
    let mut iov = iovec(runs);
    let message = message(&mut iov);
    // SAFETY: the caller's promise; `message` and what it points to live through the call.
    unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, SEND_FLAGS) }
}

/// Reads into `runs` without blocking; 0 is the end of the stream.
///
/// # Safety
/// The runs must be allocated and writable, and no references into them may exist.
#[inline]
pub unsafe fn receive(fd: BorrowedFd<'_>, runs: &[IoVec]) -> io::Result<usize> {
    loop {
        // SAFETY: the caller's promise.
        let got = unsafe {
            match *runs {
                [(base, len)] => call(libc::SYS_recvfrom, fd, base, len, libc::MSG_DONTWAIT),
                _ => receive_message(fd, runs),
            }
        };
        if likely(got >= 0) {
            return Ok(got.cast_unsigned());
        }
        match io::Error::last_os_error() {
            // By its number: a poll that finds nothing comes here.
            error if error.raw_os_error() == Some(libc::EINTR) => {}
            error => return Err(error),
        }
    }
}

/// Writes `runs` without blocking and without a signal if the peer is gone.
///
/// # Safety
/// The runs must be allocated and readable.
#[inline]
pub unsafe fn transmit(fd: BorrowedFd<'_>, runs: &[IoVec]) -> io::Result<usize> {
    loop {
        // SAFETY: the caller's promise.
        let put = unsafe {
            match *runs {
                [(base, len)] => call(libc::SYS_sendto, fd, base, len, SEND_FLAGS),
                _ => transmit_message(fd, runs),
            }
        };
        if likely(put >= 0) {
            return Ok(put.cast_unsigned());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// Reads one datagram into `runs` without blocking; gives its whole length, whatever of it fitted, and where it came from.
///
/// # Safety
/// As [`receive`].
pub(super) unsafe fn receive_from(
    fd: BorrowedFd<'_>,
    runs: &[IoVec],
) -> io::Result<(usize, Option<SocketAddr>)> {
    // With MSG_TRUNC the kernel gives the datagram's own length (udp(7)).
    const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let mut iov = iovec(runs);
    let mut message = message(&mut iov);
    // SAFETY: the kernel writes an address of at most `*len` bytes there, and its length (recvmsg(2)).
    let read = unsafe {
        SockAddr::try_init(|storage, len| {
            message.msg_name = storage.cast();
            message.msg_namelen = *len;
            loop {
                // The caller's promise; `message` and what it points to live through the call.
                let got = libc::recvmsg(fd.as_raw_fd(), &raw mut message, FLAGS);
                match usize::try_from(got) {
                    Ok(got) => {
                        *len = message.msg_namelen;
                        return Ok(got);
                    }
                    Err(_) => match io::Error::last_os_error() {
                        error if error.kind() == io::ErrorKind::Interrupted => {}
                        error => return Err(error),
                    },
                }
            }
        })
    };
    let (got, from) = read?;
    Ok((got, from.as_socket()))
}

/// Hands one datagram of `runs` to the kernel without blocking.
///
/// # Safety
/// As [`transmit`].
pub(super) unsafe fn transmit_to(
    fd: BorrowedFd<'_>,
    to: &SockAddr,
    runs: &[IoVec],
) -> io::Result<usize> {
    let mut iov = iovec(runs);
    let mut message = message(&mut iov);
    message.msg_name = to.as_ptr().cast_mut().cast();
    message.msg_namelen = to.len();
    loop {
        // SAFETY: the caller's promise; `message` and what it points to live through the call, which only reads them.
        let put = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, SEND_FLAGS) };
        if likely(put >= 0) {
            return Ok(put.cast_unsigned());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}
