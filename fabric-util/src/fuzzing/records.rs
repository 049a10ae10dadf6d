//! The records of a connection that is encrypted, changed on their way.

use fabric_core::Secret;

use crate::stream::testing::Stream;
use crate::stream::{TlsKeys, TlsTransport, Transport};

/// How much each record carries, and how many there are.
const LEN: usize = 100;
const RECORDS: u8 = 4;

/// Each kind of change.
pub fn records_seeds() -> Vec<Vec<u8>> {
    let changes = [[0, 5, 1], [1, 40, 0x80], [2, 0, 0], [1, 3, 0xff], [3, 0, 0xfe]];
    changes.into_iter().map(Vec::from).chain([Vec::new(), changes.concat()]).collect()
}

/// Changes records as the bytes say: three at a time, which record, where, and what is added to the byte there. What is
/// received is a beginning of what was sent, and all of it only if nothing was changed.
pub fn records(bytes: &[u8]) {
    let Some([mut a, mut b]) = connected() else { return };
    let (mut sent, mut records) = (Vec::new(), Vec::new());
    for number in 0..RECORDS {
        let data = [number; LEN];
        sent.extend(data);
        // SAFETY: it is only read.
        let _ = unsafe { a.send(&[(data.as_ptr().cast_mut(), LEN)]) };
        records.push(std::mem::take(&mut a.inner_mut().said));
    }
    let before = records.concat();
    for change in bytes.chunks_exact(3) {
        match change {
            &[record, _, 0] => {
                let count = records.len();
                records.remove(usize::from(record) % count);
            }
            &[record, at, 0xff] => {
                let count = records.len();
                records.swap(usize::from(record) % count, usize::from(at) % count);
            }
            &[record, at, 0xfe] => {
                let copy = records[usize::from(record) % records.len()].clone();
                let count = records.len();
                records.insert(usize::from(at) % count, copy);
            }
            &[record, at, add] => {
                let record = usize::from(record) % records.len();
                if let Some(byte) = records[record].get_mut(usize::from(at)) {
                    *byte = byte.wrapping_add(add);
                }
            }
            _ => {}
        }
        if records.is_empty() {
            break;
        }
    }
    let after = records.concat();
    let is_changed = after != before;
    b.inner_mut().came = after;
    let mut got = Vec::new();
    loop {
        let mut room = [0; 64];
        // SAFETY: the buffer is ours.
        match unsafe { b.recv(&[(room.as_mut_ptr(), room.len())]) } {
            Ok(0) | Err(_) => break,
            Ok(count) => got.extend_from_slice(&room[..count]),
        }
    }
    assert!(sent.starts_with(&got), "nothing but what was sent");
    assert!(is_changed || got == sent, "all that was sent");
}

fn connected() -> Option<[TlsTransport<Stream>; 2]> {
    let keys = TlsKeys::new(Some(&Secret::new(&[7; 32]).ok()?), None).ok()?;
    let mut a = TlsTransport::initiator(Stream::default(), &keys).ok()?;
    let mut b = TlsTransport::acceptor(Stream::default(), &keys).ok()?;
    for _ in 0..4 {
        a.finish_connect().ok()?;
        b.inner_mut().came.append(&mut a.inner_mut().said);
        // Nothing is to come yet.
        // SAFETY: no memory is given.
        let _ = unsafe { b.recv(&[]) };
        a.inner_mut().came.append(&mut b.inner_mut().said);
    }
    Some([a, b])
}
