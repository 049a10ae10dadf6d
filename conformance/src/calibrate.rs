//! How slow this machine is.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Round trips of one measurement.
const ROUNDS: u32 = 300;
/// What one takes on an ordinary, busy machine.
const NOMINAL: Duration = Duration::from_micros(60);
/// Beyond this a machine is broken rather than slow.
const MAX_FACTOR: f64 = 50.0;

/// The factor by which deadlines are stretched, at least 1: how much longer a fixed set of round trips between two
/// threads takes here than on an ordinary machine. Measured once, without any provider, so that a broken one
/// cannot stretch its own deadlines.
pub(crate) fn factor() -> f64 {
    static FACTOR: OnceLock<f64> = OnceLock::new();
    *FACTOR.get_or_init(factor_now)
}

/// The same, measured at this moment.
pub(crate) fn factor_now() -> f64 {
    let mut times: Vec<_> = (0..3).filter_map(|_| measure().ok()).collect();
    times.sort();
    // No loopback, no measurement; then the machine counts as ordinary.
    let Some(median) = times.get(times.len() / 2) else { return 1.0 };
    let factor = median.as_secs_f64() / (NOMINAL * ROUNDS).as_secs_f64();
    (factor.clamp(1.0, MAX_FACTOR) * 10.0).round() / 10.0
}

fn measure() -> std::io::Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let start = Instant::now();
    let mut byte = [7];
    for _ in 0..ROUNDS {
        near.write_all(&byte)?;
        near.read_exact(&mut byte)?;
    }
    let taken = start.elapsed();
    drop(near);
    // It ends with the connection; a panic there is impossible and would not matter.
    let _ = echo.join();
    Ok(taken)
}
