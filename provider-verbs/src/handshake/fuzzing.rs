//! Handshakes in which messages come in any order, to any end, changed and made up, as a fuzzer chooses.
//!
//! An end that has a secret lets in, and believes, only one that has proved it: what made it do so must be, to the bit, what
//! the other end said in this very handshake.

#![allow(clippy::panic)] // that is how a fuzzer finds something

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use fabric_core::Secret;
use fabric_util::choices::Choices;
use fabric_util::splitmix::SplitMix64;

use super::*;

/// Messages that are kept, to come again.
const KEPT: usize = 64;
/// Ends that connect in one program.
const APPLICANTS: usize = 16;

/// The listener's secret, and another one.
static KEYS: LazyLock<[Option<HandshakeKeys>; 2]> = LazyLock::new(|| {
    [1, 2].map(|of| Secret::new(&[of; 32]).ok().map(|secret| HandshakeKeys::new(&secret)))
});

/// An end that connects.
struct Applicant {
    initiator: Initiator,
    ends: Ends,
    /// By which of the secrets; none: without one.
    secret: Option<usize>,
    said: ConnectParams,
    /// What it proved, and whether that let it in.
    proofs: Vec<(RequestBytes, bool)>,
    /// What the listener answered when it was in.
    answers: Vec<Answered>,
}

/// An answer that is proved.
enum Answered {
    Accept(u32, AcceptBytes, ConnectParams),
    Reject(RejectBytes, Vec<u8>),
}

struct Program {
    challenges: Challenges,
    /// Whether the listener has a secret.
    is_secured: bool,
    applicants: Vec<Applicant>,
    messages: Vec<Vec<u8>>,
    now: Instant,
    /// A crowd came: once, since it takes as long as a thousand other steps.
    is_crowded: bool,
}

/// Runs a program.
pub fn greeting(bytes: &[u8]) {
    let mut c = Choices::new(bytes);
    let is_secured = c.byte() % 4 != 3;
    let keys = if is_secured { KEYS[0].clone() } else { None };
    let mut program = Program {
        challenges: Challenges::new(keys),
        is_secured,
        applicants: Vec::new(),
        messages: Vec::new(),
        now: Instant::now(),
        is_crowded: false,
    };
    while !c.are_over() {
        match c.below(16) {
            0..3 => program.connect(&mut c),
            3..8 => program.request(&mut c),
            8..11 => program.reject(&mut c),
            11..14 => program.accept(&mut c),
            14 => program.now += Duration::from_secs(c.below(90) as u64),
            _ if c.once_in(16) => program.crowd(&mut c),
            _ => program.greet(&mut c),
        }
        assert!(program.challenges.waiting.len() <= MAX_CHALLENGES, "too many challenges");
    }
}

/// Programs to start from, and one in which all goes well.
pub fn greeting_seeds() -> Vec<Vec<u8>> {
    let mut numbers = SplitMix64::new(1);
    let program = |number: usize| (0..8 + number * 4).map(|_| numbers.next_u64() as u8).collect();
    (0..64).map(program).chain([vec![0, 15, 0, 0, 0, 0, 0, 15, 0, 1, 0, 0, 0, 0]]).collect()
}

impl Program {
    fn keep(&mut self, message: Vec<u8>) {
        if self.messages.len() == KEPT {
            self.messages.remove(0);
        }
        self.messages.push(message);
    }

    /// A message that was said before, mostly as it was, or one that was not.
    fn message(&self, c: &mut Choices<'_>) -> Vec<u8> {
        if self.messages.is_empty() || c.once_in(16) {
            let len = c.below(200);
            return c.bytes(len).to_vec();
        }
        // The latest ones first.
        let mut pick =
            || self.messages[self.messages.len() - 1 - c.below(self.messages.len())].clone();
        let (mut message, other) = (pick(), pick());
        match c.below(8) {
            0 => {
                let at = c.below(message.len().max(1));
                message.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << c.below(8));
            }
            1 => message.truncate(c.below(message.len() + 1)),
            2 => {
                let at = c.below(message.len() + 1);
                message.truncate(at);
                message.extend(other.iter().skip(at));
            }
            3 => {
                let (at, bytes) = (c.below(message.len().max(1)), c.number().to_le_bytes());
                message.iter_mut().skip(at).zip(bytes).for_each(|(to, byte)| *to = byte);
            }
            _ => {}
        }
        message
    }

    /// One more end connects: with the listener's secret, another or none.
    fn connect(&mut self, c: &mut Choices<'_>) {
        if self.applicants.len() == APPLICANTS {
            return;
        }
        let secret = [Some(0), Some(0), Some(1), None][c.below(4)];
        let (ends, queue_pair) = ends(c);
        let (probe, len) = (c.below(1 << 16) as u32, c.below(49));
        let data: Box<[u8]> = (0..len as u8).map(|at| at ^ queue_pair as u8).collect();
        let keys = secret.and_then(|at| KEYS[at].as_ref());
        let (initiator, request) = Initiator::new(keys, ends, (probe, &data));
        let said = ConnectParams { probe, data };
        let (proofs, answers) = (Vec::new(), Vec::new());
        self.applicants.push(Applicant { initiator, ends, secret, said, proofs, answers });
        self.keep(request);
    }

    /// A request comes to the listener.
    fn request(&mut self, c: &mut Choices<'_>) {
        let message = self.message(c);
        let from = match self.applicants.get(c.below(APPLICANTS)) {
            Some(applicant) => applicant.ends,
            None => ends(c).0,
        };
        self.hear(from, &message, c);
    }

    fn hear(&mut self, from: Ends, message: &[u8], c: &mut Choices<'_>) {
        match self.challenges.hear(self.now, from, message) {
            Err(_) => {}
            Ok(Heard::Challenge(bytes)) => {
                assert!(self.is_secured);
                self.keep(bytes);
            }
            Ok(Heard::Whole(params, acceptance)) => {
                let applicant = self.is_secured.then(|| self.let_in(from, message, &params));
                self.answer(applicant, &acceptance, c);
            }
        }
    }

    /// The listener believes a proof: of an applicant that has the secret, from there, for the first time.
    fn let_in(&mut self, from: Ends, proof: &[u8], params: &ConnectParams) -> usize {
        let proof: RequestBytes = whole(proof);
        let known = self.applicants.iter_mut().position(|one| {
            let is_it = one.secret == Some(0) && one.ends == from && one.said == *params;
            is_it && one.proofs.iter().any(|(known, is_in)| *known == proof && !is_in)
        });
        let Some(at) = known else { panic!("a peer is let in that has proved nothing") };
        self.applicants[at].proofs.iter_mut().for_each(|(known, is_in)| *is_in |= *known == proof);
        at
    }

    /// The listening application answers.
    fn answer(&mut self, to: Option<usize>, acceptance: &Acceptance, c: &mut Choices<'_>) {
        let (queue_pair, probe) = (c.below(4) as u32, c.below(1 << 16) as u32);
        let data: Vec<u8> = (0..c.below(100) as u8).collect();
        let (answer, bytes) = if c.below(2) == 0 {
            let bytes = acceptance.accept(queue_pair, (probe, &data));
            let params = ConnectParams { probe, data: data.into() };
            (Answered::Accept(queue_pair, whole(&bytes), params), bytes)
        } else {
            let bytes = acceptance.reject(&data);
            (Answered::Reject(whole(&bytes), data), bytes)
        };
        if let Some(at) = to {
            self.applicants[at].answers.push(answer);
        }
        self.keep(bytes);
    }

    /// A rejection comes to an applicant.
    fn reject(&mut self, c: &mut Choices<'_>) {
        let message = self.message(c);
        let at = c.below(APPLICANTS);
        self.on_reject(at, &message);
    }

    fn on_reject(&mut self, at: usize, message: &[u8]) {
        let Some(applicant) = self.applicants.get_mut(at) else { return };
        match applicant.initiator.on_reject(message) {
            Ok(proof) => {
                assert!(applicant.proofs.is_empty(), "proved twice");
                applicant.proofs.push((whole(&proof), false));
                self.keep(proof);
            }
            Err(Declined::Rejected(data)) if applicant.secret.is_some() => {
                let bytes: RejectBytes = whole(message);
                let is_known = applicant.answers.iter().any(|one| {
                    matches!(one, Answered::Reject(known, said) if *known == bytes && **said == *data)
                });
                assert!(is_known, "believes a rejection that is not proved");
            }
            Err(_) => {}
        }
    }

    /// An accept comes to an applicant.
    fn accept(&mut self, c: &mut Choices<'_>) {
        let (message, at) = (self.message(c), c.below(APPLICANTS));
        let queue_pair = c.below(4) as u32;
        let Some(applicant) = self.applicants.get(at) else { return };
        let believed = applicant.initiator.on_accept(queue_pair, &message);
        if let (Ok(params), Some(_)) = (believed, applicant.secret) {
            let bytes: AcceptBytes = whole(&message);
            let is_known = applicant.answers.iter().any(|one| {
                matches!(one, Answered::Accept(of, known, said)
                    if *of == queue_pair && *known == bytes && *said == params)
            });
            assert!(is_known, "believes an accept that is not proved");
        }
    }

    /// A whole handshake of one more end, as far as it goes.
    fn greet(&mut self, c: &mut Choices<'_>) {
        self.connect(c);
        for _ in 0..2 {
            let (Some(applicant), Some(said)) = (self.applicants.last(), self.messages.last())
            else {
                return;
            };
            let (from, said) = (applicant.ends, said.clone());
            self.hear(from, &said, c);
            let Some(said) = self.messages.last().cloned() else { return };
            self.on_reject(self.applicants.len() - 1, &said);
        }
    }

    /// Many requests from one place, that are never proved.
    fn crowd(&mut self, c: &mut Choices<'_>) {
        if std::mem::replace(&mut self.is_crowded, true) {
            return;
        }
        let (from, _) = ends(c);
        let (_, hello) = Initiator::new(KEYS[1].as_ref(), from, (0, b""));
        for _ in 0..c.below(2 * MAX_CHALLENGES) {
            let _ = self.challenges.hear(self.now, from, &hello);
        }
    }
}

/// Two ends, and the number of the queue pair that asks.
fn ends(c: &mut Choices<'_>) -> (Ends, u32) {
    let host = |number: usize| Ipv4Addr::new(192, 0, 2, number as u8).into();
    let (from, queue_pair, to) = (host(c.below(4)), c.below(4) as u32, host(10 + c.below(2)));
    (Ends::new(from, to, queue_pair), queue_pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_seeds_go_well() {
        greeting_seeds().iter().for_each(|seed| greeting(seed));
    }
}
