//! What happens while the application makes no call.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmPair};
use crate::sys::in_child;

pub(super) fn sleeping_receiver_matches(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let source = a.patterned(1 << 20, 0)?;
    let time = rig.scaled(Duration::from_secs(10));
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
    a.counter(Kind::Send).wait_for(3, 0, Some(rig.scaled(Duration::from_secs(10))))?;
    Ok(())
}

pub(super) fn idle_no_cpu(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    // The threads of both need some time to notice that nothing is polled.
    thread::sleep(Duration::from_millis(50));
    let before = thread_switches()?;
    thread::sleep(Duration::from_millis(500));
    let woken = thread_switches()? - before;
    check!(
        woken <= 20,
        "threads of idle endpoints that sleep, not {woken} wake-ups in half a second"
    );
    pair.greet()
}

/// How often threads of endpoints were woken so far.
fn thread_switches() -> Result<u64, Failed> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim() != "fabric-rdm" {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
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
