//! How both ends of a connection prove that they have the domain's secret, before the application hears of either.
//!
//! A request has room for the private data or for a proof, and an answer comes once. So there are two requests, each with an
//! identifier of its own: the listener rejects the first with a challenge, keeps what was said, and takes the second for it
//! if that has the proof. A stranger costs it a random number and two messages, and no queue pair.
//!
//! What is proved (`fabric_util::proof`): both addresses, both queue pairs' numbers, the first request, the challenge, the proof,
//! and the answer. So what is passed on by another host proves nothing. Seals are cut to what a request has room for, 24 bytes.
//!
//! Nothing here knows the connection manager.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fabric_core::Result;
use fabric_util::fair_table::FairTable;
use fabric_util::proof::{self, HandshakeKeys, Prover, Transcript};
use fabric_util::refusal::{CHANGED, Declined, NOT_PROVEN, RefuseReason, Unwelcome, check_secrets};

use crate::header::{
    self, AcceptBytes, ConnectParams, RejectBytes, Rejection, Request, RequestBytes, SHORT_SEAL,
    split_seal, whole,
};

/// Challenges that wait for their proof; for the next ones, the network that has most loses its oldest.
const MAX_CHALLENGES: usize = 1024;
/// How long one waits. A request that got lost is repeated each 4.3 s, and a peer has its own time for all of it.
const CHALLENGE: Duration = Duration::from_secs(60);

/// The initiator's part.
#[derive(Default)]
pub(crate) struct Initiator {
    transcript: Option<Transcript>,
    /// The listener's challenge was answered.
    has_proved: bool,
}

impl Initiator {
    /// The first request between these, and what follows it.
    pub(crate) fn new(
        keys: Option<&HandshakeKeys>,
        ends: Ends,
        (probe, data): (u32, &[u8]),
    ) -> (Self, Vec<u8>) {
        let mut request = header::request(probe, data, keys.is_some());
        let transcript = keys.map(|keys| {
            let hello: RequestBytes = whole(&request);
            request = hello.to_vec();
            begin(keys, ends, &hello)
        });
        (Initiator { transcript, has_proved: false }, request)
    }

    /// The listener rejected a request with these bytes: gives the next one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn on_reject(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Declined> {
        let bytes: RejectBytes = whole(bytes);
        match header::parse_reject(&bytes) {
            Rejection::Refused(reason) => Err(Declined::because(reason)),
            Rejection::Rejected(data) => {
                let (frame, seal) = split_seal(&bytes);
                Err(if self.is_proven(frame, seal) {
                    Declined::Rejected(data)
                } else {
                    Declined::unauthenticated(NOT_PROVEN)
                })
            }
            Rejection::Challenge { ticket } => self.prove(ticket, &bytes),
        }
    }

    fn prove(&mut self, ticket: u64, challenge: &RejectBytes) -> Result<Vec<u8>, Declined> {
        let malformed = |text: String| Declined::Malformed(text);
        let Some(transcript) = self.transcript.as_mut().filter(|_| !self.has_proved) else {
            let text = "the peer challenges an end that has no secret, or has proved it";
            return Err(malformed(text.to_owned()));
        };
        transcript.add(challenge);
        let nonce = proof::random().map_err(|error| malformed(error.to_string()))?;
        let mut bytes = header::proof(ticket, &nonce);
        let seal = short(transcript, Prover::Initiator, &bytes);
        bytes.extend(seal);
        transcript.add(&bytes);
        self.has_proved = true;
        Ok(bytes)
    }

    /// The listener's queue pair of this number accepted with these bytes.
    ///
    /// # Errors
    /// It did not prove the secret that this end has, or said no valid accept.
    pub(crate) fn on_accept(
        &self,
        queue_pair: u32,
        bytes: &[u8],
    ) -> Result<ConnectParams, Declined> {
        let whole: AcceptBytes = whole(bytes);
        let (frame, seal) = split_seal(&whole);
        if !self.is_proven(&of_queue_pair(queue_pair, frame), seal) {
            return Err(Declined::unauthenticated(NOT_PROVEN));
        }
        // Where nothing is proved, there is no seal.
        let frame = if self.transcript.is_some() { frame } else { bytes };
        header::parse_accept(frame)
            .map_err(|why| Declined::Malformed(format!("invalid answer by the peer: {why}")))
    }

    fn is_proven(&self, frame: &[u8], seal: &[u8; SHORT_SEAL]) -> bool {
        self.transcript.as_ref().is_none_or(|transcript| {
            self.has_proved && transcript.is_sealed(Prover::Acceptor, frame, seal)
        })
    }
}

/// The acceptor's part once a request is whole: by what its answer is proved.
pub(crate) struct Acceptance(Option<Box<Transcript>>);

impl Acceptance {
    /// The private data of an accept by this queue pair.
    pub(crate) fn accept(&self, queue_pair: u32, (probe, data): (u32, &[u8])) -> Vec<u8> {
        let frame = header::accept(probe, data);
        self.seal::<{ size_of::<AcceptBytes>() }>(frame, |frame| of_queue_pair(queue_pair, frame))
    }

    /// The private data of the application's reject.
    pub(crate) fn reject(&self, data: &[u8]) -> Vec<u8> {
        let frame = header::reject(&Rejection::Rejected(data.into()));
        self.seal::<{ size_of::<RejectBytes>() }>(frame, <[u8]>::to_vec)
    }

    fn seal<const N: usize>(&self, frame: Vec<u8>, said: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let Some(transcript) = &self.0 else { return frame };
        let mut frame = frame;
        frame.resize(N - SHORT_SEAL, 0);
        let seal = short(transcript, Prover::Acceptor, &said(&frame));
        frame.extend(seal);
        frame
    }
}

/// What came of a request.
pub(crate) enum Heard {
    /// It is for the application.
    Whole(ConnectParams, Acceptance),
    /// It is to be rejected with these bytes.
    Challenge(Vec<u8>),
}

/// The challenges of a domain's listeners.
#[derive(Default)]
pub(crate) struct Challenges {
    keys: Option<HandshakeKeys>,
    waiting: FairTable<Challenged>,
    /// The next ticket.
    tickets: u64,
}

/// A request that was answered by a challenge.
struct Challenged {
    since: Instant,
    ends: Ends,
    params: ConnectParams,
    hello: RequestBytes,
    challenge: RejectBytes,
}

/// The ends of a request. The initiator's port is another for its next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    initiator: IpAddr,
    acceptor: IpAddr,
    /// The initiator's.
    queue_pair: u32,
}

impl Ends {
    pub(crate) fn new(initiator: IpAddr, acceptor: IpAddr, queue_pair: u32) -> Self {
        let (initiator, acceptor) = (initiator.to_canonical(), acceptor.to_canonical());
        Ends { initiator, acceptor, queue_pair }
    }

    fn to_bytes(self) -> Vec<u8> {
        let address = |addr| match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
            IpAddr::V6(addr) => addr.octets(),
        };
        let addresses = [address(self.initiator), address(self.acceptor)].concat();
        of_queue_pair(self.queue_pair, &addresses)
    }
}

impl Challenges {
    /// None yet; peers are to prove the secret of these keys, if there is one.
    pub(crate) fn new(keys: Option<HandshakeKeys>) -> Self {
        Challenges { keys, ..Challenges::default() }
    }

    /// The keys of the domain's secret.
    pub(crate) fn keys(&self) -> Option<&HandshakeKeys> {
        self.keys.as_ref()
    }

    /// A request came.
    ///
    /// # Errors
    /// What to say to the peer, and what to say of it.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        ends: Ends,
        bytes: &[u8],
    ) -> Result<Heard, (RefuseReason, Unwelcome)> {
        let request = header::parse_request(bytes).map_err(|why| {
            (RefuseReason::Full, Unwelcome::because(format!("is refused: {why}")))
        })?;
        match request {
            Request::Hello { params, is_secured } => {
                check_secrets(self.keys.is_some(), is_secured)?;
                if !is_secured {
                    return Ok(Heard::Whole(params, Acceptance(None)));
                }
                self.challenge(now, ends, params, whole(bytes)).map(Heard::Challenge)
            }
            Request::Proof { ticket } => self.check(ticket, ends, &whole(bytes)),
        }
    }

    fn challenge(
        &mut self,
        now: Instant,
        ends: Ends,
        params: ConnectParams,
        hello: RequestBytes,
    ) -> Result<Vec<u8>, (RefuseReason, Unwelcome)> {
        while self.waiting.oldest().is_some_and(|(_, one)| now > one.since + CHALLENGE) {
            self.waiting.pop_oldest();
        }
        let random = proof::random()
            .map_err(|error| (RefuseReason::Full, Unwelcome::because(error.to_string())))?;
        self.tickets += 1;
        let mut bytes = header::reject(&Rejection::Challenge { ticket: self.tickets });
        bytes.extend(random);
        let challenge: RejectBytes = whole(&bytes);
        let challenged = Challenged { since: now, ends, params, hello, challenge };
        self.waiting.insert(self.tickets, ends.initiator, challenged);
        if self.waiting.len() > MAX_CHALLENGES {
            self.waiting.displace();
        }
        Ok(challenge.to_vec())
    }

    /// A proof that is none may be repeated, and stays none; a good one counts once.
    fn check(
        &mut self,
        ticket: u64,
        ends: Ends,
        proof: &RequestBytes,
    ) -> Result<Heard, (RefuseReason, Unwelcome)> {
        let (frame, seal) = split_seal(proof);
        let waiting = self.waiting.get_mut(ticket).filter(|one| one.ends == ends);
        let (Some(keys), Some(challenged)) = (&self.keys, waiting) else {
            let why = "proves what it was not asked for, or too late";
            return Err((RefuseReason::Full, Unwelcome::because(why)));
        };
        let mut transcript = begin(keys, ends, &challenged.hello);
        transcript.add(&challenged.challenge);
        if !transcript.is_sealed(Prover::Initiator, frame, seal) {
            return Err((RefuseReason::OtherSecret, Unwelcome::unauthenticated(CHANGED)));
        }
        transcript.add(proof);
        let params = challenged.params.clone();
        self.waiting.remove(ticket);
        Ok(Heard::Whole(params, Acceptance(Some(Box::new(transcript)))))
    }
}

/// What is said first, and between which ends.
fn begin(keys: &HandshakeKeys, ends: Ends, hello: &RequestBytes) -> Transcript {
    let mut transcript = keys.transcript();
    transcript.add(&[&ends.to_bytes(), &hello[..]].concat());
    transcript
}

fn of_queue_pair(number: u32, frame: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes(), frame].concat()
}

fn short(transcript: &Transcript, by: Prover, frame: &[u8]) -> [u8; SHORT_SEAL] {
    whole(&transcript.seal(by, frame))
}

#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
