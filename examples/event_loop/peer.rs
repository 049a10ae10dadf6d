//! One end of a connection, and what it does next.

use fabric::{Access, CompletionQueue, Domain, Endpoint, Region, Result};

/// Both ends do the same: add 1 to the number that came, and send it back.
pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    number: Region,
    /// Operations under way: the send of the number, the receive of the next.
    pending: usize,
    /// Messages the client still sends; the server sends as many as come.
    left: Option<u64>,
}

impl Peer {
    pub(crate) fn new(
        domain: &Domain,
        queue: &CompletionQueue,
        messages: Option<u64>,
    ) -> Result<Self> {
        // Never more than one send and one receive, so the smallest queues will do.
        let endpoint = domain.endpoint().send_depth(1).recv_depth(1).build(queue)?;
        let number = domain.alloc(size_of::<u64>(), Access::LOCAL_WRITE)?;
        Ok(Peer { endpoint, number, pending: 0, left: messages })
    }

    /// Waits for the first number.
    pub(crate) fn listen(&mut self) -> Result<()> {
        self.pending = 1;
        self.endpoint.recv(&self.number, 0)
    }

    /// Sends the next number.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.number.put(0, &self.number()?.wrapping_add(1))?;
        self.pending = 2;
        // First the receive, so that the answer finds one. No answer can come before the number is out, so
        // both may use the same memory.
        self.endpoint.recv(&self.number, 0)?;
        self.endpoint.send(&self.number, 0)
    }

    /// Takes note of a completion; returns whether the client is done. Sends and receives complete in any
    /// order, so the next step waits for both.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.pending -= 1;
        if self.pending > 0 {
            return Ok(false);
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
            if *left == 0 {
                return Ok(true);
            }
        }
        self.step()?;
        Ok(false)
    }

    pub(crate) fn number(&self) -> Result<u64> {
        self.number.get(0)
    }

    /// Whether the connection may end now.
    pub(crate) fn may_leave(&self) -> bool {
        self.left.is_none_or(|left| left == 0)
    }
}
