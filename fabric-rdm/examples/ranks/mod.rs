//! What the examples share: the ranks of a job, as a launcher started them, or else four of them in this process.

use std::error::Error;
use std::thread;
use std::time::Duration;

use fabric::{Access, Domain, Hints, Region};
use fabric_exchange::{Exchange, InProcess, Job, JoinOptions, Launch, Membership};
use fabric_rdm::{Address, Endpoint, Peer, RdmAttr};

/// How long a rank waits for another one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// One rank: its endpoint, and the others by their ranks.
pub(crate) struct Rank {
    pub(crate) number: usize,
    pub(crate) endpoint: Endpoint,
    pub(crate) peers: Vec<Peer>,
    exchange: Exchange,
}

impl Rank {
    fn new(exchange: Exchange) -> Outcome<Self> {
        let domain = Domain::open(&Hints::default())?;
        let endpoint = Endpoint::new(&domain, &RdmAttr::default())?;
        let addresses = exchange.all_gather(&endpoint.address().to_bytes(), PATIENCE)?;
        let mut peers = Vec::new();
        for address in addresses {
            peers.push(endpoint.insert(&Address::from_bytes(&address)?)?);
        }
        Ok(Rank { number: exchange.rank() as usize, endpoint, peers, exchange })
    }

    /// Registered memory that messages can be sent from without a copy, and received into.
    pub(crate) fn memory(&self, len: usize) -> Outcome<Region> {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::GRANTS_ONLY;
        let plain = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let domain = self.endpoint.domain();
        // Not every device has grants.
        Ok(domain.alloc(len, rights).or_else(|_| domain.alloc(len, plain))?)
    }

    /// Waits for all ranks, and leaves: an endpoint that went earlier would be a loss to the others.
    pub(crate) fn leave(self) -> Outcome {
        self.exchange.barrier("the end", PATIENCE)?;
        Ok(self.exchange.leave()?)
    }
}

/// Runs a program as the rank that a launcher started, or as four ranks in threads.
pub(crate) fn run(name: &str, program: fn(Rank) -> Outcome) -> Outcome {
    if let Ok(launch) = Launch::detect()
        && launch.rendezvous().is_some()
    {
        return program(Rank::new(launch.join(&JoinOptions::from_env()?)?)?);
    }
    let (place, job) = (InProcess::new(), Job::new(name, 0, 4)?);
    let ranks: Vec<_> = (0..job.size())
        .map(|rank| {
            let (place, job) = (place.clone(), job.clone());
            thread::spawn(move || program(Rank::new(place.join(&Membership::new(job, rank)?)?)?))
        })
        .collect();
    ranks
        .into_iter()
        .try_for_each(|rank| rank.join().unwrap_or_else(|_| Err("a rank panicked".into())))
}
