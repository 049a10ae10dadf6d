//! A program of datagram endpoints as data: how the endpoints are made, and what happens to them, step by step on one thread.
//!
//! Endpoints are named by their numbers. A step that makes no sense where it is (of an endpoint that was dropped, or with a
//! message that is not there) does nothing. So any part of a program is a program, which is what shrinking needs.

#![allow(missing_docs)] // of fields whose names say what they are, in variants whose docs say the rest

use std::fmt;

use serde::{Deserialize, Serialize};

/// Room that an endpoint has for the writes of each other one: so many places, of so many bytes.
pub(super) const PLACES: [usize; 3] = [8, 300, 9000];

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmProgram {
    pub settings: RdmSettings,
    pub steps: Vec<RdmStep>,
}

/// How the endpoints are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmSettings {
    pub ends: usize,
    pub max_open: u32,
    pub send_depth: u32,
    pub recv_depth: u32,
    /// Messages of one peer that may wait for receives.
    pub window: u64,
    /// Bytes of them.
    pub bytes: u64,
    pub slots: u32,
    pub slot_len: u32,
    pub rendezvous: u64,
    pub connection_depth: u32,
    /// Endpoints may be dropped: connecting to one ends soon.
    pub drops: bool,
}

/// Which messages a receive or a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// `None`: untagged ones.
    pub tag: Option<u64>,
    pub ignore: u64,
    pub from: Option<usize>,
}

/// Where the payload of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    Inject,
    Region,
    /// A region that the target can read.
    Readable,
}

/// What becomes of a message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claiming {
    /// It stays where it is.
    Leave,
    /// It is claimed, and received into so many bytes.
    Receive(usize),
    /// It is claimed, and something is done with it later.
    Keep,
    /// It is claimed and dropped.
    Drop,
}

/// A message, before it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSpec {
    pub tag: Option<u64>,
    pub len: usize,
    pub payload: Payload,
    pub matched: bool,
    pub unsignaled: bool,
    /// It is known by its immediate; else, where it can be, by its first bytes.
    pub immediate: bool,
}

/// A one-sided operation, on what the target has for the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteOp {
    Write(usize),
    Read(usize),
    /// Fetches a counter and adds one.
    Add,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RdmStep {
    Send {
        at: usize,
        to: usize,
        spec: SendSpec,
    },
    Receive {
        at: usize,
        want: Want,
        room: usize,
        min_free: Option<usize>,
    },
    Probe {
        at: usize,
        want: Want,
        claiming: Claiming,
    },
    /// The oldest message that was claimed and kept is received, or dropped.
    Claimed {
        at: usize,
        room: Option<usize>,
    },
    OneSided {
        at: usize,
        to: usize,
        what: RemoteOp,
        fence: bool,
        unsignaled: bool,
    },
    /// Cancels one of the last operations of the endpoint, by its distance from the last.
    Cancel {
        at: usize,
        back: usize,
    },
    /// Takes what has completed.
    Poll(usize),
    /// Sleeps for a moment until something completes.
    Wait(usize),
    /// Waits until everything has come that has to.
    Settle,
    /// Removes a peer.
    Remove {
        at: usize,
        peer: usize,
    },
    /// Inserts it again.
    Insert {
        at: usize,
        peer: usize,
    },
    /// Revives a peer that is down.
    Revive {
        at: usize,
        peer: usize,
    },
    /// Drops an endpoint.
    Drop(usize),
}

impl RdmProgram {
    /// Whether each receive has room for the number of its message.
    pub(super) fn has_room_for_numbers(&self) -> bool {
        self.steps.iter().all(|step| match *step {
            RdmStep::Receive { room, min_free, .. } => room.min(min_free.unwrap_or(8)) >= 8,
            RdmStep::Probe { claiming: Claiming::Receive(room), .. }
            | RdmStep::Claimed { room: Some(room), .. } => room >= 8,
            _ => true,
        })
    }
}

impl RdmStep {
    /// The endpoints that it names as those that act or are acted on.
    pub(super) fn ends(&self) -> impl Iterator<Item = usize> + use<> {
        let (one, other) = match *self {
            RdmStep::Settle => (None, None),
            RdmStep::Send { at, to, .. } | RdmStep::OneSided { at, to, .. } => (Some(at), Some(to)),
            RdmStep::Remove { at, peer }
            | RdmStep::Insert { at, peer }
            | RdmStep::Revive { at, peer } => (Some(at), Some(peer)),
            RdmStep::Receive { at, .. }
            | RdmStep::Probe { at, .. }
            | RdmStep::Claimed { at, .. }
            | RdmStep::Cancel { at, .. }
            | RdmStep::Poll(at)
            | RdmStep::Wait(at)
            | RdmStep::Drop(at) => (Some(at), None),
        };
        one.into_iter().chain(other)
    }
}

impl Want {
    /// Whether it takes a message of this sender with this tag.
    pub(super) fn takes(&self, from: usize, tag: Option<u64>) -> bool {
        let same_tag = match (self.tag, tag) {
            (None, None) => true,
            (Some(wanted), Some(tag)) => (wanted ^ tag) & !self.ignore == 0,
            _ => false,
        };
        same_tag && self.from.is_none_or(|wanted| wanted == from)
    }
}

impl fmt::Display for RdmProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.settings)?;
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(f, "{at:3}  {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RdmStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            RdmStep::Send { at, to, spec } => write!(f, "e{at}: send {spec} to e{to}"),
            RdmStep::Receive { at, want, room, min_free: None } => {
                write!(f, "e{at}: receive {want} into {room} bytes")
            }
            RdmStep::Receive { at, want, room, min_free: Some(min_free) } => {
                write!(
                    f,
                    "e{at}: receive many {want} into {room} bytes, until less than {min_free} are free"
                )
            }
            RdmStep::Probe { at, want, claiming } => {
                write!(f, "e{at}: probe for {want}, {claiming:?}")
            }
            RdmStep::Claimed { at, room: Some(room) } => {
                write!(f, "e{at}: receive the claimed message into {room} bytes")
            }
            RdmStep::Claimed { at, room: None } => write!(f, "e{at}: drop the claimed message"),
            RdmStep::OneSided { at, to, what, fence, unsignaled } => {
                write!(f, "e{at}: {what:?} at e{to}")?;
                f.write_str(if fence { ", fence" } else { "" })?;
                f.write_str(if unsignaled { ", unsignaled" } else { "" })
            }
            RdmStep::Cancel { at, back } => write!(f, "e{at}: cancel, {back} before the last"),
            RdmStep::Poll(at) => write!(f, "e{at}: poll"),
            RdmStep::Wait(at) => write!(f, "e{at}: wait"),
            RdmStep::Settle => f.write_str("settle"),
            RdmStep::Remove { at, peer } => write!(f, "e{at}: remove e{peer}"),
            RdmStep::Insert { at, peer } => write!(f, "e{at}: insert e{peer}"),
            RdmStep::Revive { at, peer } => write!(f, "e{at}: revive e{peer}"),
            RdmStep::Drop(at) => write!(f, "e{at}: drop the endpoint"),
        }
    }
}

impl fmt::Display for SendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, ", self.len)?;
        match self.tag {
            Some(tag) => write!(f, "tag {tag:#x}")?,
            None => f.write_str("untagged")?,
        }
        write!(f, ", {:?}", self.payload)?;
        let flags = [
            (self.matched, " matched"),
            (self.unsignaled, " unsignaled"),
            (!self.immediate, " without immediate"),
        ];
        flags.iter().filter(|flag| flag.0).try_for_each(|flag| f.write_str(flag.1))
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            None => f.write_str("untagged")?,
            Some(tag) if self.ignore == 0 => write!(f, "tag {tag:#x}")?,
            Some(tag) => write!(f, "tag {tag:#x} but for {:#x}", self.ignore)?,
        }
        match self.from {
            Some(from) => write!(f, " from e{from}"),
            None => f.write_str(" from any"),
        }
    }
}
