//! What cases do with an end again and again, each in one call.

use fabric::{Completion, Op, Slices};

use super::End;
use crate::check::{Failed, Outcome};
use crate::done::Done;
use crate::guarded::Guarded;
use crate::pattern::Pattern;

impl End {
    /// As [`buffer`](End::buffer), with this byte all over.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn filled(&self, len: usize, byte: u8) -> Result<Guarded, Failed> {
        let buffer = self.buffer(len)?;
        buffer.fill(byte)?;
        Ok(buffer)
    }

    /// As [`buffer`](End::buffer), with this pattern in it.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn patterned(&self, len: usize, pattern: Pattern) -> Result<Guarded, Failed> {
        let buffer = self.buffer(len)?;
        buffer.put_pattern(.., pattern)?;
        Ok(buffer)
    }

    /// A guarded buffer of just these bytes, with every right.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn holding(&self, bytes: &[u8]) -> Result<Guarded, Failed> {
        let buffer = self.buffer(bytes.len())?;
        buffer.put(0, bytes)?;
        Ok(buffer)
    }

    /// Posts receives of these contexts that have no memory: for empty messages, and writes with immediate data.
    ///
    /// # Errors
    /// If a post is refused.
    #[track_caller]
    pub fn recv_empty<C: TryInto<u64>>(&self, contexts: impl IntoIterator<Item = C>) -> Outcome {
        for context in contexts {
            self.recv(Slices::none(), Done::ok(context).context)?;
        }
        Ok(())
    }

    /// Expects that the next completions are `Ok` and of these contexts, in this order.
    ///
    /// # Errors
    /// If one is not, or does not come within 10 s; with a dump of both sides.
    #[track_caller]
    pub fn expect_each<C: TryInto<u64>>(&self, contexts: impl IntoIterator<Item = C>) -> Outcome {
        for context in contexts {
            self.expect_ok(context)?;
        }
        Ok(())
    }

    /// Expects that the next completions are `Canceled` and of these contexts, in this order.
    ///
    /// # Errors
    /// If one is not, or does not come within 10 s; with a dump of both sides.
    #[track_caller]
    pub fn expect_canceled<C: TryInto<u64>>(
        &self,
        contexts: impl IntoIterator<Item = C>,
    ) -> Outcome {
        for context in contexts {
            self.expect(Done::canceled(context))?;
        }
        Ok(())
    }

    /// Posts an operation with the context of `done`, and expects that the next completion is that.
    ///
    /// # Errors
    /// If the post is refused, or as for [`expect`](End::expect).
    #[track_caller]
    pub fn run(&self, op: Op<'_>, done: Done) -> Result<Completion, Failed> {
        self.endpoint.post(&op.context(done.context))?;
        self.expect(done)
    }

    /// Posts an operation that the target refuses: it completes so, and then the connection is over at `peer` too.
    ///
    /// # Errors
    /// If the post is refused, the operation ends in another way, or the connection does not end within 10 s.
    #[track_caller]
    pub fn run_refused(&self, op: Op<'_>, context: impl TryInto<u64>, peer: &End) -> Outcome {
        self.run(op, Done::refused(context))?;
        peer.expect_disconnected().map(drop)
    }

    /// Posts a receive at `peer`, and then the operation here that consumes it; expects that the receive completes like
    /// `received`, whose context it has. The completion of the operation is still to come.
    ///
    /// # Errors
    /// If a post is refused, or as for [`expect`](End::expect).
    #[track_caller]
    pub fn deliver<'a>(
        &self,
        op: Op<'_>,
        peer: &End,
        into: impl Into<Slices<'a>>,
        received: Done,
    ) -> Outcome {
        peer.recv(into, received.context)?;
        self.post(&op)?;
        peer.expect(received).map(drop)
    }

    /// Sends an empty message to a receive that it posts at `peer`, and waits for both completions: what this end
    /// sent and wrote before, the peer's CPU sees afterwards. Both queues must be empty of other things: no
    /// completion to come before these, no receive posted at the peer.
    ///
    /// # Errors
    /// If either completion is another one, or does not come.
    #[track_caller]
    pub fn settle(&self, peer: &End) -> Outcome {
        const CONTEXT: u64 = u64::from_be_bytes(*b" settle ");
        peer.recv(Slices::none(), CONTEXT)?;
        self.send(Slices::none(), CONTEXT)?;
        peer.expect_ok(CONTEXT)?;
        self.expect_ok(CONTEXT)?;
        Ok(())
    }
}
