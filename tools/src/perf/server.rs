//! The end that serves: waits for a client, does what its plans say, one after the other, and waits for the next.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::control::{Control, Done, Ready, Reply, Request};
use super::plan::{Mode, Plan};
use super::problem::{Outcome, Problem, describe};
use super::side::{Lane, PATIENCE, Side, remote};
use super::threads::{first_failure, join};
use super::waiter::Waiter;
use super::worker::Worker;
use super::{process, raw};

/// A client may be that slow between two plans.
const BETWEEN: Duration = Duration::from_secs(300);

/// Serves until it is killed, or one client.
pub(crate) fn serve(address: SocketAddr, once: bool) -> Outcome {
    let listener = TcpListener::bind(address)
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    println!("fabric perf listens on {}", listener.local_addr()?);
    if once {
        return client(wait_for_one(&listener)?);
    }
    loop {
        let served = listener.accept().map_err(Problem::from).and_then(|(stream, peer)| {
            eprintln!("{peer} came");
            client(Control::over(stream)?)
        });
        match served {
            Ok(()) => eprintln!("it left"),
            Err(error) => {
                eprintln!("error: {error}");
                // Where descriptors have run out the next one fails as well, for a while.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// A server that was started for one client is no process that stays for ever if none comes.
fn wait_for_one(listener: &TcpListener) -> Outcome<Control> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Control::over(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if start.elapsed() > PATIENCE {
                    return Err("no client came".into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn client(mut control: Control) -> Outcome {
    // The client leaves first: what this end closed early would look to it like a failure.
    let mut last = None;
    while let Some(request) = control.hear_or_end(Some(BETWEEN))? {
        let Request::Run(plan, region) = request;
        drop(last.take());
        let outcome = plan.check().and_then(|()| match plan.raw {
            true => raw::serve(&plan, &mut control).map(|done| (done, None)),
            false => run(&plan, &region, &mut control).map(|(done, side)| (done, Some(side))),
        });
        match outcome {
            Ok((done, side)) => {
                control.say(&Reply::Done(done))?;
                last = side;
            }
            Err(error) => {
                // It may be gone, which may be the very error.
                let _ = control.say(&Reply::Failed(describe(&error)));
                return Err(error);
            }
        }
    }
    Ok(())
}

fn run(plan: &Plan, region: &[u8], control: &mut Control) -> Outcome<(Done, Side)> {
    let address = control.local_addr()?.ip().to_canonical();
    let mut side = Side::new(plan, address)?;
    let listener = side.domain.listen(SocketAddr::new(address, 0))?;
    let secret = RandomState::new().build_hasher().finish();
    control.say(&Reply::Ready(Ready {
        address: listener.local_addr(),
        region: side.region.remote().to_bytes().to_vec(),
        secret,
        provider: side.domain.provider().to_owned(),
    }))?;
    side.accept(plan, &listener, secret)?;
    drop(listener);
    control.say(&Reply::Connected { idle_bytes: side.idle_bytes })?;
    if plan.mode == Mode::Idle {
        return Ok((process::idle(plan), side));
    }
    let remote = remote(plan, region)?;
    let failed = AtomicBool::new(false);
    let work = |lane: &Lane| {
        let waiter = Waiter::new(&lane.queue, plan.target, None, &failed);
        let mut worker = Worker::new((plan, &side, lane), remote, waiter, true);
        let outcome = match plan.mode {
            Mode::Latency if plan.op.is_one_way() => worker.echo(),
            _ => worker.sink(),
        };
        outcome.inspect_err(|_| failed.store(true, Ordering::Relaxed))
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = side
            .lanes
            .iter()
            .map(|lane| scope.spawn(|| work(lane).map_err(|problem| describe(&problem))))
            .collect();
        threads.into_iter().map(join).collect()
    });
    first_failure(outcomes)?;
    Ok((Done::default(), side))
}
