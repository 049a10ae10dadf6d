//! What happens while the application makes no call.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmPair};
use crate::sys::in_child;

pub(super) fn sleeping_receiver_matches(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let source = a.patterned(1 << 20, 0)?;
    let time = rig.connect_timeout();
    let mut inboxes = Vec::new();
    for (context, len) in (0..).zip(LENGTHS) {
        let inbox = b.buffer(len.max(1))?;
        let recv = Recv::new(Pattern::tagged(context).from(to_a), inbox.slice(..len));
        b.post_recv(&recv.context(context))?;
        inboxes.push(inbox);
    }
    // From here on b makes no call.
    for (tag, len) in (0..).zip(LENGTHS) {
        let send = Send::new(source.slice(..len)).tag(tag).matched().unsignaled();
        a.when_room(|| a.post_send(to_b, &send))?;
    }
    a.counter(Kind::Send).wait_for(LENGTHS.len() as u64, 0, Some(time))?;
    b.counter(Kind::Recv).wait_for(LENGTHS.len() as u64, 0, Some(time))?;
    for (inbox, len) in inboxes.iter().zip(LENGTHS) {
        inbox.check_pattern(..len, rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn sleeping_rendezvous(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let (source, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    // With and without the right by which the target reads it.
    let plain = a.rig_buffer(1 << 20, Access::LOCAL_WRITE)?;
    plain.put_pattern(.., rig.pattern(1))?;
    for (source, pattern) in [(&source, 0), (&plain, 1)] {
        a.post_send(*to_b, &Send::new(source).tag(1).unsignaled())?;
        // The sender makes no call any more.
        thread::sleep(Duration::from_millis(5));
        b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
        b.received(1, 1 << 20)?;
        inbox.check_pattern(.., rig.pattern(pattern))?;
    }
    a.counter(Kind::Send).wait_for(3, 0, Some(rig.connect_timeout()))?;
    Ok(())
}

pub(super) fn woken_by_another_thread(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let a = &pair.a;
    let (time, inbox) = (rig.scaled(Duration::from_secs(4)), a.buffer(8)?);
    let me = a.insert(a.address())?;
    for round in 0..4 {
        let id = a.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
        thread::scope(|scope| -> Outcome {
            let sleeper = scope.spawn(|| {
                let begun = Instant::now();
                a.wait_one(Some(time)).map(|done| (done, begun.elapsed()))
            });
            // By now it sleeps; what ends its receive comes by no connection.
            thread::sleep(Duration::from_millis(20));
            if round % 2 == 0 {
                check!(a.cancel(id)?, "a receive without a message is canceled");
            } else {
                a.post_send(me, &Send::inject(b"to me").tag(1).unsignaled())?;
            }
            let woken = sleeper.join().map_err(|_| Failed::new("a wait", "a panic"))?;
            let (done, slept) = woken?;
            check_eq!((done.kind, done.context), (Kind::Recv, 1), "{done:?}");
            check!(slept < time / 2, "a sleeper that is woken, not one of {slept:?}");
            Ok(())
        })?;
    }
    pair.greet()
}

pub(super) fn idle_no_cpu(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    // The threads of both need some time to notice that nothing is polled.
    thread::sleep(Duration::from_millis(50));
    let (before, ran_before) = (thread_switches()?, thread_time()?);
    thread::sleep(Duration::from_millis(500));
    let (woken, ran) = (thread_switches()? - before, thread_time()?.saturating_sub(ran_before));
    check!(
        woken <= 20,
        "threads of idle endpoints that sleep, not {woken} wake-ups in half a second"
    );
    // One that never sleeps is not woken.
    let max = Duration::from_millis(50);
    check!(ran <= max, "threads of idle endpoints that sleep, not {ran:?} of half a second");
    pair.greet()
}

/// How often threads of endpoints were woken so far.
fn thread_switches() -> Result<u64, Failed> {
    sum_of_threads("status", |text| {
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    })
}

/// How long threads of endpoints ran so far; nothing, if the kernel does not count it.
fn thread_time() -> Result<Duration, Failed> {
    let nanos = sum_of_threads("schedstat", |text| text.split(' ').next()?.parse().ok())?;
    Ok(Duration::from_nanos(nanos))
}

fn sum_of_threads(file: &str, read: impl Fn(&str) -> Option<u64>) -> Result<u64, Failed> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim() == "fabric-rdm" {
            let text = std::fs::read_to_string(path.join(file)).unwrap_or_default();
            sum += read(&text).unwrap_or(0);
        }
    }
    Ok(sum)
}

pub(super) fn fork_child_refused(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let inbox = a.buffer(8)?;
    let said = in_child(rig.scaled(Duration::from_secs(10)), || {
        let posts = [
            a.post_send(*to_b, &Send::inject(b"x")).map(drop),
            a.post_recv(&Recv::new(Pattern::untagged(), &inbox)).map(drop),
        ];
        let calls = [
            a.poll_one().map(drop),
            a.insert(b.address()).map(drop),
            a.remove(*to_b),
            a.revive(*to_b),
            a.poll_event().map(drop),
            a.probe(&Pattern::untagged()).map(drop),
        ];
        let refused = posts.iter().filter(|post| post.is_err()).count()
            + calls.iter().filter(|call| matches!(call, Err(Error::InvalidState(_)))).count();
        format!("{refused} of {}", posts.len() + calls.len())
    })?;
    check_eq!(said, "8 of 8", "calls that are refused in a child");
    pair.greet()
}
