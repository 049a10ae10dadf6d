//! Datagram endpoints in the provider contract: unreliable messages to any address, without a connection.
//!
//! Where [`DATAGRAMS`](crate::Capabilities::DATAGRAMS) is declared.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attr::{MAX_DEPTH, within};
use crate::datagram_address::DatagramAddress;
use crate::error::{Error, Result};
use crate::info::{Capabilities, Info};
use crate::token::Token;
use crate::work::{Posted, RecvWork, Segment, SendFlags};

/// Segments of a datagram, and of a receive for one; the same on every provider.
pub const MAX_DATAGRAM_SEGMENTS: usize = 4;

/// How a datagram endpoint is made. `Default` is a good start for most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DatagramAttr {
    /// Datagrams the send queue holds; completions not yet taken count.
    pub send_depth: usize,
    /// Receives the receive queue holds; completions not yet taken count. A datagram that finds none is dropped, so it is what
    /// a burst may have.
    pub recv_depth: usize,
    /// Most bytes of one inject.
    pub inject: usize,
    /// The local address, one of the device's; unset, its first one. Peers need one of the same family.
    pub source: Option<IpAddr>,
}

impl Default for DatagramAttr {
    fn default() -> Self {
        DatagramAttr { send_depth: 128, recv_depth: 128, inject: 128, source: None }
    }
}

const OP: &str = "make datagram endpoint";

impl DatagramAttr {
    /// Checks every setting against the device's limits.
    ///
    /// # Errors
    /// `Unsupported` where the device has no datagrams; `InvalidArgument` that names the setting and the limit.
    pub fn check(&self, info: &Info) -> Result<()> {
        if !info.capabilities.contains(Capabilities::DATAGRAMS) {
            let text = format!("{} does not offer datagrams", info.device);
            return Err(Error::unsupported(OP, info.provider, text));
        }
        let limits = &info.limits;
        within(OP, "send_depth", self.send_depth, 1, limits.send_depth.min(MAX_DEPTH))?;
        within(OP, "recv_depth", self.recv_depth, 1, limits.recv_depth.min(MAX_DEPTH))?;
        within(OP, "inject", self.inject, 0, limits.inject.min(limits.datagram))?;
        self.source_of(info).map(drop)
    }

    /// The local address.
    ///
    /// # Errors
    /// `InvalidArgument` that names the addresses there are.
    pub fn source_of(&self, info: &Info) -> Result<IpAddr> {
        let has = &info.addresses;
        let source = self.source.or(has.first().copied());
        source.filter(|ip| has.contains(ip)).ok_or_else(|| {
            let device = &info.device;
            Error::invalid(
                OP,
                format!("source {source:?} is no address of {device}: it has {has:?}"),
            )
        })
    }
}

/// One datagram for the send queue.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct DatagramWork<'a> {
    /// Comes back in the completion.
    pub token: Token,
    /// Where it goes: what [`DatagramOps::resolve`] of this endpoint gave.
    pub to: &'a dyn AddressHandleOps,
    /// Immediate data for the receive's completion.
    pub imm: Option<u32>,
    /// Local memory, gathered in this order.
    pub segments: &'a [Segment],
    /// `INJECT` or nothing; each datagram has its completion.
    pub flags: SendFlags,
}

impl<'a> DatagramWork<'a> {
    /// A datagram; `token` comes back in its completion.
    #[inline]
    pub fn new(
        token: Token,
        to: &'a dyn AddressHandleOps,
        imm: Option<u32>,
        segments: &'a [Segment],
        flags: SendFlags,
    ) -> Self {
        DatagramWork { token, to, imm, segments, flags }
    }
}

/// An address that was resolved: what the device needs to send there. It is dropped when no datagram for it is in flight.
pub trait AddressHandleOps: Any + Send + Sync + 'static {}

/// A datagram endpoint.
///
/// - A datagram arrives whole or not at all. It may be lost, come late, behind later ones, or twice.
/// - One that comes takes the receive that was posted first of those that are left. If there is none, it is dropped.
/// - One that is longer than its receive ends that `TooLong`; what is in the receive's memory is unspecified. Nothing else happens:
///   the next datagram takes the next receive.
/// - What comes and is no datagram of this library is dropped, and takes no receive.
/// - Completions of each queue come in posting order. One of a receive that ended `Ok` has its sender's address in the endpoint's
///   [`DatagramSources`], under the token's sequence number, before it can be polled for.
/// - That of a send says `Ok` when the memory is free again: what becomes of the datagram is not known. Nothing that a network or
///   a peer does fails it.
///
/// The caller serializes the posts of each queue, never exceeds the depths, and has checked lengths and segments.
///
/// # Safety
/// As at [`EndpointOps`](crate::EndpointOps), where [`quiesce`](DatagramOps::quiesce) is meant by `quiesce`; every accepted
/// operation is completed, also if it ended well.
pub unsafe trait DatagramOps: Any + Send + Sync + 'static {
    /// Its address.
    ///
    /// - Constant.
    fn address(&self) -> DatagramAddress;

    /// Makes ready to send to an address.
    ///
    /// - It may ask the network for the way there, and wait for that: some seconds at most.
    /// - `InvalidArgument` for an address of another kind or family; `Unreachable` where no way is known.
    fn resolve(&self, address: &DatagramAddress) -> Result<Box<dyn AddressHandleOps>>;

    /// Posts datagrams.
    ///
    /// - Takes the longest prefix it can and says why the rest was refused; never blocks.
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`](crate::EndpointOps::post_send). The handles stay until the completions are polled, or
    /// `quiesce` has returned.
    unsafe fn post_send(&self, work: &[DatagramWork<'_>]) -> Posted;

    /// Posts receives.
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`](crate::EndpointOps::post_recv).
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted;

    /// Afterwards no segment is touched, and nothing new reaches the completion queues.
    ///
    /// - Bounded in time. What has no completion yet gets none: the caller cancels it.
    /// - An error: a device may still touch segments. The caller then leaks their memory.
    /// - Repeating it is harmless.
    fn quiesce(&self) -> Result<()>;

    /// What it dropped so far.
    fn drops(&self) -> DatagramDrops;

    /// The state of the endpoint, in a few lines for a bug report.
    fn dump(&self) -> String;
}

/// Datagrams that a provider dropped, by reason. `None`: the device drops them by itself, and does not say how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DatagramDrops {
    /// Those for which no receive was posted.
    pub no_receive: Option<u64>,
    /// Those that are not of this library, or of another version.
    pub malformed: Option<u64>,
    /// Those that came faster than they could be taken in: the socket's buffer was full.
    pub overrun: Option<u64>,
    /// Those that this end could not hand to the network.
    pub unsent: Option<u64>,
}

/// Where received datagrams came from: a table that the provider fills, and the library reads when it takes the completion. It is
/// memory of its own since completions of other endpoints have no source.
pub struct DatagramSources(Box<[[AtomicU64; 3]]>);

impl DatagramSources {
    /// For a receive queue of this depth.
    pub fn new(depth: usize) -> Arc<Self> {
        let none = || [const { AtomicU64::new(0) }; 3];
        let places = (0..depth.clamp(1, MAX_DEPTH).next_power_of_two()).map(|_| none());
        Arc::new(DatagramSources(places.collect()))
    }

    fn place(&self, token: Token) -> &[AtomicU64; 3] {
        &self.0[token.sequence() as usize & (self.0.len() - 1)]
    }

    /// Notes where the datagram came from that a receive took; its completion is published after that.
    #[inline]
    pub fn note(&self, token: Token, source: Option<DatagramAddress>) {
        let words = source.map_or([0; 3], DatagramAddress::to_words);
        for (place, word) in self.place(token).iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Where the datagram of a receive came from, between its completion and the next post under its number.
    #[inline]
    pub fn get(&self, token: Token) -> Option<DatagramAddress> {
        let [rest, high, low] = self.place(token);
        DatagramAddress::from_words([rest, high, low].map(|word| word.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Side;

    #[test]
    fn settings_are_checked_by_name() {
        let mut info = Info::new("tcp", "lo");
        let mut attr = DatagramAttr::default();
        assert!(matches!(attr.check(&info), Err(Error::Unsupported(_))));
        info.capabilities = Capabilities::DATAGRAMS;
        info.addresses = vec![[127, 0, 0, 1].into()];
        (info.limits.send_depth, info.limits.recv_depth) = (256, 256);
        (info.limits.inject, info.limits.datagram) = (256, 1024);
        attr.check(&info).unwrap();
        assert_eq!(attr.source_of(&info).unwrap(), info.addresses[0]);
        for (name, change) in [
            ("send_depth", (|attr| attr.send_depth = 257) as fn(&mut DatagramAttr)),
            ("recv_depth", |attr| attr.recv_depth = 0),
            ("inject", |attr| attr.inject = 257),
            ("source", |attr| attr.source = Some([10, 0, 0, 1].into())),
        ] {
            attr = DatagramAttr::default();
            change(&mut attr);
            let error = attr.check(&info).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn sources_belong_to_their_receive() {
        let sources = DatagramSources::new(3);
        let token = |sequence| Token::new(1, 1, Side::Recv, sequence);
        let from = |port| DatagramAddress::udp(([127, 0, 0, 1], port).into()).ok();
        for sequence in u32::MAX - 5..=u32::MAX {
            sources.note(token(sequence), from(sequence as u16 | 1));
            assert_eq!(sources.get(token(sequence)), from(sequence as u16 | 1));
        }
        sources.note(token(7), None);
        assert_eq!(sources.get(token(7)), None);
    }
}
