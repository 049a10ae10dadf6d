// Two connected endpoints in one process, which examples in the documentation of `fabric` use, hidden.

use std::time::Duration;

use fabric::{CompletionQueue, Domain, Endpoint, Hints, Result};

#[allow(dead_code)]
pub struct End {
    pub domain: Domain,
    pub queue: CompletionQueue,
    pub endpoint: Endpoint,
}

#[allow(dead_code)]
pub const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

fn end() -> Result<End> {
    let domain = Domain::open(&Hints::default())?;
    let queue = domain.completion_queue(1024)?;
    let endpoint = domain.endpoint().build(&queue)?;
    Ok(End { domain, queue, endpoint })
}

#[allow(dead_code)]
pub fn pair() -> Result<(End, End)> {
    let (a, b) = (end()?, end()?);
    let listener = b.domain.listen((b.domain.info().addresses[0], 0).into())?;
    a.endpoint.connect(listener.local_addr(), b"")?;
    listener.accept(TIMEOUT)?.accept(&b.endpoint, b"")?;
    a.endpoint.wait_connected(TIMEOUT)?;
    b.endpoint.wait_connected(TIMEOUT)?;
    Ok((a, b))
}
