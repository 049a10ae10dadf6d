//! What goes over a connection's socket. It begins with the initiator's rings, as a descriptor beside a few words. All other bytes
//! wake the side that reads them, and mean nothing; beside some of them are files of memory that the peer may reach.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::closer::Closer;
use crate::pool::FILES;

/// What it begins with, and the version of what is behind it: of the layout of the rings.
const WORDS: [u8; 8] = *b"fabric\0\x03";
/// Files in one message: the windows, and all of a pool.
const MAX_FILES: usize = 1 + FILES;
/// What wakes the peer.
const NUDGE: [u8; 1] = [0];

/// Sends the rings to a peer to which nothing was sent yet.
///
/// # Errors
/// As sendmsg(2).
pub(crate) fn send(socket: BorrowedFd<'_>, file: &OwnedFd) -> io::Result<()> {
    let descriptors = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(socket, &[IoSlice::new(&WORDS)], &mut beside, flags)?;
    // So few are taken whole, or not at all.
    if sent == WORDS.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Sends files of memory to a peer that may reach it, all of them or none.
///
/// # Errors
/// As sendmsg(2): `WouldBlock` where the socket is full.
pub(crate) fn send_files(socket: BorrowedFd<'_>, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&NUDGE)], &mut beside, flags)?;
    Ok(())
}

/// Files that come with one message, at most (SCM_MAX_FD, unix(7)): those without room here the kernel would close in this thread.
const ANY_FILES: usize = 253;

/// The files that came with a message.
fn files<'a>(beside: &'a mut RecvAncillaryBuffer<'_>) -> impl Iterator<Item = OwnedFd> + 'a {
    let files = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.flatten()
}

/// Receives the rings; gives other files to `spare`. `WouldBlock`: they have not come yet.
///
/// # Errors
/// `UnexpectedEof`: the peer has left. `InvalidData`: it said something else, or its descriptor found no place here. As
/// recvmsg(2).
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    mut spare: impl FnMut(OwnedFd),
) -> io::Result<OwnedFd> {
    let mut words = [0; WORDS.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ANY_FILES))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut words)], &mut beside, flags)?.bytes;
    if got == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let whole = got == WORDS.len() && words == WORDS;
    let mut rings = None;
    for file in files(&mut beside) {
        match rings {
            None if whole => rings = Some(file),
            _ => spare(file),
        }
    }
    rings.ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Wakes a peer that waits.
pub(crate) fn nudge(socket: BorrowedFd<'_>) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // Where the socket is full the peer has much to wake it already; that it is gone the next read reports.
    let _ = rustix::net::send(socket, &NUDGE, flags);
}

/// Reads of the socket at a time. An honest peer leaves a few hundred bytes there; one that writes without end has no more of this
/// thread than that, and is read again when it has written more.
const READS: usize = 4;
/// Bytes of each.
const READ: usize = 4096;

/// Takes what woke this side, from a peer that should send no files: the closer has them. False: the peer has left.
pub(crate) fn take_nudges(socket: BorrowedFd<'_>, closer: &Arc<Closer>) -> bool {
    // While it is behind they stay where they are.
    let may_read = || !closer.is_behind() || !has_files(socket);
    take(socket, may_read, |file| file.into_iter().for_each(|file| closer.close(file)))
}

/// As [`take_nudges`], from a peer that may send files: gives them to `take`, in their order; `None` stands for some that
/// found no place here.
pub(crate) fn take_files(socket: BorrowedFd<'_>, each: impl FnMut(Option<OwnedFd>)) -> bool {
    take(socket, || true, each)
}

fn take(
    socket: BorrowedFd<'_>,
    may_read: impl Fn() -> bool,
    mut each: impl FnMut(Option<OwnedFd>),
) -> bool {
    let mut bytes = [0; READ];
    for _ in 0..READS {
        if !may_read() {
            return true;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ANY_FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags) {
            Ok(received) => {
                files(&mut beside).for_each(|file| each(Some(file)));
                if received.flags.contains(ReturnFlags::CTRUNC) {
                    each(None);
                }
                if received.bytes == 0 {
                    return false;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return true,
            // It left some of them unread (unix(7)).
            Err(_) => return false,
        }
    }
    true
}

/// Whether files come with what the next read takes. Without room for them a look gets none, and closes none.
#[cold]
fn has_files(socket: BorrowedFd<'_>) -> bool {
    let (mut bytes, mut none) = ([0; READ], RecvAncillaryBuffer::default());
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut none, flags)
        .is_ok_and(|seen| seen.flags.contains(ReturnFlags::CTRUNC))
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::closer::tests::Sleeps;
    use crate::ring::Rings;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    fn refused(socket: &UnixStream) -> ErrorKind {
        receive(socket.as_fd(), drop).unwrap_err().kind()
    }

    /// However fast a peer writes, a look takes no more than its part of that.
    #[test]
    #[cfg_attr(miri, ignore)] // sockets
    fn one_that_writes_without_end_is_left() {
        let (one, other) = pair();
        const LOOKS: usize = 1000;
        let (sent, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let more = rustix::net::send(&one, &[1; 1 << 16], SendFlags::DONTWAIT);
                    sent.fetch_add(more.unwrap_or(0), Ordering::Relaxed);
                }
            });
            while sent.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..LOOKS {
                assert!(take_nudges(other.as_fd(), &Arc::default()));
                assert!(take_files(other.as_fd(), |_| panic!("a file")));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // And what the kernel keeps.
        assert!(sent.into_inner() <= 2 * LOOKS * READS * 4096 + (1 << 20));
    }

    #[test]
    fn rings_come_to_the_peer() {
        let (one, other) = pair();
        assert_eq!(refused(&other), ErrorKind::WouldBlock);
        let (_rings, file) = Rings::create().unwrap();
        send(one.as_fd(), &file).unwrap();
        nudge(one.as_fd());
        let file = receive(other.as_fd(), drop).unwrap();
        assert!(Rings::of(file.as_fd()).is_ok());
        assert!(take_nudges(other.as_fd(), &Arc::default()));
        drop(one);
        assert!(!take_nudges(other.as_fd(), &Arc::default()));
    }

    #[test]
    fn what_is_no_preface_is_refused() {
        for bytes in [&b"f"[..], b"fabric\0\x03", b"fabric\0\x02", b"GET / HTTP/1.1\r\n\r\n"] {
            let (mut one, other) = pair();
            one.write_all(bytes).unwrap();
            assert_eq!(refused(&other), ErrorKind::InvalidData, "{bytes:?}");
        }
        let (one, other) = pair();
        drop(one);
        assert_eq!(refused(&other), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_full_socket_is_no_error() {
        let (one, other) = pair();
        for _ in 0..10_000 {
            nudge(one.as_fd());
        }
        assert!(take_nudges(other.as_fd(), &Arc::default()));
    }

    /// Sends words with as many descriptors of the socket itself.
    fn send_with(socket: &UnixStream, words: &[u8], count: usize) {
        let files = vec![socket.as_fd(); count];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ANY_FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(socket, &[IoSlice::new(words)], &mut beside, SendFlags::empty()).unwrap();
    }

    /// The kernel closes none of them: it would do so in this thread.
    #[test]
    #[cfg_attr(miri, ignore)] // sockets
    fn files_that_were_not_asked_for_come_to_this_side() {
        for (words, count, spare) in [(&WORDS[..], 3, 2), (b"fabric\0\x02", 1, 1)] {
            let (one, other) = pair();
            send_with(&one, words, count);
            let mut spared = 0;
            let got = receive(other.as_fd(), |_| spared += 1);
            assert_eq!((got.is_ok(), spared), (words == WORDS, spare));
        }
        let (one, other) = pair();
        send_with(&one, &NUDGE, ANY_FILES);
        let mut came = 0;
        assert!(take_files(other.as_fd(), |file| came += usize::from(file.is_some())));
        assert_eq!(came, ANY_FILES);
    }

    /// While the closer is behind, what comes without files is taken, and files stay where they are.
    #[test]
    #[cfg_attr(miri, ignore)] // sockets
    fn files_wait_for_a_closer_that_is_behind() {
        let (closer, (wakes, sleeps)) = (Arc::new(Closer::default()), std::sync::mpsc::channel());
        closer.close(Sleeps(sleeps));
        let (one, other) = pair();
        while !closer.is_behind() {
            send_with(&one, &NUDGE, 1);
            assert!(take_nudges(other.as_fd(), &closer));
        }
        nudge(one.as_fd());
        assert!(take_nudges(other.as_fd(), &closer));
        assert_eq!(rustix::io::ioctl_fionread(&other).unwrap(), 0);
        send_with(&one, &NUDGE, 1);
        assert!(take_nudges(other.as_fd(), &closer));
        assert_eq!(rustix::io::ioctl_fionread(&other).unwrap(), 1);
        drop(wakes);
        while closer.is_behind() {
            std::thread::yield_now();
        }
        assert!(take_nudges(other.as_fd(), &closer));
        assert_eq!(rustix::io::ioctl_fionread(&other).unwrap(), 0);
    }
}
