//! A socket's peer: its user, and whether it could do to this process what it likes.

use std::os::fd::AsRawFd;

use socket2::Socket;

/// Whether a socket's peer runs as the same user.
pub(crate) fn is_same_user(socket: &Socket) -> bool {
    same_user(socket).is_some()
}

/// Whether it could write into this process in other ways, too (ptrace(2)), as this one into it: as the same user, who is so in the
/// same user namespace, and where processes have the same numbers. The kernel lets see that where it lets trace (namespaces(7)).
pub(crate) fn is_equal(socket: &Socket) -> bool {
    // In another PID namespace it may have no number here: 0.
    let Some(pid) = same_user(socket).filter(|pid| *pid > 0) else { return false };
    ["user", "pid"].iter().all(|kind| {
        let theirs = std::fs::read_link(format!("/proc/{pid}/ns/{kind}"));
        let own = std::fs::read_link(format!("/proc/self/ns/{kind}"));
        theirs.is_ok_and(|theirs| own.is_ok_and(|own| own == theirs))
    })
}

/// The process of a socket's peer, if that runs as the same user.
fn same_user(socket: &Socket) -> Option<libc::pid_t> {
    /// Stands for all users that have no number here (user_namespaces(7)).
    const OVERFLOW: u32 = 65534;
    let own = rustix::process::geteuid().as_raw();
    let peer = peer(socket).filter(|peer| own != OVERFLOW && peer.uid == own);
    peer.map(|peer| peer.pid)
}

/// The process and user of a socket's peer (`SO_PEERCRED`, unix(7)). Not by rustix: one in another PID namespace has no number here, which
/// is an error there.
fn peer(socket: &Socket) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    let (fd, level, name) = (socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel writes at most `len` bytes, which the value has.
    let done = unsafe { libc::getsockopt(fd, level, name, (&raw mut peer).cast(), &raw mut len) };
    (done == 0 && len as usize == size_of_val(&peer)).then_some(peer)
}
