//! The headers of the records that come (RFC 8446, 5.1). TLS protects what is in a record, but not what its header says beside
//! the length, which it ignores; here a header with a changed bit ends the connection like any other.

use rustls::{Error, InvalidMessage};

const HEADER: usize = 5;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const ENCRYPTED: u8 = 23;

/// What has come so far.
#[derive(Default)]
pub(super) struct Headers {
    /// Bytes from the start of the input whose headers were checked.
    checked: usize,
    /// Records.
    count: u64,
    has_encrypted: bool,
}

impl Headers {
    /// Checks those that have come since the last call.
    pub(super) fn check(&mut self, input: &[u8]) -> Result<(), Error> {
        while let Some(header) = input.get(self.checked..).and_then(<[u8]>::first_chunk::<HEADER>) {
            let [kind, version @ .., high, low] = *header;
            let len = u16::from_be_bytes([high, low]);
            let is_right = match (kind, len) {
                // The first message of each end; the initiator's has the version of TLS 1.0.
                (HANDSHAKE, _) => self.count == 0 && matches!(version, [3, 1 | 3]),
                // One that means nothing, for the sake of boxes on the way.
                (CHANGE_CIPHER_SPEC, 1) => self.count == 1 && version == [3, 3],
                (ALERT, 2) => !self.has_encrypted && version == [3, 3],
                (ENCRYPTED, _) => self.count > 0 && version == [3, 3],
                _ => false,
            };
            if !is_right {
                return Err(Error::InvalidMessage(InvalidMessage::InvalidContentType));
            }
            self.count += 1;
            self.has_encrypted |= kind == ENCRYPTED;
            self.checked += HEADER + usize::from(len);
        }
        Ok(())
    }

    /// So many bytes of the input are done with.
    pub(super) fn spend(&mut self, len: usize) {
        self.checked = self.checked.saturating_sub(len);
    }
}
