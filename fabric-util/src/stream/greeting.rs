//! How a connection is made over a stream: the initiator's hello, and the acceptor's answer. The rest of the handshake is
//! frames: with the first of the initiator's the acceptor knows that its answer got there.

use std::io::ErrorKind;

use super::link::Link;
use super::requests::READS;
use super::transport::Transport;
use super::wire::handshake::{self, Handshake, HandshakeKind};

/// The initiator's part: what came of the answer so far.
#[derive(Debug, Default)]
pub struct Initiator(Vec<u8>);

/// Why an answer made no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declined {
    /// The backlog is full, or the listener closed.
    Refused,
    /// The application at the other end rejected it, with this private data.
    Rejected(Box<[u8]>),
    /// It is no answer of this protocol's.
    Malformed(String),
}

impl Initiator {
    /// Puts the hello in front of everything that the link transmits.
    pub fn begin(link: &mut Link, data: &[u8]) -> Self {
        greet(link, HandshakeKind::Hello, data);
        Initiator::default()
    }

    /// Takes bytes that came. With the last of a good answer the link opens, and true is returned.
    ///
    /// # Errors
    /// The answer is whole, and not a good one.
    pub fn receive(&mut self, link: &mut Link, bytes: &[u8]) -> Result<bool, Declined> {
        self.0.extend_from_slice(bytes);
        let decoded = Handshake::decode(&self.0).map_err(|malformed| {
            Declined::Malformed(format!("the peer is no fabric listener: {malformed}"))
        })?;
        let Some((answer, data, len)) = decoded else { return Ok(false) };
        match answer.kind {
            HandshakeKind::Accept => {}
            HandshakeKind::Reject => return Err(Declined::Rejected(data.into())),
            HandshakeKind::Refuse => return Err(Declined::Refused),
            HandshakeKind::Hello => {
                return Err(Declined::Malformed(
                    "the peer answered a hello with a hello".to_owned(),
                ));
            }
        }
        link.open(answer.reads, answer.credit);
        // By this the acceptor knows that its answer got here.
        link.push_ack();
        link.announce(data);
        link.consume(0, &self.0[len..]);
        Ok(true)
    }
}

/// The acceptor's part: what came of a hello so far. Connections from strangers are to be bounded in number, and in time
/// until the hello is whole.
#[derive(Debug, Default)]
pub struct Greeting {
    bytes: Vec<u8>,
    hello: Option<Handshake>,
}

impl Greeting {
    /// Reads what there is of the hello; true: it is whole.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn read(&mut self, transport: &mut impl Transport) -> Result<bool, String> {
        let mut buffer = [0; handshake::MAX];
        while self.hello.is_none() {
            // SAFETY: the buffer is ours.
            match unsafe { transport.recv(&[(buffer.as_mut_ptr(), buffer.len())]) } {
                Ok(0) => return Err("it closed before its hello".to_owned()),
                Ok(got) => self.receive(&buffer[..got])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes.extend_from_slice(bytes);
        match Handshake::decode(&self.bytes) {
            Ok(None) => Ok(()),
            Ok(Some((hello, _, len)))
                if hello.kind == HandshakeKind::Hello && len == self.bytes.len() =>
            {
                self.hello = Some(hello);
                Ok(())
            }
            Ok(Some(_)) => Err("its first frame is no hello, or not alone".to_owned()),
            Err(malformed) => Err(malformed.to_string()),
        }
    }

    /// Whether the hello is whole.
    pub fn is_whole(&self) -> bool {
        self.hello.is_some()
    }

    /// The initiator's private data.
    pub fn data(&self) -> &[u8] {
        self.bytes.get(handshake::LEN..).unwrap_or_default()
    }

    /// Opens a link for it, whose transmissions begin with the answer. False: the hello is not whole.
    pub fn accept(&self, link: &mut Link, data: &[u8]) -> bool {
        let Some(hello) = self.hello else { return false };
        greet(link, HandshakeKind::Accept, data);
        link.open(hello.reads, hello.credit);
        true
    }
}

/// Appends a handshake frame to what a link transmits.
fn greet(link: &mut Link, kind: HandshakeKind, data: &[u8]) {
    let frame = Handshake { kind, reads: READS, credit: link.credit() };
    link.say(&frame.encode(data));
}

/// Answers a hello with [`HandshakeKind::Refuse`] or [`HandshakeKind::Reject`]. The transport is to be closed then.
pub fn decline(transport: &mut impl Transport, kind: HandshakeKind, data: &[u8]) {
    let frame = Handshake { kind, reads: 0, credit: 0 }.encode(data);
    // An empty stream takes so few bytes at once; and if the peer is gone there is none to read them.
    // SAFETY: the frame is ours.
    let _ = unsafe { transport.send(&[(frame.as_ptr().cast_mut(), frame.len())]) };
}

// Links have registrations, which probe by madvise(2).
#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Phase;
    use crate::stream::testing::{Taker, link};
    use fabric_core::Event;

    fn begin(data: &[u8]) -> (Link, Initiator, Vec<u8>) {
        let mut link = link();
        let initiator = Initiator::begin(&mut link, data);
        let hello = sent(&mut link);
        (link, initiator, hello)
    }

    fn sent(link: &mut Link) -> Vec<u8> {
        let mut taker = Taker::new(usize::MAX);
        while link.has_output() {
            link.send_to(&mut taker).unwrap();
        }
        taker.bytes
    }

    fn answer(data: &[u8], answer: impl FnOnce(&mut Taker)) -> Declined {
        let (mut link, mut initiator, _) = begin(data);
        let mut taker = Taker::new(usize::MAX);
        answer(&mut taker);
        let declined = initiator.receive(&mut link, &taker.bytes).unwrap_err();
        assert_eq!(link.phase(), Phase::Idle);
        declined
    }

    #[test]
    fn two_ends_come_to_an_open_link_byte_by_byte() {
        let (mut initiating, mut initiator, hello) = begin(b"from here");
        let mut greeting = Greeting::default();
        for (at, byte) in hello.iter().enumerate() {
            assert!(!greeting.is_whole(), "{at}");
            greeting.receive(&[*byte]).unwrap();
        }
        assert_eq!((greeting.is_whole(), greeting.data()), (true, &b"from here"[..]));

        let mut accepting = link();
        assert!(greeting.accept(&mut accepting, b"from there"));
        let answer = sent(&mut accepting);
        for (at, byte) in answer.iter().enumerate() {
            let whole = initiator.receive(&mut initiating, &[*byte]).unwrap();
            assert_eq!(whole, at + 1 == answer.len());
        }
        assert_eq!(initiating.phase(), Phase::Open);
        let event = &initiating.take_events()[0];
        assert!(matches!(event, Event::Connected { data, .. } if &data[..] == b"from there"));

        assert!(!accepting.is_announced());
        accepting.consume(0, &sent(&mut initiating));
        assert!(accepting.is_announced(), "by the first frame");
    }

    #[test]
    fn other_answers_make_no_connection() {
        let no = |kind, data: &'static [u8]| answer(b"", |to| decline(to, kind, data));
        assert_eq!(no(HandshakeKind::Refuse, b""), Declined::Refused);
        assert_eq!(no(HandshakeKind::Reject, b"no"), Declined::Rejected(b"no"[..].into()));
        let (_, _, hello) = begin(b"");
        let malformed = |bytes: &[u8]| match answer(b"", |to| to.bytes = bytes.to_vec()) {
            Declined::Malformed(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(malformed(&hello).contains("a hello with a hello"));
        assert!(malformed(b"HTTP/1.1").contains("no fabric listener"));
    }

    #[test]
    fn what_is_no_hello_says_why() {
        let why = |bytes: &[u8]| Greeting::default().receive(bytes).unwrap_err();
        let (_, _, mut hello) = begin(b"");
        hello.push(0);
        assert!(why(&hello).contains("not alone"));
        hello[4] += 1;
        assert!(why(&hello).contains("version"));
        let mut greeting = Greeting::default();
        assert_eq!(greeting.read(&mut Taker::new(0)), Ok(false), "nothing has come");
        assert!(!greeting.accept(&mut link(), b""));
    }
}
