//! Our own variables of a start, which go before those of launchers.

/// An environment variable that [`Launch`](crate::Launch) reads, beside those of launchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchVariable {
    /// Its name.
    pub name: &'static str,
    /// What it does, and the values it takes.
    pub meaning: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
}

pub(super) const RANK: &str = "FABRIC_RANK";
pub(super) const SIZE: &str = "FABRIC_SIZE";
pub(super) const LOCAL_RANK: &str = "FABRIC_LOCAL_RANK";
pub(super) const JOB: &str = "FABRIC_JOB";
pub(super) const INCARNATION: &str = "FABRIC_INCARNATION";
pub(super) const RENDEZVOUS: &str = "FABRIC_RENDEZVOUS";

pub(super) const ALL: [LaunchVariable; 6] = [
    LaunchVariable {
        name: RANK,
        meaning: "which one this process is of its job: a whole number below the size",
        default: "what the launcher says: torchrun, Open MPI, PMIx, PMI, Slurm or Kubernetes",
    },
    LaunchVariable {
        name: SIZE,
        meaning: "how many processes the job has (1 to 1048576)",
        default: "what the launcher says",
    },
    LaunchVariable {
        name: LOCAL_RANK,
        meaning: "which one this process is of those of the job on its host, from 0 on",
        default: "what the launcher says, if it does",
    },
    LaunchVariable {
        name: JOB,
        meaning: "the name of the job, the same in all its processes and in no other job",
        default: "what the launcher says",
    },
    LaunchVariable {
        name: INCARNATION,
        meaning: "how often the job has been started again: a whole number that grows",
        default: "what the launcher says, else 0",
    },
    LaunchVariable {
        name: RENDEZVOUS,
        meaning: "where the processes of the job meet: tcp://HOST:PORT (`fabric rendezvous` serves there), dir:///PATH, or etcd://HOST:PORT",
        default: "under torchrun, its master's host with the port behind its own",
    },
];
