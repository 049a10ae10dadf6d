//! Reads that may have been refused though their device says that they succeeded.
//!
//! Soft-RoCE (seen in Linux 6.1, no longer in 6.12) takes a refusal that comes in the midst of a read's answer, which it
//! does when a packet was lost and the region closed meanwhile, for a success: the read ends as if its bytes had come, and
//! its queue pair is in error. So the success of a read of several packets is believed if the queue pair stands, or if
//! something behind it shows that it stood then. If not, the read ends as one whose refusal got lost: `Canceled`.

use fabric_core::{RawCompletion, Side, Status, Token};

use crate::cq::{Queue, Sink, success};
use crate::ffi::{ibv_wc, ibv_wc_opcode, ibv_wc_status as status};

/// The least MTU (InfiniBand specification): a read of no more is answered by one packet, which has no midst.
const ONE_PACKET: u32 = 256;

/// A read in doubt.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// Of its queue pair.
    number: u32,
    token: Token,
}

/// Whether a plain success is not to be passed on as it is, on a device that says so of reads that were refused.
#[inline]
pub(crate) fn is_doubtful(wc: &ibv_wc, sink: &Sink<'_>) -> bool {
    is_long_read(wc) || !sink.doubts.is_empty()
}

fn is_long_read(wc: &ibv_wc) -> bool {
    wc.opcode == ibv_wc_opcode::IBV_WC_RDMA_READ && wc.byte_len > ONE_PACKET
}

impl Queue {
    /// A success that is doubtful, or comes behind one.
    #[cold]
    pub(crate) fn believe(&self, wc: &ibv_wc, sink: &mut Sink<'_>) {
        self.hear(wc, sink);
        let broken = || {
            let conn = self.conn(wc.qp_num);
            conn.is_some_and(|conn| conn.is_broken())
        };
        if is_long_read(wc) && broken() {
            sink.doubts.push(Read { number: wc.qp_num, token: Token::from_bits(wc.wr_id) });
        } else {
            sink.push(success(wc));
        }
    }

    /// What comes of a queue pair behind a read in doubt: it stood then, unless that was flushed.
    pub(crate) fn hear(&self, wc: &ibv_wc, sink: &mut Sink<'_>) {
        let own = !Token::is_internal(wc.wr_id);
        if own && Token::from_bits(wc.wr_id).side() == Side::Recv {
            return;
        }
        let Some(at) = sink.doubts.iter().position(|read| read.number == wc.qp_num) else { return };
        let read = sink.doubts.remove(at);
        if wc.status == status::IBV_WC_WR_FLUSH_ERR {
            self.disbelieve(read, sink);
        } else {
            sink.push(RawCompletion::new(read.token, Status::Ok));
        }
    }

    /// Nothing is behind the reads in doubt: what breaks a queue pair is reported before it is broken.
    #[cold]
    pub(crate) fn disbelieve_all(&self, sink: &mut Sink<'_>) {
        while let Some(read) = sink.doubts.pop() {
            self.disbelieve(read, sink);
        }
    }

    fn disbelieve(&self, read: Read, sink: &mut Sink<'_>) {
        match self.conn(read.number) {
            Some(conn) => conn.complete(read.token.to_bits(), status::IBV_WC_WR_FLUSH_ERR, sink),
            None => sink.push(RawCompletion::new(read.token, Status::Canceled)),
        }
    }
}
