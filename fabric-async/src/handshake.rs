//! The private data with which two ends of a connection introduce themselves.
//!
//! 16 bytes, then the application's: magic `fA`, version, kind and flags, the longest message that this end receives
//! (little-endian, 32 bits), a token (64 bits). Both ends send one, the connecting end first.

use fabric::{ConnectRequest, MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};

use crate::error::{Error, Result};

const MAGIC: [u8; 2] = *b"fA";
const VERSION: u8 = 1;
const LEN: usize = 16;

/// The most data of the application's own that connecting carries.
///
/// ```
/// use fabric_async::{MAX_CONNECT_BYTES, Node, block_on};
///
/// let node = Node::shared()?;
/// let listener = block_on(node.listen("127.0.0.1:0"))?;
/// let to = listener.local_addr();
/// let client = std::thread::spawn(move || block_on(node.connect_with(to, &[7; MAX_CONNECT_BYTES])));
/// assert_eq!(block_on(listener.request())?.data(), [7; MAX_CONNECT_BYTES]);
/// # assert!(client.join().unwrap().is_err());
/// # Ok::<(), fabric_async::Error>(())
/// ```
pub const MAX_CONNECT_BYTES: usize = MAX_CONNECT_DATA - LEN;
/// The most data of the application's own that accepting carries.
///
/// ```
/// use fabric_async::{Connection, Listener, MAX_ACCEPT_BYTES, block_on};
///
/// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
/// let to = listener.local_addr();
/// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
/// let conn = block_on(block_on(listener.request())?.accept_with(&[7; MAX_ACCEPT_BYTES]))?;
/// assert_eq!(client.join().unwrap()?.peer_data(), [7; MAX_ACCEPT_BYTES]);
/// # drop(conn);
/// # Ok::<(), fabric_async::Error>(())
/// ```
pub const MAX_ACCEPT_BYTES: usize = MAX_ACCEPT_DATA - LEN;

/// What the connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The application's messages.
    User,
    /// Leases, for the connection with the same token.
    Control,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) kind: Kind,
    /// Whether this end wants a connection for leases.
    pub(crate) leases: bool,
    pub(crate) max_message: u32,
    pub(crate) token: u64,
    pub(crate) data: Vec<u8>,
}

impl Handshake {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kind = u8::from(self.kind == Kind::Control) | u8::from(self.leases) << 1;
        let mut bytes = Vec::with_capacity(LEN + self.data.len());
        bytes.extend(MAGIC);
        bytes.extend([VERSION, kind]);
        bytes.extend(self.max_message.to_le_bytes());
        bytes.extend(self.token.to_le_bytes());
        bytes.extend(&self.data);
        bytes
    }

    /// Reads the peer's.
    ///
    /// # Errors
    /// `Protocol`, in words for the application.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Handshake> {
        let bad = |why: &str| Err(Error::Protocol(why.to_owned()));
        let Some((head, data)) = bytes.split_first_chunk::<LEN>() else {
            return bad("the peer does not use fabric-async (its greeting is missing)");
        };
        let [m0, m1, version, kind, a, b, c, d, token @ ..] = *head;
        if [m0, m1] != MAGIC {
            return bad("the peer does not use fabric-async (its greeting is another)");
        }
        if version != VERSION || kind > 3 {
            return bad("the peer uses another version of fabric-async's protocol");
        }
        Ok(Handshake {
            kind: if kind & 1 == 0 { Kind::User } else { Kind::Control },
            leases: kind & 2 != 0,
            max_message: u32::from_le_bytes([a, b, c, d]),
            token: u64::from_le_bytes(token),
            data: data.to_vec(),
        })
    }
}

/// Rejects a request with a reason, cut to what the peer can receive. An error means that the peer is gone already.
pub(crate) fn reject(request: &mut ConnectRequest, words: &str) {
    let words = words.as_bytes();
    let _ = request.reject(&words[..words.len().min(MAX_REJECT_DATA)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_way_and_refuses_others() {
        let (data, token) = (b"who".to_vec(), 0x0102_0304_0506_0708);
        let handshake =
            Handshake { kind: Kind::Control, leases: true, max_message: 70_000, token, data };
        let bytes = handshake.to_bytes();
        assert_eq!(Handshake::from_bytes(&bytes).unwrap(), handshake);
        for short in 0..LEN {
            assert!(Handshake::from_bytes(&bytes[..short]).is_err());
        }
        for (at, byte) in [(0, b'x'), (2, 2), (3, 4)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert!(Handshake::from_bytes(&other).is_err());
        }
    }
}
