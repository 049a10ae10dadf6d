//! Latency and bandwidth, and whether messages come as they were sent.

use std::time::Instant;

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Completion, Kind, Peer, PeerEvent, PostError, Recv, Send};

use crate::end::End;
use crate::{Args, Outcome};

/// Round trips before those that count.
const WARM_UP: usize = 1000;
/// Round trips whose bytes are compared.
const COMPARED: u64 = 100;

impl End {
    /// Waits for a message; gives its sender. `None`: the other process is gone.
    fn await_message(&self) -> Outcome<Option<Peer>> {
        let mut out = [Completion::default(); 8];
        loop {
            let done = self.poll(&mut out)?;
            if let Some(done) = done.iter().find(|done| done.kind == Kind::Recv) {
                return Ok(done.peer);
            }
            if done.is_empty() && self.is_left()? {
                return Ok(None);
            }
        }
    }

    fn is_left(&self) -> Outcome<bool> {
        Ok(matches!(self.endpoint.poll_event()?, Some(PeerEvent::Down(..))))
    }
}

/// Half of a round trip, in microseconds: the median of all, as `ucx_perftest` has it.
pub(crate) fn latency(args: &Args) -> Outcome<f64> {
    let end = End::new(args)?;
    end.post_recv()?;
    let _other = args.spawn(end.endpoint.address())?;
    let Some(peer) = end.await_message()? else { return Err("the other process has left".into()) };
    end.send_unexpected(args, peer)?;
    let (mut times, begin) = (Vec::with_capacity(1 << 20), Instant::now());
    while times.len() < 2 * WARM_UP || begin.elapsed() < args.time() {
        let start = Instant::now();
        // The answer is far: its receive is posted meanwhile, as the other libraries' programs do.
        end.send(peer)?;
        end.post_recv()?;
        end.await_message()?;
        times.push(start.elapsed());
    }
    let times = &mut times[WARM_UP..];
    times.sort();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6 / 2.0)
}

/// The other end of [`latency`].
pub(crate) fn echo(args: &Args, address: &Address) -> Outcome {
    let end = End::new(args)?;
    let peer = end.endpoint.insert(address)?;
    end.send_unexpected(args, peer)?;
    end.post_recv()?;
    end.send(peer)?;
    while end.await_message()?.is_some() {
        end.send(peer)?;
        end.post_recv()?;
    }
    Ok(())
}

/// Bytes a second.
pub(crate) fn bandwidth(args: &Args) -> Outcome<f64> {
    let end = End::new(args)?;
    end.post_recv()?;
    let _other = args.spawn(end.endpoint.address())?;
    let Some(peer) = end.await_message()? else { return Err("the other process has left".into()) };
    let mut out = [Completion::default(); 64];
    let (mut outstanding, mut sent, mut start) = (0, 0_u64, Instant::now());
    // As many as are under way go before the clock starts.
    let mut warm = u64::from(2 * args.depth);
    while warm > 0 || start.elapsed() < args.time() {
        while outstanding < args.depth {
            match end.endpoint.post_send(peer, &Send::new(&end.source).tag(2)) {
                // Short messages fill the window of those that have not met their receives.
                Err(PostError::Again(_)) => break,
                posted => drop(posted?),
            }
            outstanding += 1;
        }
        let done = end.poll(&mut out)?.len() as u32;
        outstanding -= done;
        match warm {
            0 => sent += u64::from(done),
            left => {
                warm = left.saturating_sub(done.into());
                start = Instant::now();
            }
        }
    }
    Ok(sent as f64 * args.size as f64 / start.elapsed().as_secs_f64())
}

/// The other end of [`bandwidth`].
pub(crate) fn take(args: &Args, address: &Address) -> Outcome {
    let end = End::new(args)?;
    let peer = end.endpoint.insert(address)?;
    let post = || end.endpoint.post_recv(&Recv::new(Pattern::tagged(2).from(peer), &end.inbox));
    for _ in 0..2 * args.depth {
        post()?;
    }
    end.send(peer)?;
    let mut out = [Completion::default(); 64];
    while !end.is_left()? {
        let count = end.endpoint.poll(&mut out)?;
        // They end when the sender has left.
        for _ in out[..count].iter().filter(|done| done.is_ok()) {
            post()?;
        }
    }
    Ok(())
}

/// Round trips with every byte compared; gives the number of messages.
pub(crate) fn verify(args: &Args) -> Outcome<f64> {
    let end = End::new(args)?;
    end.post_recv()?;
    let _other = args.spawn(end.endpoint.address())?;
    let left = "the other process has left";
    let peer = end.await_message()?.ok_or(left)?;
    end.send_unexpected(args, peer)?;
    for number in 0..COMPARED {
        end.post_recv()?;
        end.write(2 * number)?;
        end.send(peer)?;
        end.await_message()?.ok_or(left)?;
        end.compare(2 * number + 1)?;
    }
    Ok((2 * COMPARED) as f64)
}

/// The other end of [`verify`].
pub(crate) fn verify_other(args: &Args, address: &Address) -> Outcome {
    let end = End::new(args)?;
    let peer = end.endpoint.insert(address)?;
    end.send_unexpected(args, peer)?;
    end.post_recv()?;
    end.send(peer)?;
    for number in 0.. {
        if end.await_message()?.is_none() {
            break;
        }
        end.compare(2 * number)?;
        end.post_recv()?;
        end.write(2 * number + 1)?;
        end.send(peer)?;
    }
    Ok(())
}
