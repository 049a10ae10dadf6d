//! From receives to work requests, for a queue pair's own queue or a shared one.

use std::io;
use std::ptr;

use fabric_core::{Posted, RecvWork, Token};

use crate::chain::{Chain, Many, One};
use crate::conn::Conn;
use crate::ffi::ibv_recv_wr;
use crate::post::{in_turn, refused};

/// What a driver says of a chain: if it was not taken whole, the first request that was not.
type Taken = Result<(), (*const ibv_recv_wr, io::Error)>;

/// Posts receives by `post`, which is given chains of them with the token of the last.
#[inline]
pub(crate) fn post_receives(
    work: &[RecvWork<'_>],
    post: impl Fn(&mut ibv_recv_wr, Token) -> Taken,
) -> Posted {
    match work {
        [one] => post_chain(One::new(), std::slice::from_ref(one), &post),
        _ => post_many(work, &post),
    }
}

#[inline(never)]
fn post_many(work: &[RecvWork<'_>], post: &impl Fn(&mut ibv_recv_wr, Token) -> Taken) -> Posted {
    in_turn(work, |rest| post_chain(Many::new(), rest, post))
}

/// Posts as many receives as a chain has room for.
#[inline]
fn post_chain<const R: usize, const S: usize>(
    mut chain: Chain<ibv_recv_wr, R, S>,
    work: &[RecvWork<'_>],
    post: &impl Fn(&mut ibv_recv_wr, Token) -> Taken,
) -> Posted {
    let mut last = Token::default();
    for one in work {
        if !chain.has_room() {
            break;
        }
        last = one.token;
        let first = chain.segments_len();
        chain.local(one.segments);
        let (sg_list, num_sge) = chain.list(first);
        let wr_id = one.token.to_bits();
        chain.push(ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list, num_sge });
        chain.end_operation();
    }
    let operations = usize::from(chain.operations());
    let Some(head) = chain.link(|request, next| request.next = next) else {
        return Posted::all(0);
    };
    match post(head, last) {
        Ok(()) => Posted::all(operations),
        Err((bad, cause)) => Posted::until(chain.taken_before(bad), refused(cause)),
    }
}

impl Conn {
    /// Posts receives to the queue pair.
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`](fabric_core::EndpointOps::post_recv).
    #[inline]
    pub(crate) unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let posted = post_receives(work, |chain, last| {
            self.tokens.note_recv(last);
            // SAFETY: the caller's promise; the chain is on the stack until the call returns.
            unsafe { self.qp.post_recv(chain) }
        });
        if posted.accepted > 0 {
            self.flush_late_receives();
        }
        posted
    }
}
