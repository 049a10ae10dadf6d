//! Our own variables of a start, which go before those of launchers.

use fabric_core::Variable;

pub(super) const RANK: &str = "FABRIC_RANK";
pub(super) const SIZE: &str = "FABRIC_SIZE";
pub(super) const LOCAL_RANK: &str = "FABRIC_LOCAL_RANK";
pub(super) const JOB: &str = "FABRIC_JOB";
pub(super) const INCARNATION: &str = "FABRIC_INCARNATION";
pub(super) const RENDEZVOUS: &str = "FABRIC_RENDEZVOUS";

pub(super) const ALL: [Variable; 6] = [
    Variable::new(
        RANK,
        "which one this process is of its job: a whole number below the size",
        "what the launcher says: torchrun, Open MPI, PMIx, PMI, Slurm or Kubernetes",
    ),
    Variable::new(SIZE, "how many processes the job has (1 to 1048576)", "what the launcher says"),
    Variable::new(
        LOCAL_RANK,
        "which one this process is of those of the job on its host, from 0 on",
        "what the launcher says, if it does",
    ),
    Variable::new(
        JOB,
        "the name of the job, the same in all its processes and in no other job",
        "what the launcher says",
    ),
    Variable::new(
        INCARNATION,
        "how often the job has been started again: a whole number that grows",
        "what the launcher says, else 0",
    ),
    Variable::new(
        RENDEZVOUS,
        "where the processes of the job meet: tcp://HOST:PORT (`fabric rendezvous` serves there), dir:///PATH, or etcd://HOST:PORT",
        "under torchrun, its master's host with the port behind its own",
    ),
];
