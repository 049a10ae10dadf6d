//! What a server permits.

use std::time::Duration;

use fabric_core::Secret;

use crate::limits::Limits;

/// What a server permits. Each bound holds for all clients together, unless it says otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The secret that every client has to prove, and the server to it. Without one each host that reaches the server may join
    /// any job.
    pub secret: Option<Secret>,
    /// The bounds of each job.
    pub limits: Limits,
    /// Jobs at a time: 256. For one more the job that has had no member for longest is forgotten.
    pub max_jobs: usize,
    /// Bytes of the blobs and barriers of all jobs, as `limits` counts them: 1 GiB. For more of them jobs that have no member are
    /// forgotten, likewise.
    pub max_bytes: u64,
    /// Members at a time, of all jobs: 16384. Each takes a descriptor.
    pub max_members: usize,
    /// Connections at a time that have not joined yet: 256. One more ends the oldest of the network that has most.
    pub max_strangers: usize,
    /// How long a client may take from connecting until it has joined: 10 s.
    pub join_time: Duration,
    /// How long a job is kept that has no member here, though not every rank has come: 10 min, unless its room is needed. A job that
    /// every rank has left is forgotten at once.
    pub keep_time: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            secret: None,
            limits: Limits::default(),
            max_jobs: 256,
            max_bytes: 1 << 30,
            max_members: 16384,
            max_strangers: 256,
            join_time: Duration::from_secs(10),
            keep_time: Duration::from_secs(600),
        }
    }
}
