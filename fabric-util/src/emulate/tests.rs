use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use fabric_core::atomic::{AtomicOp, AtomicType, is_defined};

/// Memory of one word, and a queue pair that reaches it.
#[derive(Default)]
struct Fake {
    word: u64,
    /// Legs on their way, and what each of the others was.
    requests: VecDeque<CasRequest>,
    posted: Vec<(Token, Vec<u8>)>,
    refuse: bool,
    no_fences: bool,
    barriers: usize,
}

impl CasDevice for Fake {
    fn must_emulate(&self, op: &SendOp) -> bool {
        matches!(op, SendOp::Atomic { .. })
    }

    fn must_wait(&self, work: &SendWork<'_>) -> bool {
        self.no_fences && work.flags.contains(SendFlags::FENCE)
    }

    fn barrier(&mut self) -> Result<()> {
        if self.refuse {
            return Err(Error::NotConnected);
        }
        self.barriers += 1;
        Ok(())
    }

    fn compare_and_swap(&mut self, request: &CasRequest, flags: SendFlags) -> Result<()> {
        assert!(!self.no_fences || !flags.contains(SendFlags::FENCE));
        if self.refuse {
            return Err(Error::NotConnected);
        }
        self.requests.push_back(*request);
        Ok(())
    }

    unsafe fn post(&mut self, work: &SendWork<'_>) -> Result<()> {
        if self.refuse {
            return Err(Error::NotConnected);
        }
        assert!(!self.no_fences || !work.flags.contains(SendFlags::FENCE));
        let mut bytes = Vec::new();
        for segment in work.segments {
            // SAFETY: a test's segment, alive here.
            bytes.extend(unsafe { std::slice::from_raw_parts(segment.addr, segment.len) });
        }
        self.posted.push((work.token, bytes));
        Ok(())
    }
}

impl Fake {
    /// Executes the oldest request.
    fn execute(&mut self) -> u64 {
        let request = self.requests.pop_front().expect("a leg");
        assert!(request.at.addr.is_multiple_of(8));
        let found = self.word;
        if found == request.compare {
            self.word = request.swap;
        }
        found
    }
}

fn token(sequence: u32) -> Token {
    Token::new(1, 2, fabric_core::Side::Send, sequence)
}

fn atomic(call: AtomicCall, fetch: bool) -> SendOp {
    SendOp::Atomic { at: RemoteAddr { key: 7, addr: 4096 }, call, fetch }
}

const ADD: AtomicCall =
    AtomicCall { op: AtomicOp::Add, ty: AtomicType::U32, operand: 5, compare: 0 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The loop does to its element what the reference arithmetic says, to its neighbours nothing, whatever
    /// others write in between.
    #[test]
    fn a_loop_is_the_reference(
        op in 0usize..8, ty in 0usize..10, place in 0u64..8, operand: u64, compare: u64,
        mut word: u64, zero: bool, others in prop::collection::vec(any::<u64>(), 0..4),
    ) {
        let (op, ty) = (AtomicOp::ALL[op], AtomicType::ALL[ty]);
        prop_assume!(is_defined(op, ty));
        if zero { word = 0 }
        let size = ty.size() as u64;
        let offset = place / size * size;
        let call = AtomicCall { op, ty, operand, compare };
        let (mut cas, mut request) = CasLoop::new(RemoteAddr { key: 1, addr: 8192 + offset }, call);
        let mut others = others.into_iter();
        let mut requests = 0;
        loop {
            requests += 1;
            prop_assert_eq!(request.at, RemoteAddr { key: 1, addr: 8192 });
            let before = word.to_ne_bytes();
            if word == request.compare { word = request.swap }
            match cas.on_result(u64::from_ne_bytes(before)) {
                CasOutcome::Retry(next) => request = next,
                CasOutcome::Done(old) => {
                    let at = offset as usize..(offset + size) as usize;
                    let number = |bytes: &[u8]| {
                        let mut wide = [0; 8];
                        let low = if cfg!(target_endian = "little") { 0 } else { 8 - bytes.len() };
                        wide[low..low + bytes.len()].copy_from_slice(bytes);
                        u64::from_ne_bytes(wide)
                    };
                    prop_assert_eq!(old, number(&before[at.clone()]));
                    let after = word.to_ne_bytes();
                    prop_assert_eq!(number(&after[at.clone()]), call.apply(old));
                    for i in (0..8).filter(|i| !at.contains(i)) {
                        prop_assert_eq!(before[i], after[i]);
                    }
                    break;
                }
            }
            if let Some(other) = others.next() { word = other }
            prop_assert!(requests < 12);
        }
    }
}

#[test]
fn a_loop_that_changes_nothing_is_done_when_the_word_was_seen() {
    let call = AtomicCall { op: AtomicOp::Max, ty: AtomicType::U8, operand: 3, compare: 0 };
    let (mut cas, first) = CasLoop::new(RemoteAddr { key: 1, addr: 8 }, call);
    assert_eq!((first.compare, first.swap & 0xff), (0, 3));
    assert_eq!(cas.on_result(u64::from_ne_bytes([9; 8])), CasOutcome::Done(9));
}

#[test]
fn what_is_behind_a_loop_waits_and_keeps_its_bytes() {
    let (mut queue, mut device) =
        (SoftSendQueue::default(), Fake { word: 1 << 40, ..Fake::default() });
    let mut old = [0u8; 4];
    let mut done = Vec::new();
    let segment = |bytes: &mut [u8]| Segment::new(bytes.as_mut_ptr(), bytes.len(), 0);
    let fetch = [segment(&mut old)];
    let mut text = *b"inject";
    let inject = [segment(&mut text)];
    let send = SendOp::Send { imm: None };
    let post =
        |queue: &mut SoftSendQueue, device: &mut Fake, seq, op, segments: &[Segment], flags| {
            let work = SendWork::new(token(seq), op, segments, flags);
            // SAFETY: the segments live until the end of the test.
            unsafe { queue.post(&work, device) }.unwrap();
        };
    let unsignaled = SendFlags::empty();
    post(&mut queue, &mut device, 0, send, &[], unsignaled);
    assert!(queue.is_idle());
    post(&mut queue, &mut device, 1, atomic(ADD, true), &fetch, SendFlags::SIGNALED);
    post(&mut queue, &mut device, 2, send, &inject, SendFlags::INJECT);
    post(&mut queue, &mut device, 3, atomic(ADD, false), &[], unsignaled);
    post(&mut queue, &mut device, 4, send, &[], unsignaled);
    text.fill(0);
    while let Some(found) = (!device.requests.is_empty()).then(|| device.execute()) {
        // SAFETY: as above.
        unsafe { queue.on_result(Ok(found), &mut device, |c| done.push((c.token, c.status))) };
    }
    assert!(queue.is_idle());
    let posted: Vec<_> = device.posted.iter().map(|(t, b)| (t.sequence(), &b[..])).collect();
    assert_eq!(posted, [(0, &b""[..]), (2, b"inject"), (4, b"")]);
    assert_eq!(done, [(token(1), Status::Ok)]);
    assert_eq!(device.word, 1 << 40 | 10);
    assert_eq!(u32::from_ne_bytes(old), 0);
}

#[test]
fn what_is_fenced_waits_where_the_device_has_no_fences() {
    let mut queue = SoftSendQueue::default();
    let mut device = Fake { no_fences: true, ..Fake::default() };
    let post = |queue: &mut SoftSendQueue, device: &mut Fake, seq, op, flags| {
        let work = SendWork::new(token(seq), op, &[], flags);
        // SAFETY: there are no segments.
        unsafe { queue.post(&work, device) }.unwrap();
    };
    let posted =
        |device: &Fake| device.posted.iter().map(|(t, _)| t.sequence()).collect::<Vec<_>>();
    let (send, unsignaled) = (SendOp::Send { imm: None }, SendFlags::empty());
    post(&mut queue, &mut device, 0, send, unsignaled);
    post(&mut queue, &mut device, 1, send, SendFlags::FENCE);
    post(&mut queue, &mut device, 2, send, unsignaled);
    post(&mut queue, &mut device, 3, atomic(ADD, false), SendFlags::FENCE | SendFlags::SIGNALED);
    post(&mut queue, &mut device, 4, send, SendFlags::FENCE);
    assert_eq!((posted(&device), device.barriers), (vec![0], 1));
    let mut done = Vec::new();
    let mut on_result = |queue: &mut SoftSendQueue, device: &mut Fake, found| {
        // SAFETY: there are no segments.
        unsafe { queue.on_result(found, device, |c| done.push((c.token.sequence(), c.status))) };
    };
    on_result(&mut queue, &mut device, Ok(0));
    assert_eq!((posted(&device), device.barriers), (vec![0, 1, 2], 2));
    on_result(&mut queue, &mut device, Ok(0));
    assert_eq!((device.requests.len(), device.barriers), (1, 2));
    let found = device.execute();
    on_result(&mut queue, &mut device, Ok(found));
    assert_eq!((posted(&device), device.barriers), (vec![0, 1, 2], 3));
    on_result(&mut queue, &mut device, Err(RawCompletion::new(Token::default(), Status::Canceled)));
    assert!(queue.is_idle());
    assert_eq!(
        (posted(&device), done),
        (vec![0, 1, 2], vec![(3, Status::Ok), (4, Status::Canceled)])
    );
}

#[test]
fn after_a_failure_everything_that_waits_is_canceled() {
    let (mut queue, mut device, mut done) = (SoftSendQueue::default(), Fake::default(), Vec::new());
    for seq in 0..3 {
        let (op, segments, flags) = (atomic(ADD, false), &[][..], SendFlags::empty());
        let work = SendWork::new(token(seq), op, segments, flags);
        // SAFETY: there are no segments.
        unsafe { queue.post(&work, &mut device) }.unwrap();
    }
    let refused = RawCompletion::new(Token::default(), Status::RemoteAccess);
    // SAFETY: there are no segments.
    unsafe { queue.on_result(Err(refused), &mut device, |c| done.push((c.token, c.status))) };
    let canceled = |seq| (token(seq), Status::Canceled);
    assert_eq!(done, [(token(0), Status::RemoteAccess), canceled(1), canceled(2)]);
    assert!(queue.is_idle() && device.requests.len() == 1);
}

#[test]
fn a_device_that_refuses_ends_the_queue() {
    let (mut queue, mut device, mut done) = (SoftSendQueue::default(), Fake::default(), Vec::new());
    for seq in 0..3 {
        let (op, segments, flags) = (atomic(ADD, false), &[][..], SendFlags::empty());
        let work = SendWork::new(token(seq), op, segments, flags);
        // SAFETY: there are no segments.
        unsafe { queue.post(&work, &mut device) }.unwrap();
    }
    let found = device.execute();
    device.refuse = true;
    // SAFETY: there are no segments.
    unsafe { queue.on_result(Ok(found), &mut device, |c| done.push((c.token, c.status))) };
    assert_eq!(done, [(token(1), Status::Canceled), (token(2), Status::Canceled)]);
    assert!(queue.is_idle());
}

#[test]
fn a_pause_waits_for_what_is_before_it_and_holds_up_what_is_behind() {
    let (mut queue, mut device) = (SoftSendQueue::default(), Fake::default());
    queue.pause(&mut device).unwrap();
    assert!(queue.is_paused() && device.barriers == 1);
    let send = |sequence| {
        SendWork::new(token(sequence), SendOp::Send { imm: None }, &[], SendFlags::SIGNALED)
    };
    // SAFETY: no segments.
    unsafe { queue.post(&send(1), &mut device) }.unwrap();
    assert!(device.posted.is_empty());
    // SAFETY: the barrier was this queue's.
    unsafe { queue.on_result(Ok(0), &mut device, |_| panic!("a completion of nothing")) };
    assert!(queue.is_idle() && device.posted.len() == 1);

    queue.pause(&mut device).unwrap();
    // SAFETY: no segments.
    unsafe { queue.post(&send(2), &mut device) }.unwrap();
    let mut ended = Vec::new();
    let failed = RawCompletion::new(Token::default(), Status::PeerLost);
    // SAFETY: as above.
    unsafe { queue.on_result(Err(failed), &mut device, |completion| ended.push(completion)) };
    assert_eq!((ended.len(), ended[0].token, ended[0].status), (1, token(2), Status::Canceled));
    assert!(queue.is_idle());
}
