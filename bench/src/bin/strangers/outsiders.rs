//! Strangers that cannot prove themselves: what their processes do until their input ends. Then they say how many there were.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fabric::{Catalog, Choice, Domain, Hints};

use crate::Outcome;

const PATIENCE: Duration = Duration::from_secs(5);
/// As private data.
const DATA: &[u8] = &[7; 16];

/// So many at a time go through a handshake, as far as they get.
pub(crate) fn fail_to_prove(to: SocketAddr, count: usize) -> Outcome {
    let domain = domain()?;
    let queue = domain.completion_queue(1024)?;
    until_input_ends(count, || {
        let endpoint = domain.endpoint().build(&queue)?;
        endpoint.connect(to, DATA)?;
        if endpoint.wait_connected(Some(PATIENCE)).is_ok() {
            eprintln!("strangers: one that cannot prove itself is let in");
        }
        Ok(())
    })
}

/// So many at a time say how a handshake begins, always in the same words, and leave with the first of the answer.
pub(crate) fn repeat(to: SocketAddr, count: usize) -> Outcome {
    let begin = first_words()?;
    until_input_ends(count, || {
        let mut stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&begin)?;
        // It may be none.
        let _ = stream.read(&mut [0; 64]);
        Ok(())
    })
}

/// What a client says before it is answered.
fn first_words() -> Outcome<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let domain = domain()?;
    let queue = domain.completion_queue(1024)?;
    let endpoint = domain.endpoint().build(&queue)?;
    endpoint.connect(listener.local_addr()?, DATA)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut words = Vec::new();
    // It ends with the time.
    let _ = stream.read_to_end(&mut words);
    Ok(words)
}

fn domain() -> Outcome<Domain> {
    Ok(Catalog::builtin().open_with(&Choice::only("tcp"), &Hints::default())?)
}

fn until_input_ends(count: usize, one: impl Fn() -> Outcome + Sync) -> Outcome {
    let (over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // Those that are shut out at once are among them.
                    let _ = one();
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ended = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
        ended
    })?;
    println!("{}", asked.into_inner());
    Ok(())
}
