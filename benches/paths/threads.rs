//! What the safe handles cost beside a `Mutex`: post and poll over a provider that does nothing, in threads of their own.
//!
//! Each line is the median of many runs, in nanoseconds an operation, and as a multiple of one uncontended `Mutex` lock
//! and unlock measured in the same run, which compares machines and their moods apart. "Provider alone" is the
//! provider's own part of the lines below it.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use fabric::Completion;
use fabric_core::provider::{DomainOps, Provider};
use fabric_core::{
    CqAttr, CqOps, DomainAttr, EndpointAttr, EndpointId, EndpointOps, Event, EventSink,
    RawCompletion, RemoteAddr, Segment, SendFlags, SendOp, SendWork, Side, Token,
};

use crate::rig::{NOWHERE, Rig};

const RUNS: usize = 31;
const OPERATIONS: usize = 32_000;
const BATCH: usize = crate::BATCH as usize;

/// The median of several runs, in nanoseconds an operation.
fn median(mut run: impl FnMut() -> f64) -> f64 {
    run();
    let mut runs: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

/// Nanoseconds an operation of `step`, which does `each` operations.
fn time(each: usize, mut step: impl FnMut()) -> f64 {
    let steps = OPERATIONS / each;
    let start = Instant::now();
    (0..steps).for_each(|_| step());
    start.elapsed().as_nanos() as f64 / (steps * each) as f64
}

/// The same in several threads at a time, each with an endpoint and a queue of its own.
fn time_threads(threads: usize, each: usize, step: impl Fn(&Rig) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let rig = crate::rig();
        barrier.wait();
        time(each, || step(&rig))
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum::<f64>() / threads as f64
    })
}

fn poll_all(rig: &Rig, out: &mut [Completion]) {
    assert_eq!(rig.queue.poll(out).unwrap(), out.len());
    black_box(&*out);
}

fn post_poll(rig: &Rig) {
    rig.endpoint.post(&rig.write(black_box(7))).unwrap();
    poll_all(rig, &mut [Completion::default(); 1]);
}

fn post_poll_batch(rig: &Rig) {
    let ops = [rig.write(black_box(7)); BATCH];
    rig.endpoint.post_batch(&ops).unwrap();
    poll_all(rig, &mut [Completion::default(); BATCH]);
}

fn post_unsignaled(rig: &Rig) {
    rig.endpoint.post(&rig.write(black_box(7)).unsignaled()).unwrap();
}

fn post_unsignaled_batch(rig: &Rig) {
    rig.endpoint.post_batch(&[rig.write(black_box(7)).unsignaled(); BATCH]).unwrap();
}

struct Deaf;
impl EventSink for Deaf {
    fn event(&self, _: Event) {}
}

/// Post and poll of the provider's own traits.
fn provider_alone(batch: usize) -> f64 {
    let provider = crate::provider();
    let info = provider.devices().remove(0).state.unwrap();
    let domain = provider.open(&info, &DomainAttr::default(), Arc::new(Deaf)).unwrap();
    let queue = domain.completion_queue(&CqAttr::new(1024)).unwrap();
    let attr = EndpointAttr::default();
    let endpoint = domain.endpoint(EndpointId(1), &attr, &queue, &queue).unwrap();
    endpoint.connect(NOWHERE, &[]).unwrap();
    let mut bytes = [0u8; 8];
    let segments = [Segment::new(bytes.as_mut_ptr(), bytes.len(), 1)];
    let op = SendOp::Write { to: RemoteAddr { key: 1, addr: 64 }, imm: None };
    let token = Token::new(0, 0, Side::Send, 0);
    let work = SendWork::new(token, op, &segments, SendFlags::SIGNALED);
    let endpoint: Box<dyn EndpointOps> = Box::new(endpoint);
    let queue: Box<dyn CqOps> = Box::new(queue);
    let work = vec![work; batch];
    let mut out = vec![RawCompletion::default(); batch];
    median(|| {
        time(batch, || {
            // SAFETY: `bytes` outlives the endpoint, and each operation ends before the next.
            let posted = unsafe { endpoint.post_send(black_box(&work)) };
            assert_eq!(posted.accepted, batch);
            assert_eq!(queue.poll(&mut out), batch);
            black_box(&out);
        })
    })
}

/// A line's name, the operations of one step, and the step.
type Case = (&'static str, usize, fn(&Rig));

const CASES: [Case; 4] = [
    ("post + poll(1)", 1, post_poll),
    ("post + poll, batches of 16", BATCH, post_poll_batch),
    ("unsignaled post, never polled", 1, post_unsignaled),
    ("unsignaled post, batches of 16", BATCH, post_unsignaled_batch),
];

/// Prints the lines; of those of the handles, the ones whose name contains `only`.
pub(crate) fn times(only: &str) {
    let mutex = Mutex::new(0u64);
    let pair = median(|| time(1, || *black_box(&mutex).lock().unwrap() += 1));
    let line = |what: &str, ns: f64| println!("{what:<44} {ns:7.1} ns  {:5.2} pairs", ns / pair);
    line("mutex lock and unlock", pair);
    line("provider alone, one by one", provider_alone(1));
    line("provider alone, batches of 16", provider_alone(BATCH));
    for threads in 1..=3 {
        for (what, each, step) in CASES.into_iter().filter(|case| case.0.contains(only)) {
            let ns = median(|| time_threads(threads, each, step));
            line(&format!("{what}, {threads} threads"), ns);
        }
    }
}
