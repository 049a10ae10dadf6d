//! What happens when the process may open nothing more.

use crate::prelude::*;
use crate::sys::FewDescriptors;
use crate::usage::Usage;

/// More than any connection takes, domains included.
const MAX: usize = 200;

/// What the process may grow by.
const MAX_GROWTH: usize = 16 << 20;

pub(super) fn fd_exhaust(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    a.settle(&b)?;
    // What is opened once for the process is there then.
    make_all(rig)?;
    rig.eventually(|| Ok(make_all(rig)?))?;
    let before = Usage::at_rest()?;
    let mut free = 0;
    loop {
        check!(free < MAX, "a connection with {MAX} descriptors");
        let few = FewDescriptors::leave(free)?;
        let made = make_all(rig);
        // Connections that stand need none.
        a.settle(&b)?;
        drop(few);
        free += 1;
        rig.expect_no_more(&before, |held| held.resident_bytes, MAX_GROWTH)?;
        match made {
            Ok(()) => break,
            // `TimedOut` if it was the other side that had none.
            Err(Error::NoMemory(_) | Error::TimedOut(_)) => {}
            // Looking at the devices takes some, too; this says why none is usable.
            Err(Error::NoProvider(why)) if names_cause(&why.to_string()) => {}
            Err(error) => fail!(format!("NoMemory with {free} descriptors"), "{error:?}"),
        }
    }
    check!(free > 1, "making domains, queues and connections to take descriptors");
    request_comes_later(rig)?;
    a.settle(&b)?;
    make_all(rig)?;
    Ok(())
}

/// Whether it says that descriptors have run out, be it in the system's words.
fn names_cause(text: &str) -> bool {
    text.contains("descriptors") || text.contains("open files")
}

/// Makes a domain and everything in it, connects, and lets all of it go.
fn make_all(rig: &Rig) -> fabric::Result<()> {
    let patience = rig.scaled(Duration::from_millis(300));
    let domain = rig.target().open()?;
    let queue = domain.completion_queue(64)?;
    let make =
        || domain.endpoint().send_depth(4).recv_depth(4).connect_timeout(patience).build(&queue);
    let (near, far) = (make()?, make()?);
    let listener = domain.listen(rig.addr(&domain))?;
    near.connect(listener.local_addr(), &[])?;
    let mut request = listener.accept(Some(patience))?;
    request.accept(&far, &[])?;
    near.wait_connected(Some(patience))?;
    far.wait_connected(Some(patience))?;
    far.recv(Slices::none(), 1)?;
    near.inject(b"", 1)?;
    for _ in 0..2 {
        queue.wait_one(Some(rig.scaled(Duration::from_secs(10))))?;
    }
    Ok(())
}

/// A request that finds the listener's side without a descriptor is not lost, if it waits long enough.
fn request_comes_later(rig: &Rig) -> Outcome {
    let listener = rig.listen(rig.domain_b())?;
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    for free in 0..MAX {
        let few = FewDescriptors::leave(free)?;
        let called = a.connect(listener.local_addr(), &[]);
        let early = listener.accept(Some(rig.scaled(Duration::from_millis(100))));
        drop(few);
        match called {
            Ok(()) => {
                let late = || listener.accept(Some(rig.scaled(Duration::from_secs(4))));
                let mut request = early.or_else(|_| late())?;
                request.accept(&b, &[])?;
                a.expect_connected()?;
                b.expect_connected()?;
                return a.settle(&b);
            }
            // It has not begun, and can begin later.
            Err(Error::NoMemory(_)) => {}
            Err(error) => fail!(format!("NoMemory with {free} descriptors"), "{error:?}"),
        }
    }
    fail!("a connect with descriptors enough", "NoMemory every time")
}
