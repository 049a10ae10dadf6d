//! A transport whose bytes are TLS records of another.

use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::sync::Arc;

use fabric_core::{Result, memory};

use super::certificates;
use super::first::First;
use super::keys::{TlsKeys, internal};
use super::scatter::Scatter;
use super::session::{RECORD, Session, Step};
use crate::refusal::{CHANGED, Declined, NOT_PROVEN, Unwelcome};
use crate::stream::greeting::{read_rest, refuse};
use crate::stream::wire::handshake::{Handshake, HandshakeKind};
use crate::stream::{IoVec, Silence, Transport};

/// Bytes that are encrypted at a time: what lies between takes less of the whole the more there are.
const SENT: usize = 256 << 10;
/// Bytes that are received at a time.
const RECEIVED: usize = 64 << 10;
/// Bytes that are received at a time as long as little comes.
const LITTLE: usize = 4 << 10;
/// Once so many bytes were received others have their turn, however little was in them.
const RECEIVED_A_CALL: usize = 512 << 10;
/// The first byte of a record: its type (RFC 8446, 5.1). A handshake frame begins with another.
const RECORDS: RangeInclusive<u8> = 20..=23;
/// Bytes that came and are of no use yet: less than a record, or than a handshake message of 64 KiB in records of any sense.
const MAX_HELD: usize = 128 << 10;

/// How far this end is.
enum HandshakeStage {
    /// An initiator whose transport connects.
    Connecting,
    /// An initiator: nothing has come yet, perhaps a refusal by an end that does not encrypt.
    Answer,
    /// An acceptor: the initiator has to say by what it proves itself, as this end does.
    First(First),
    Handshake,
    Ready,
}

/// TLS over a transport.
pub struct TlsTransport<T> {
    inner: T,
    pub(super) session: Session,
    stage: HandshakeStage,
    is_initiator: bool,
    /// Whether the ends prove themselves by certificates.
    has_identity: bool,
    /// Whether anything came that was encrypted after the handshake.
    has_heard: bool,
    /// Whether much came the last time.
    is_bulk: bool,
    /// The last call did less than it could, though no event follows.
    gave_up: bool,
    /// Plaintext on its way into a record.
    staging: Vec<u8>,
}

impl<T: Transport> TlsTransport<T> {
    /// The initiator's end, over a transport that is connected or becomes so.
    ///
    /// # Errors
    /// `Internal`: there are no random numbers, or TLS failed.
    pub fn initiator(inner: T, keys: &TlsKeys) -> Result<Self> {
        let session = Session::initiator(&keys.initiator).map_err(|e| internal("connect", e))?;
        let mut transport = Self::new(inner, session, HandshakeStage::Connecting, keys);
        transport.is_initiator = true;
        let session = &mut transport.session;
        session.output.append(&keys.first.frame()?);
        let mut step = || session.step(&mut Scatter::default()).map_err(|e| internal("connect", e));
        while step()? == Step::Again {}
        Ok(transport)
    }

    /// The acceptor's end, over a transport that came in.
    ///
    /// # Errors
    /// `Internal`: TLS failed.
    pub fn acceptor(inner: T, keys: &TlsKeys) -> Result<Self> {
        let session = Session::acceptor(&keys.acceptor).map_err(|e| internal("accept", e))?;
        Ok(Self::new(inner, session, HandshakeStage::First(keys.first.clone()), keys))
    }

    fn new(inner: T, session: Session, stage: HandshakeStage, keys: &TlsKeys) -> Self {
        let staging = Vec::new();
        TlsTransport {
            inner,
            session,
            stage,
            is_initiator: false,
            has_identity: keys.first.has_identity,
            has_heard: false,
            is_bulk: false,
            gave_up: false,
            staging,
        }
    }

    /// What it is over.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// What it is over.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.stage, HandshakeStage::Ready)
    }

    /// Goes on with the handshake; true: it is over.
    fn handshake(&mut self) -> io::Result<bool> {
        if self.is_ready() {
            // Whether the peer still reads does not matter for what it said.
            return Ok(true);
        }
        while !self.is_ready() {
            let step = match &self.stage {
                HandshakeStage::Connecting => Step::Blocked,
                HandshakeStage::Answer => self.hear_refusal()?,
                HandshakeStage::First(_) => self.hear_first()?,
                HandshakeStage::Handshake | HandshakeStage::Ready => self
                    .session
                    .step(&mut Scatter::default())
                    .map_err(|error| self.broken(&error))?,
            };
            match step {
                Step::Again | Step::Wrote => {}
                Step::Ready => self.stage = HandshakeStage::Ready,
                Step::Data => (self.stage, self.has_heard) = (HandshakeStage::Ready, true),
                Step::Ended => return Err(ErrorKind::UnexpectedEof.into()),
                Step::Blocked => {
                    self.try_flush()?;
                    match self.read(LITTLE) {
                        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        self.try_flush()?;
        Ok(true)
    }

    /// What an end that does not encrypt answers is no record.
    fn hear_refusal(&mut self) -> io::Result<Step> {
        let came = self.session.input.filled();
        match came.first() {
            None => return Ok(Step::Blocked),
            Some(first) if RECORDS.contains(first) => {
                self.stage = HandshakeStage::Handshake;
                return Ok(Step::Again);
            }
            Some(_) => {}
        }
        let declined = match Handshake::decode(came) {
            Ok(None) => return Ok(Step::Blocked),
            Ok(Some(answer)) if answer.frame.kind == HandshakeKind::Refuse => {
                Declined::because(answer.frame.reason)
            }
            Ok(Some(_)) => Declined::Malformed("the peer answers what it was not asked".to_owned()),
            Err(malformed) => {
                Declined::Malformed(format!("the peer is no fabric listener: {malformed}"))
            }
        };
        Err(io::Error::other(declined))
    }

    /// What the initiator says first.
    fn hear_first(&mut self) -> io::Result<Step> {
        let HandshakeStage::First(ours) = &self.stage else { return Ok(Step::Again) };
        let came = self.session.input.filled();
        let first = match Handshake::decode(came) {
            Ok(None) => return Ok(Step::Blocked),
            Ok(Some(first)) => first,
            Err(malformed) => {
                let why = Unwelcome::because(format!("sent no valid handshake: {malformed}"));
                return Err(io::Error::other(why));
            }
        };
        if let Err((reason, unwelcome)) = ours.check(came, &first) {
            refuse(&mut self.inner, reason);
            return Err(io::Error::other(unwelcome));
        }
        let len = first.len;
        self.session.input.spend(len);
        self.stage = HandshakeStage::Handshake;
        Ok(Step::Again)
    }

    /// TLS found that what came is not by the peer that it should be: the other end hears of it if it can be.
    fn broken(&mut self, error: &rustls::Error) -> io::Error {
        let _ = self.try_flush();
        if self.has_heard {
            let text = format!("what came is not what the peer sent: {error}");
            return io::Error::new(ErrorKind::InvalidData, text);
        }
        let flaw = self.has_identity.then(|| certificates::flaw(error));
        if self.is_initiator {
            let text = flaw.map_or(NOT_PROVEN.into(), |flaw| format!("the listener {flaw}").into());
            io::Error::new(ErrorKind::InvalidData, Declined::Unauthenticated(text))
        } else {
            // The application does not hear of it: what it said behind its certificate is of no use.
            read_rest(&mut self.inner);
            let why = flaw.unwrap_or_else(|| CHANGED.to_owned());
            io::Error::new(ErrorKind::InvalidData, Unwelcome::unauthenticated(why))
        }
    }

    /// Receives records, `len` bytes of them at most; 0 is the end.
    fn read(&mut self, len: usize) -> io::Result<usize> {
        // Records of a handshake message stay here until it is whole. Of one that is as long as any may be, in records that are not
        // made to be many, these are fewer.
        if self.session.input.filled().len() > MAX_HELD {
            return Err(io::Error::new(ErrorKind::InvalidData, "a handshake in too many records"));
        }
        let room = self.session.input.room(len);
        // SAFETY: the buffer is ours.
        let got = unsafe { self.inner.recv(&[(room.as_mut_ptr(), room.len())]) };
        self.gave_up |= self.inner.gave_up();
        let got = got?;
        self.session.input.fill(got);
        Ok(got)
    }

    /// Makes a record of what is staged.
    fn encrypt(&mut self) -> io::Result<()> {
        let staged = &self.staging;
        if !staged.is_empty()
            && let Err(error) = self.session.encrypt(staged)
        {
            // The next `recv` meets it, too.
            self.gave_up = true;
            return Err(io::Error::other(error));
        }
        self.staging.clear();
        Ok(())
    }

    /// Passes on what it can of what is held.
    fn try_flush(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            flushed => flushed,
        }
    }

    /// Puts plaintext where it goes, until there is no more, or no room.
    fn decrypt(&mut self, scatter: &mut Scatter<'_>) -> io::Result<()> {
        if !self.handshake()? {
            return Ok(());
        }
        self.session.take_plain(scatter);
        let (mut is_dry, mut received) = (false, 0);
        while !scatter.is_full() {
            match self.session.step(scatter) {
                Ok(Step::Data) => self.has_heard = true,
                Ok(Step::Again | Step::Wrote) => {}
                Ok(Step::Ready | Step::Blocked) => {
                    // An answer of TLS's own, perhaps; if the peer is gone, what it said before is there to be read.
                    let _ = self.try_flush();
                    if is_dry {
                        return Ok(());
                    }
                    if received >= RECEIVED_A_CALL {
                        self.gave_up = true;
                        return Ok(());
                    }
                    let len = if self.is_bulk { RECEIVED } else { LITTLE };
                    let got = self.read(len)?;
                    if got == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    received += got;
                    self.is_bulk = got >= LITTLE;
                    is_dry = got < len && !self.inner.gave_up();
                }
                Ok(Step::Ended) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(())
    }
}

impl<T: Transport> Transport for TlsTransport<T> {
    #[inline(never)] // not to be in the way where nothing is encrypted
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        self.gave_up = false;
        if !self.is_ready() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.flush()?;
        let mut taken = 0;
        self.staging.clear();
        for &(addr, len) in from {
            let mut done = 0;
            while done < len && taken < SENT {
                let part = (len - done).min(RECORD - self.staging.len()).min(SENT - taken);
                // SAFETY: the caller's promise.
                unsafe { memory::append(addr.wrapping_add(done), part, &mut self.staging) };
                (done, taken) = (done + part, taken + part);
                if self.staging.len() == RECORD {
                    self.encrypt()?;
                }
            }
        }
        self.encrypt()?;
        self.try_flush()?;
        if taken < LITTLE {
            self.session.trim();
        }
        Ok(taken)
    }

    #[inline(never)]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        self.gave_up = false;
        // SAFETY: the caller's promise.
        let mut scatter = unsafe { Scatter::new(to) };
        let outcome = self.decrypt(&mut scatter);
        if !self.is_bulk {
            self.session.trim();
        }
        match (scatter.filled(), outcome) {
            (0, Ok(())) => Err(ErrorKind::WouldBlock.into()),
            (0, Err(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            (0, Err(error)) => Err(error),
            (got, outcome) => {
                // The next call meets the error again.
                self.gave_up |= outcome.is_err_and(|e| e.kind() != ErrorKind::WouldBlock);
                Ok(got)
            }
        }
    }

    #[inline]
    fn is_holding(&self) -> bool {
        !self.session.output.is_empty() && !matches!(self.stage, HandshakeStage::Connecting)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.is_holding() {
            let held = self.session.output.filled();
            // SAFETY: the buffer is ours.
            let sent = unsafe { self.inner.send(&[(held.as_ptr().cast_mut(), held.len())]) };
            self.gave_up |= self.inner.gave_up();
            self.session.output.spend(sent?);
        }
        Ok(())
    }

    fn shutdown_write(&mut self) {
        self.inner.shutdown_write();
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        self.gave_up = false;
        if let HandshakeStage::Connecting = self.stage {
            if !self.inner.finish_connect()? {
                self.gave_up = self.inner.gave_up();
                return Ok(false);
            }
            self.stage = HandshakeStage::Answer;
        }
        self.handshake()
    }

    fn unsent(&self) -> usize {
        let held = if self.is_holding() { self.session.output.filled().len() } else { 0 };
        held + self.inner.unsent()
    }

    fn peer_identity(&self) -> Option<Arc<str>> {
        let certificate = self.session.peer_certificate().filter(|_| self.has_identity);
        certificate.and_then(certificates::name)
    }

    fn silence(&self) -> Option<Silence> {
        self.inner.silence()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    #[inline]
    fn gave_up(&self) -> bool {
        self.gave_up
    }
}
