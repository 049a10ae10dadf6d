//! The receiver's side: places and bytes for unmatched messages, for all peers of an endpoint.

use fabric_core::{Error, Result, likely, unlikely};

use super::ledger::Ledger;
pub use super::ledger::Resource;
use super::meter::{Allowance, Notice, WindowError};

/// What an endpoint has for unmatched messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowLimits {
    /// Places for envelopes.
    pub places: Resource,
    /// Bytes of payload that comes with its envelope.
    pub bytes: Resource,
}

/// 64 messages of each peer and 65,536 of all, two of each reserved; 1 MiB of each peer and 128 MiB of all, 4 KiB of each
/// reserved.
impl Default for WindowLimits {
    fn default() -> Self {
        WindowLimits {
            places: Resource { total: 1 << 16, window: 64, reserved: 2 },
            bytes: Resource { total: 128 << 20, window: 1 << 20, reserved: 4096 },
        }
    }
}

/// What a receiver sends to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Of places.
    pub places: Allowance,
    /// Of bytes.
    pub bytes: Allowance,
}

/// What a sender sends to a receiver, beside messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notices {
    /// Of places.
    pub places: Notice,
    /// Of bytes.
    pub bytes: Notice,
}

/// Names a peer's part. After [`ReceiveWindows::close`], and once all its messages are matched, another peer may get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(u32);

impl Account {
    /// Its place, below the number of accounts that there ever were at a time: for tables beside.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccountState {
    Free,
    Open,
    /// Without a connection. What is reserved stays so.
    Parked,
    /// No more comes from it. Messages of it are unmatched.
    Closing,
}

/// What all peers may send to an endpoint.
#[derive(Debug)]
pub struct ReceiveWindows {
    places: Ledger,
    bytes: Ledger,
    states: Vec<AccountState>,
    free: Vec<u32>,
}

impl ReceiveWindows {
    /// With nothing granted.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: a window is 0 or smaller than what is reserved, or no place is reserved: then a peer
    /// could wait for ever.
    pub fn new(limits: &WindowLimits) -> Result<Self> {
        let WindowLimits { places, bytes } = *limits;
        if places.reserved == 0 || places.window < places.reserved || bytes.window < bytes.reserved
        {
            let detail =
                "reserve at least one place for each peer, and no more than its window has";
            return Err(Error::invalid("receive window", detail));
        }
        Ok(ReceiveWindows {
            places: Ledger::new(places),
            bytes: Ledger::new(bytes),
            states: Vec::new(),
            free: Vec::new(),
        })
    }

    /// A peer comes. It is granted what is reserved for it.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: less is left than has to be reserved for a peer. One that has more than is reserved, and does not
    /// use it, is to give it back: there may be room a little later.
    pub fn open(&mut self) -> Result<Account> {
        if !self.places.has_room() || !self.bytes.has_room() {
            self.places.make_room();
            self.bytes.make_room();
            let detail = "other peers have what would be reserved for one more: raise the limits";
            return Err(Error::NoMemory(fabric_core::Failure::new("receive window", detail)));
        }
        let at = self.free.pop().unwrap_or(self.states.len() as u32);
        if at as usize == self.states.len() {
            self.states.push(AccountState::Free);
        }
        self.states[at as usize] = AccountState::Open;
        self.places.open(at);
        self.bytes.open(at);
        Ok(Account(at))
    }

    fn is(&self, account: Account, state: AccountState) -> bool {
        self.states.get(account.0 as usize) == Some(&state)
    }

    /// Whether a message may come, with so many bytes along with its envelope. If not, the connection has to end, as memory for it
    /// may not be there.
    pub(crate) fn admits(&self, from: Account, eager_bytes: u64) -> bool {
        likely(self.is(from, AccountState::Open))
            && self.places.admits(from.0, 1)
            && self.bytes.admits(from.0, eager_bytes)
    }

    /// A message came that was [admitted](Self::admits), and has met a receive at once: [`on_message`](Self::on_message) and
    /// [`on_matched`](Self::on_matched) in one.
    pub(crate) fn on_passed(&mut self, from: Account, eager_bytes: u64) {
        debug_assert!(self.admits(from, eager_bytes));
        self.places.on_passed(from.0, 1);
        self.bytes.on_passed(from.0, eager_bytes);
    }

    /// A message came, with so many bytes along with its envelope.
    ///
    /// # Errors
    /// [`WindowError::Exceeded`]: that was not granted. The connection has to end, as memory for it may not be there.
    pub fn on_message(&mut self, from: Account, eager_bytes: u64) -> Result<(), WindowError> {
        if unlikely(!self.admits(from, eager_bytes)) {
            return Err(WindowError::Exceeded);
        }
        self.places.on_received(from.0, 1)?;
        self.bytes.on_received(from.0, eager_bytes)
    }

    /// A message that came with so many bytes has met a receive, or was dropped: its memory is free.
    pub fn on_matched(&mut self, from: Account, eager_bytes: u64) {
        if !self.is(from, AccountState::Free) && (from.0 as usize) < self.states.len() {
            self.places.on_freed(from.0, 1);
            self.bytes.on_freed(from.0, eager_bytes);
            self.settle(from);
        }
    }

    /// What a sender says.
    ///
    /// # Errors
    /// [`WindowError::Exceeded`]: it gives back more than it was granted.
    pub fn on_notice(&mut self, from: Account, notices: Notices) -> Result<(), WindowError> {
        if unlikely(!self.is(from, AccountState::Open)) {
            return Err(WindowError::Exceeded);
        }
        self.places.on_notice(from.0, notices.places)?;
        self.bytes.on_notice(from.0, notices.bytes)
    }

    /// How many places of what the peer used are free again: said to it as the last word before a connection is parked, so that
    /// the peer knows how many messages wait here.
    pub fn take_freed(&mut self, account: Account) -> u64 {
        if self.is(account, AccountState::Open) { self.places.take_freed(account.0) } else { 0 }
    }

    /// The connection was [parked](crate::connection): all that was sent either way has arrived. What was granted and not
    /// used is free for others. To be called on both sides.
    pub fn park(&mut self, account: Account) {
        if self.is(account, AccountState::Open) {
            self.states[account.0 as usize] = AccountState::Parked;
            self.places.park(account.0);
            self.bytes.park(account.0);
        }
    }

    /// There is a connection again, by which the next [grants](Self::take_grant) go.
    pub fn resume(&mut self, account: Account) {
        if self.is(account, AccountState::Parked) {
            self.states[account.0 as usize] = AccountState::Open;
            self.places.resume(account.0);
            self.bytes.resume(account.0);
        }
    }

    /// A peer is gone. What it did not use is free at once; what it used, when that is [matched](Self::on_matched).
    pub fn close(&mut self, account: Account) {
        if self.is(account, AccountState::Open) || self.is(account, AccountState::Parked) {
            self.states[account.0 as usize] = AccountState::Closing;
            self.places.close(account.0);
            self.bytes.close(account.0);
            self.settle(account);
        }
    }

    #[inline]
    fn settle(&mut self, account: Account) {
        if unlikely(self.is(account, AccountState::Closing)) {
            self.settle_closing(account.0);
        }
    }

    #[cold]
    fn settle_closing(&mut self, at: u32) {
        if self.places.is_settled(at) && self.bytes.is_settled(at) {
            self.states[at as usize] = AccountState::Free;
            self.free.push(at);
        }
    }

    /// The next grant that is to be sent, and the peer to send it to; `None`: none is. To be asked after all else.
    #[inline]
    pub fn take_grant(&mut self) -> Option<(Account, Grant)> {
        if self.has_grant() { self.next_grant() } else { None }
    }

    /// Whether there may be one to [take](Self::take_grant).
    #[inline]
    pub(crate) fn has_grant(&self) -> bool {
        self.places.has_changed() || self.bytes.has_changed()
    }

    fn next_grant(&mut self) -> Option<(Account, Grant)> {
        while let Some(at) = self.places.next_changed().or_else(|| self.bytes.next_changed()) {
            let account = Account(at);
            if self.is(account, AccountState::Open)
                && (self.places.is_due(at) || self.bytes.is_due(at))
            {
                let places = self.places.take_allowance(at);
                let bytes = self.bytes.take_allowance(at);
                return Some((account, Grant { places, bytes }));
            }
        }
        None
    }

    /// Whether peers wait for what others have.
    pub fn is_short(&self) -> bool {
        self.places.is_short() || self.bytes.is_short()
    }

    /// One that was to give back what it does not use may be stopped: another one is to, as long as it [lacks](Self::is_short). To
    /// be called now and then.
    pub fn recall_more(&mut self) {
        self.places.recall_more();
        self.bytes.recall_more();
    }

    /// As many places, and bytes, as are granted.
    pub fn granted(&self) -> (u64, u64) {
        (self.places.granted(), self.bytes.granted())
    }
}
