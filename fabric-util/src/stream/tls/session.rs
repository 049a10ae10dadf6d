//! TLS between two buffers: what came, and what is to be sent. It does no I/O.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, IpAddr, Ipv4Addr, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ClientConfig, Error, ServerConfig};

use super::headers::Headers;
use super::scatter::Scatter;

/// What a buffer keeps when little goes through it.
const KEEP: usize = 16 << 10;
/// The bytes of a record beside its payload, at most, and of a change of keys before it.
const OVERHEAD: usize = 64;
/// The payload of a record, at most (RFC 8446, 5.1).
pub(super) const RECORD: usize = 16 << 10;

/// Bytes that come at the end and go at the front. Its memory is zeroed only once.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Room for this many bytes behind those that are here.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < len {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() < self.end + len {
                self.bytes.resize(self.end + len, 0);
            }
        }
        &mut self.bytes[self.end..][..len]
    }

    /// So many bytes are in the room.
    pub(super) fn fill(&mut self, len: usize) {
        self.end = (self.end + len).min(self.bytes.len());
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    /// So many bytes at the front are done with.
    pub(super) fn spend(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives memory back if it has much, and nothing in it.
    pub(super) fn trim(&mut self) {
        if self.is_empty() && self.bytes.len() > KEEP {
            *self = Buffer::default();
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was done, and more may be.
    Again,
    /// Plaintext came.
    Data,
    /// The handshake is over; more has to come.
    Ready,
    /// What was to be sent is encrypted.
    Wrote,
    /// In the midst of the handshake; more has to come.
    Blocked,
    /// The peer sends no more.
    Ended,
}

enum Side {
    Initiator(UnbufferedClientConnection),
    Acceptor(UnbufferedServerConnection),
}

/// One end of a TLS connection.
pub(super) struct Session {
    side: Side,
    /// Why it goes no further.
    failed: Option<Error>,
    headers: Headers,
    /// What came, and is not decrypted.
    pub(super) input: Buffer,
    /// What is to be sent.
    pub(super) output: Buffer,
    /// What is decrypted and had no place where it was to go.
    plain: Buffer,
}

impl Session {
    pub(super) fn initiator(config: &Arc<ClientConfig>) -> Result<Self, Error> {
        // The acceptor proves a key or a certificate, whatever its name is.
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4])));
        Ok(Self::new(Side::Initiator(UnbufferedClientConnection::new(config.clone(), name)?)))
    }

    pub(super) fn acceptor(config: &Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self::new(Side::Acceptor(UnbufferedServerConnection::new(config.clone())?)))
    }

    fn new(side: Side) -> Self {
        let (input, output, plain) = (Buffer::default(), Buffer::default(), Buffer::default());
        Session { side, failed: None, headers: Headers::default(), input, output, plain }
    }

    /// Little is said: gives memory back that much has taken. An acknowledgement follows whatever is sent, so a connection
    /// that comes to rest keeps little.
    pub(super) fn trim(&mut self) {
        self.input.trim();
        self.output.trim();
    }

    /// The certificate that the peer has proved to have the key of, or that key, once the handshake is over.
    pub(super) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        let certificates = match &self.side {
            Side::Initiator(tls) => tls.peer_certificates(),
            Side::Acceptor(tls) => tls.peer_certificates(),
        };
        certificates?.first()
    }

    /// The bytes that its buffers take.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        [&self.input, &self.output, &self.plain].iter().map(|buffer| buffer.bytes.len()).sum()
    }

    /// Moves decrypted bytes to where they go.
    pub(super) fn take_plain(&mut self, scatter: &mut Scatter<'_>) {
        if !self.plain.is_empty() {
            let taken = scatter.put(self.plain.filled());
            self.plain.spend(taken);
        }
    }

    /// Goes on with what came: at most one record.
    ///
    /// # Errors
    /// It is not what the peer sent, or the peer is not the one that it should be. What is to be said about that is in the
    /// output.
    pub(super) fn step(&mut self, scatter: &mut Scatter<'_>) -> Result<Step, Error> {
        self.advance(scatter, &[])
    }

    /// Encrypts.
    ///
    /// # Errors
    /// As `step`.
    pub(super) fn encrypt(&mut self, data: &[u8]) -> Result<(), Error> {
        let mut nowhere = Scatter::default();
        loop {
            match self.advance(&mut nowhere, data)? {
                Step::Wrote => return Ok(()),
                Step::Again | Step::Data => {}
                Step::Ready | Step::Blocked | Step::Ended => {
                    return Err(Error::HandshakeNotComplete);
                }
            }
        }
    }

    fn advance(&mut self, scatter: &mut Scatter<'_>, data: &[u8]) -> Result<Step, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let step = self.once(scatter, data);
        if let Err(error) = &step {
            self.failed = Some(error.clone());
            // An alert is the first thing that TLS has to say now; nothing else may be asked of it.
            let _ = self.once(&mut Scatter::default(), &[]);
        }
        step
    }

    fn once(&mut self, scatter: &mut Scatter<'_>, data: &[u8]) -> Result<Step, Error> {
        self.headers.check(self.input.filled())?;
        let Session { side, input, output, plain, .. } = self;
        let mut ends = Ends { output, plain, scatter, data };
        let (done, step) = match side {
            Side::Initiator(tls) => ends.follow(tls.process_tls_records(input.filled_mut())),
            Side::Acceptor(tls) => ends.follow(tls.process_tls_records(input.filled_mut())),
        };
        input.spend(done);
        self.headers.spend(done);
        step
    }
}

/// What TLS takes from and gives to.
struct Ends<'a, 'b> {
    output: &'a mut Buffer,
    plain: &'a mut Buffer,
    scatter: &'a mut Scatter<'b>,
    data: &'a [u8],
}

impl Ends<'_, '_> {
    /// Does what TLS asks for; gives how many bytes of the input are done with.
    fn follow<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<Step, Error>) {
        let UnbufferedStatus { discard: mut done, state } = status;
        let step = match state {
            Err(error) => Err(error),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                match traffic.next_record() {
                    None => break Ok(Step::Data),
                    Some(Err(error)) => break Err(error),
                    Some(Ok(record)) => {
                        done += record.discard;
                        let taken = self.scatter.put(record.payload);
                        self.plain.append(&record.payload[taken..]);
                    }
                }
            },
            Ok(ConnectionState::EncodeTlsData(mut handshake)) => self
                .write(OVERHEAD, |room| {
                    handshake.encode(room).map_err(|error| match error {
                        EncodeError::InsufficientSize(size) => Ok(size),
                        EncodeError::AlreadyEncoded => Err(Error::General(error.to_string())),
                    })
                })
                .map(|()| Step::Again),
            Ok(ConnectionState::TransmitTlsData(sent)) => {
                // It is in the output, which goes in order.
                sent.done();
                Ok(Step::Again)
            }
            Ok(ConnectionState::WriteTraffic(_)) if self.data.is_empty() => Ok(Step::Ready),
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                let data = self.data;
                let len = data.len() + (data.len() / RECORD + 2) * OVERHEAD;
                self.write(len, |room| {
                    traffic.encrypt(data, room).map_err(|error| match error {
                        EncryptError::InsufficientSize(size) => Ok(size),
                        EncryptError::EncryptExhausted => Err(Error::EncryptError),
                    })
                })
                .map(|()| Step::Wrote)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Ended),
            // Data ahead of the handshake, which no end of ours takes.
            Ok(other) => Err(Error::General(format!("{other:?}"))),
        };
        (done, step)
    }

    /// Writes to the output, in room for `len` bytes, or for as many as it turns out to take.
    fn write(
        &mut self,
        len: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, Result<InsufficientSizeError, Error>>,
    ) -> Result<(), Error> {
        let mut len = len;
        loop {
            match write(self.output.room(len)) {
                Ok(written) => {
                    self.output.fill(written);
                    return Ok(());
                }
                Err(Ok(InsufficientSizeError { required_size })) if required_size > len => {
                    len = required_size;
                }
                Err(Ok(InsufficientSizeError { .. })) => return Err(Error::EncryptError),
                Err(Err(error)) => return Err(error),
            }
        }
    }
}
