//! Addresses: shipped, mutated, and those of endpoints that are not there.

use fabric::{DatagramAddress, DatagramKind};

use super::mail::{Mail, is_protected};
use crate::check::check_says;
use crate::prelude::*;

pub(super) fn survive_shipping(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let address = b.end.address();
    let (bytes, text) = (address.to_bytes(), address.to_string());
    check_eq!(bytes.len(), DatagramAddress::LEN, "bytes of an address");
    check_eq!(DatagramAddress::from_bytes(&bytes)?, address, "from its bytes");
    check_eq!(text.parse::<DatagramAddress>()?, address, "from its text {text}");

    let refused = |bytes: &[u8], what: &str| -> Result<String, Failed> {
        let error =
            check_err!(DatagramAddress::from_bytes(bytes), Error::InvalidArgument(_), "{what}");
        Ok(error.to_string())
    };
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes;
        wrong[bit / 8] ^= 1 << (bit % 8);
        refused(&wrong, &format!("bit {bit} flipped"))?;
    }
    let mut newer = bytes;
    newer[4] += 1;
    check_says(&refused(&newer, "a newer version")?, &["version 2", "1"], "a newer version")?;
    for len in [0, 1, bytes.len() - 1] {
        check_says(&refused(&bytes[..len], "fewer bytes")?, &["32"], "fewer bytes")?;
    }
    refused(&[bytes, bytes].concat(), "two addresses")?;
    check_err!(text[1..].parse::<DatagramAddress>(), Error::InvalidArgument(_), "a digit less");
    check_err!("é".repeat(32).parse::<DatagramAddress>(), Error::InvalidArgument(_), "no digits");

    let to = a.end.resolve(&text.parse()?)?;
    check_eq!(to.address(), address, "where a handle leads");
    a.expect_alive(rig, &b)
}

pub(super) fn of_others(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let own = a.end.address();
    let others = [
        DatagramAddress::udp("127.0.0.1:4000".parse().unwrap_or_else(|_| unreachable!()))?,
        DatagramAddress::memory("127.0.0.1:4000".parse().unwrap_or_else(|_| unreachable!()))?,
        DatagramAddress::ud([7; 16], 0, 77)?,
    ];
    for other in others.iter().filter(|other| other.kind() != own.kind()) {
        let error =
            check_err!(a.end.resolve(other), Error::InvalidArgument(_), "the address {other:?}");
        check_says(&error.to_string(), &["kind"], other.kind().name_for_case())?;
    }
    let theirs = b.to(&a)?;
    check_err!(a.end.inject_to(&theirs, b"x", 1), Error::InvalidArgument(_), "another's handle");
    a.expect_quiet(rig)?;
    a.expect_alive(rig, &b)
}

/// A kind in words.
trait Named {
    fn name_for_case(&self) -> &'static str;
}

impl Named for DatagramKind {
    fn name_for_case(&self) -> &'static str {
        match self {
            DatagramKind::Udp => "an address of UDP",
            DatagramKind::Ud => "an address of a queue pair",
            _ => "an address of another kind",
        }
    }
}

pub(super) fn dead(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let gone = Mail::open(rig, rig.domain_b())?;
    let to = a.to(&gone)?;
    drop(gone);
    let source = a.buffer(rig, 64)?;
    for n in 0..16 {
        a.post(&to, &Op::send(source.slice(..n)))?;
        // What the network answers to it comes meanwhile.
        thread::sleep(Duration::from_millis(1));
    }
    a.expect_quiet(rig)?;
    source.region().close()?;
    a.expect_alive(rig, &b)?;
    b.expect_alive(rig, &a)
}
