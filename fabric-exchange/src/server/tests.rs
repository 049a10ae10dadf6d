//! Clients that mean harm, or are broken: each ends its own connection and no more.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fabric_core::Secret;
use fabric_util::proof::SEAL;
use fabric_util::splitmix::SplitMix64;
use serde_bytes::ByteBuf;

use super::*;
use crate::channel::{self, Frames, HELLO, LENGTH, PROOF};
use crate::exchange::Exchange;
use crate::job::{Job, Membership};
use crate::random::random;
use crate::rendezvous::{JoinOptions, Rendezvous};
use crate::wire::{self, Answer, Ask, MAX_ANSWER, MAX_WAITS, Request, Say};

const PATIENCE: Duration = Duration::from_secs(60);
/// Where strangers are to be ended by it; enough for clients that are none.
const JOIN_TIME: Duration = Duration::from_secs(3);

pub(crate) fn server(change: impl FnOnce(&mut ServerOptions)) -> RunningServer {
    let mut options = ServerOptions::default();
    change(&mut options);
    Server::bind("127.0.0.1:0", options).unwrap().spawn().unwrap()
}

pub(crate) fn secret(of: u8) -> Option<Secret> {
    Some(Secret::new(&[of; 32]).unwrap())
}

pub(crate) fn member(name: &str, size: u32, rank: u32) -> Membership {
    Membership::new(Job::new(name, 0, size).unwrap(), rank).unwrap()
}

pub(crate) fn join(
    at: SocketAddr,
    membership: &Membership,
    secret: Option<Secret>,
) -> Result<Exchange> {
    let options = JoinOptions { secret, timeout: PATIENCE, ..JoinOptions::default() };
    Exchange::join(&Rendezvous::Tcp(at.to_string()), membership, &options)
}

/// Two ranks still do all that ranks do.
fn works(at: SocketAddr, name: &str, secret: Option<Secret>) {
    let ranks = [0, 1].map(|rank| join(at, &member(name, 2, rank), secret.clone()).unwrap());
    thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(|| {
                rank.barrier("all", PATIENCE).unwrap();
                assert_eq!(rank.all_gather(b"x", PATIENCE).unwrap(), [b"x", b"x"]);
            });
        }
    });
}

/// Reads until the server ends the connection.
fn ends(mut stream: &TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return said,
            Ok(len) => said.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return said,
            Err(error) => panic!("the server does not end it: {error}"),
        }
    }
}

/// A client without a secret that says what it likes.
struct Raw {
    stream: TcpStream,
    frames: Frames,
}

impl Raw {
    fn connect(to: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&channel::hello(false).unwrap()).unwrap();
        stream.read_exact(&mut [0; HELLO]).unwrap();
        Raw { stream, frames: Frames::open() }
    }

    fn joined(to: SocketAddr, membership: &Membership) -> Self {
        let mut raw = Self::unaware(to, membership, (random().unwrap(), 0));
        raw.say(0, Ask::Here);
        raw
    }

    /// Has joined, and the server does not know that this end knows it.
    fn unaware(to: SocketAddr, membership: &Membership, call: ([u8; SEAL], u32)) -> Self {
        let mut raw = Self::connect(to);
        raw.join(membership, call).unwrap();
        raw
    }

    /// The token of a call, and which attempt of it this is.
    fn join(&mut self, membership: &Membership, (token, attempt): ([u8; SEAL], u32)) -> Result<()> {
        self.say(0, Ask::Join { membership: membership.clone(), token, attempt });
        match self.hear().say {
            Say::Joined(_) => Ok(()),
            Say::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    fn say(&mut self, number: u32, ask: Ask) {
        let message = wire::encode(&Request { number, ask }).unwrap();
        self.stream.write_all(&self.frames.outgoing.wrap(&message)).unwrap();
    }

    fn hear(&mut self) -> Answer {
        let mut length = [0; LENGTH];
        self.stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; self.frames.incoming.body_len(length, MAX_ANSWER).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        wire::decode(self.frames.incoming.unwrap(length, &body).unwrap()).unwrap()
    }
}

/// A client whose answer was lost tries again, and finds its rank free, whether the server has seen its connection end or not.
#[test]
fn a_join_whose_answer_was_lost_is_repeated() {
    let server = server(|_| {});
    let (at, membership) = (server.local_addr(), member("job", 2, 1));
    let other = join(at, &member("job", 2, 0), None).unwrap();
    let mut hangs = Raw::unaware(at, &membership, ([7; SEAL], 0));
    let stranger = Raw::connect(at).join(&membership, ([8; SEAL], 1));
    assert!(matches!(stranger, Err(ExchangeError::AlreadyJoined { rank: 1 })), "{stranger:?}");
    let again = Raw::unaware(at, &membership, ([7; SEAL], 1));
    assert_eq!(hangs.stream.read(&mut [0]).unwrap(), 0, "the first one is ended");
    drop(again);
    // Whether the server has seen that is a matter of time.
    let mut joined = Err(ExchangeError::Disconnected("it was not tried".to_owned()));
    let patience = Instant::now() + PATIENCE;
    while joined.is_err() && Instant::now() < patience {
        joined = join(at, &membership, None);
    }
    let joined = joined.unwrap();
    joined.put("from", b"here").unwrap();
    assert_eq!(other.get("from", PATIENCE).unwrap(), b"here");
}

/// What an attempt said that was given up may be heard behind the next one.
#[test]
fn an_attempt_that_is_heard_late_ends_no_later_one() {
    let server = server(|_| {});
    let (at, membership) = (server.local_addr(), member("job", 1, 0));
    let given_up = Raw::connect(at);
    let mut next = Raw::unaware(at, &membership, ([7; SEAL], 1));
    // Its connection is accepted before the next one's, or after it.
    for mut late in [given_up, Raw::connect(at)] {
        let refused = late.join(&membership, ([7; SEAL], 0));
        assert!(matches!(refused, Err(ExchangeError::AlreadyJoined { rank: 0 })), "{refused:?}");
    }
    next.say(1, Ask::Put { key: "k".into(), blob: ByteBuf::new() });
    assert_eq!(next.hear().say, Say::Kept(true));
}

/// One that has said that it knows is lost, as one that asked for something is.
#[test]
fn a_rank_that_knows_that_it_joined_is_lost_with_its_connection() {
    let server = server(|_| {});
    let at = server.local_addr();
    let other = join(at, &member("job", 2, 0), None).unwrap();
    drop(Raw::joined(at, &member("job", 2, 1)));
    let lost = other.get("key", PATIENCE);
    assert!(matches!(lost, Err(ExchangeError::RankLost { rank: 1 })), "{lost:?}");
    let again = Raw::connect(at).join(&member("job", 2, 1), ([1; SEAL], 0));
    assert!(matches!(again, Err(ExchangeError::AlreadyJoined { rank: 1 })), "{again:?}");
}

#[test]
fn any_bytes_end_their_own_connection() {
    for secret in [None, secret(1)] {
        let server = server(|options| {
            options.secret = secret.clone();
            options.join_time = JOIN_TIME;
        });
        let mut random = SplitMix64::new(7);
        let bystanders = [0, 1].map(|rank| {
            join(server.local_addr(), &member("bystanders", 2, rank), secret.clone()).unwrap()
        });
        let strangers: Vec<_> = (0..100)
            .map(|_| {
                let mut stream = TcpStream::connect(server.local_addr()).unwrap();
                let mut bytes = vec![0; random.below(300)];
                bytes.fill_with(|| random.next_u64() as u8);
                if random.once_in(2) && bytes.len() >= HELLO {
                    // Those get further.
                    bytes[..HELLO].copy_from_slice(&channel::hello(secret.is_some()).unwrap());
                }
                // The server may have ended it in the middle.
                let _ = stream.write_all(&bytes);
                if random.once_in(2) {
                    let _ = stream.shutdown(Shutdown::Write);
                }
                stream
            })
            .collect();
        strangers.iter().for_each(|stranger| drop(ends(stranger)));
        bystanders[0].put("still", b"here").unwrap();
        assert_eq!(bystanders[1].get("still", PATIENCE).unwrap(), b"here");
        works(server.local_addr(), "job", secret);
    }
}

#[test]
fn half_a_message_is_waited_for_no_longer_than_the_time_to_join() {
    let server = server(|options| options.join_time = JOIN_TIME);
    let (hello, begun) = (channel::hello(false).unwrap(), Instant::now());
    let longer = [&hello[..], &[9, 0, 0, 0, 1]].concat();
    let said = [&hello[..0], &hello[..HELLO - 1], &hello, &longer].map(|said| {
        let mut stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.write_all(said).unwrap();
        stream
    });
    for stream in &said {
        ends(stream);
        assert!(begun.elapsed() >= JOIN_TIME, "ended early");
    }
    works(server.local_addr(), "job", None);
}

#[test]
fn a_time_to_join_without_end_is_one() {
    let server = server(|options| options.join_time = Duration::MAX);
    works(server.local_addr(), "job", None);
}

#[test]
fn a_length_that_is_too_long_is_not_waited_for() {
    let server = server(|_| {});
    for length in [u32::MAX, 5000] {
        let mut raw = Raw::joined(server.local_addr(), &member(&length.to_string(), 1, 0));
        raw.stream.write_all(&length.to_le_bytes()).unwrap();
        assert_eq!(ends(&raw.stream), b"");
    }
}

#[test]
fn what_is_no_request_ends_the_connection_and_the_rank_is_lost() {
    let server = server(|_| {});
    let other = join(server.local_addr(), &member("job", 2, 0), None).unwrap();
    let mut raw = Raw::joined(server.local_addr(), &member("job", 2, 1));
    let frame = raw.frames.outgoing.wrap(&[0xff; 20]);
    raw.stream.write_all(&frame).unwrap();
    ends(&raw.stream);
    let lost = ExchangeError::RankLost { rank: 1 };
    assert_eq!(other.barrier("x", PATIENCE), Err(lost));
    let mut raw = Raw::connect(server.local_addr());
    raw.say(0, Ask::Get { key: "u".into(), wait_ms: 1 });
    assert_eq!(ends(&raw.stream), b"", "it has not joined");
}

#[test]
fn only_a_client_with_the_secret_joins() {
    let (open, closed) = (server(|_| {}), server(|options| options.secret = secret(1)));
    let refused = |at: &RunningServer, with: Option<Secret>, why: &str| {
        let error = join(at.local_addr(), &member("job", 2, 0), with).unwrap_err();
        assert!(matches!(error, ExchangeError::Unauthenticated(_)), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&closed, secret(2), "another secret");
    refused(&closed, None, "FABRIC_SECRET_FILE");
    refused(&open, secret(1), "has no secret");
    works(closed.local_addr(), "job", secret(1));
    works(open.local_addr(), "job", None);
}

#[test]
fn a_member_asks_nothing_that_a_client_would_not() {
    let server = server(|_| {});
    let mut raw = Raw::joined(server.local_addr(), &member("job", 2, 0));
    raw.say(1, Ask::Join { membership: member("job", 2, 1), token: [2; SEAL], attempt: 0 });
    raw.say(2, Ask::Put { key: String::new(), blob: ByteBuf::new() });
    raw.say(3, Ask::Put { key: "k".repeat(300), blob: ByteBuf::new() });
    raw.say(4, Ask::Put { key: "u".into(), blob: ByteBuf::from(vec![0; 4097]) });
    raw.say(5, Ask::Gather { round: 0, first: u32::MAX, wait_ms: 0 });
    raw.say(6, Ask::Barrier { name: String::new(), round: 0, wait_ms: 0 });
    raw.say(7, Ask::Forget { round: 9 });
    let say = [1, 2, 3, 4, 5, 6, 7].map(|number| {
        let answer = raw.hear();
        // What waits is answered later than what does not.
        (if answer.number == number { 0 } else { answer.number }, answer.say)
    });
    let failed = say.iter().filter(|(_, say)| matches!(say, Say::Failed(_))).count();
    assert_eq!(failed, 5, "{say:?}");
    assert!(say.iter().any(|(_, say)| *say == Say::Late), "{say:?}");
    for (name, size, rank) in [("large", 1 << 17, 0), ("job", 3, 1), ("job", 2, 0)] {
        let error = join(server.local_addr(), &member(name, size, rank), None).unwrap_err();
        let is_right = match name {
            "large" => matches!(error, ExchangeError::Full { max: 65536, .. }),
            _ if size == 3 => matches!(error, ExchangeError::SizeDiffers { .. }),
            _ => matches!(error, ExchangeError::AlreadyJoined { .. }),
        };
        assert!(is_right, "{error:?}");
    }
}

#[test]
fn a_rank_that_waits_for_too_much_is_lost() {
    let server = server(|_| {});
    let other = join(server.local_addr(), &member("job", 2, 0), None).unwrap();
    let mut raw = Raw::joined(server.local_addr(), &member("job", 2, 1));
    for number in 0..=MAX_WAITS as u32 {
        raw.say(number, Ask::Get { key: "uabsent".into(), wait_ms: u64::MAX });
    }
    ends(&raw.stream);
    assert_eq!(other.barrier("x", PATIENCE), Err(ExchangeError::RankLost { rank: 1 }));
}

/// It would fill the server's memory, if that kept all it asks for.
#[test]
fn a_client_that_does_not_read_is_not_served() {
    let server = server(|_| {});
    let mut raw = Raw::joined(server.local_addr(), &member("job", 1, 0));
    raw.say(1, Ask::Put { key: "u".into(), blob: ByteBuf::from(vec![0; 4096]) });
    raw.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let message =
        wire::encode(&Request { number: 2, ask: Ask::Get { key: "u".into(), wait_ms: 0 } })
            .unwrap();
    let frame = raw.frames.outgoing.wrap(&message).repeat(1000);
    let asked = (0..2000).find(|_| raw.stream.write_all(&frame).is_err());
    assert!(asked.is_some(), "the server read 2 million requests without an answer being read");
    works(server.local_addr(), "other", None);
}

#[test]
fn a_crowd_of_strangers_keeps_no_member_out() {
    let server = server(|options| {
        options.max_strangers = 8;
        options.join_time = PATIENCE;
    });
    let crowd: Vec<_> =
        (0..100).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
    works(server.local_addr(), "job", None);
    for early in &crowd[..80] {
        ends(early);
    }
}

#[test]
fn members_and_jobs_are_bounded() {
    let server = server(|options| (options.max_members, options.max_jobs) = (3, 2));
    let at = server.local_addr();
    let first = [0, 1].map(|rank| join(at, &member("first", 2, rank), None).unwrap());
    let second = join(at, &member("second", 2, 0), None).unwrap();
    let full = join(at, &member("second", 2, 1), None).unwrap_err();
    assert!(matches!(full, ExchangeError::Full { max: 3, .. }), "{full}");
    first.into_iter().for_each(|rank| rank.leave().unwrap());
    let third = join(at, &member("third", 2, 0), None).unwrap();
    let full = join(at, &member("fourth", 1, 0), None).unwrap_err();
    assert!(full.to_string().contains("as many jobs"), "{full}");
    // Its job is not over, but has no member.
    drop(second.abandon());
    let fourth = join(at, &member("fourth", 1, 0), None).unwrap();
    drop((third, fourth));
}

#[test]
fn a_job_without_members_is_forgotten_after_a_time() {
    let server = server(|options| options.keep_time = Duration::ZERO);
    let at = server.local_addr();
    join(at, &member("job", 2, 0), None).unwrap().put("key", b"old").unwrap();
    let again = join(at, &member("job", 2, 0), None).unwrap();
    assert!(matches!(again.get("key", Duration::ZERO), Err(ExchangeError::TimedOut { .. })));
}

#[test]
fn when_the_server_ends_all_learn_that() {
    let server = server(|_| {});
    let rank = join(server.local_addr(), &member("job", 2, 0), None).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| rank.get("absent", PATIENCE));
        while rank.barrier("x", Duration::ZERO).is_ok() {}
        server.stop().unwrap();
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, ExchangeError::Disconnected(_)), "{error}");
    });
    assert!(matches!(rank.put("key", b"x"), Err(ExchangeError::Disconnected(_))));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    // Nothing listens at port 1, and nothing gets it meanwhile.
    let free = "127.0.0.1:1";
    let options = JoinOptions { timeout: Duration::from_millis(50), ..JoinOptions::default() };
    let place = Rendezvous::Tcp(free.into());
    let error = Exchange::join(&place, &member("job", 1, 0), &options).unwrap_err();
    assert!(matches!(error, ExchangeError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("is `fabric rendezvous` running there"), "{error}");
}

/// What is between a client and the server does to the client's frames.
type Tamper = fn(usize, Vec<u8>) -> Vec<u8>;

/// Passes a connection on, and changes the frames of the client, or the bytes of the server after the handshake.
fn between(server: SocketAddr, tamper: Tamper, of_server: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        let ends = [(&client, &server, !of_server), (&server, &client, of_server)];
        thread::scope(|scope| {
            for (from, to, tampers) in ends {
                scope.spawn(move || {
                    pass(from, to, if tampers { tamper } else { |_, frame| frame });
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
    });
    at
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, tamper: Tamper) -> Option<()> {
    let mut handshake = [0; HELLO];
    from.read_exact(&mut handshake).ok()?;
    to.write_all(&handshake).ok()?;
    from.read_exact(&mut handshake[..PROOF]).ok()?;
    to.write_all(&handshake[..PROOF]).ok()?;
    for at in 0.. {
        let mut length = [0; LENGTH];
        from.read_exact(&mut length).ok()?;
        let mut frame = [&length[..], &vec![0; u32::from_le_bytes(length) as usize]].concat();
        from.read_exact(&mut frame[LENGTH..]).ok()?;
        to.write_all(&tamper(at, frame)).ok()?;
    }
    None
}

#[test]
fn frames_that_are_changed_or_repeated_on_the_way_end_the_connection() {
    let tampers: [Tamper; 3] = [
        // Frame 0 joins, and frame 1 says that the client knows.
        |at, frame| if at == 2 { frame.repeat(2) } else { frame },
        |at, mut frame| {
            if at == 3 {
                let last = frame.len() - 40;
                frame[last] ^= 1;
            }
            frame
        },
        |at, frame| if at == 2 { Vec::new() } else { frame },
    ];
    for (number, tamper) in tampers.into_iter().enumerate() {
        let server = server(|options| options.secret = secret(1));
        let name = number.to_string();
        let other = join(server.local_addr(), &member(&name, 2, 0), secret(1)).unwrap();
        let at = between(server.local_addr(), tamper, false);
        let victim = join(at, &member(&name, 2, 1), secret(1)).unwrap();
        // The first is repeated, changed after, or left out before the second.
        thread::scope(|scope| {
            scope.spawn(|| victim.put("one", b"x"));
            while victim.put("two", b"x").is_ok() {}
        });
        assert_eq!(other.barrier("x", PATIENCE), Err(ExchangeError::RankLost { rank: 1 }));
        let error = victim.put("three", b"x").unwrap_err();
        assert!(matches!(error, ExchangeError::Disconnected(_)), "{error:?}");
    }
}

#[test]
fn a_server_whose_words_are_changed_is_not_believed() {
    let server = server(|options| options.secret = secret(1));
    let tamper: Tamper = |at, mut frame| {
        if at == 1 {
            frame[LENGTH] ^= 1;
        }
        frame
    };
    let at = between(server.local_addr(), tamper, true);
    let victim = join(at, &member("job", 1, 0), secret(1)).unwrap();
    let error = victim.put("key", b"x").unwrap_err();
    assert!(matches!(error, ExchangeError::Unauthenticated(_)), "{error:?}");
}
