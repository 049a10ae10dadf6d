//! How the processes of a job find each other: each puts a small blob, such as the address of its endpoint, under a key, and
//! gets those of the others.
//!
//! A process learns by [`Launch`] what it was started as, and joins its job: at a server, `fabric rendezvous`, in a directory,
//! at etcd, or with others of the same process. What it has then is an [`Exchange`], and works the same everywhere.
//!
//! | [`Rendezvous`] | what it takes | how it learns that a rank was killed |
//! |---|---|---|
//! | `tcp://HOST:PORT` | a server: `fabric rendezvous`, or [`Server`] in any process | at once; within 25 s if its host is gone |
//! | `dir:///PATH` | a directory that all hosts see | not: the time-out names the ranks that did not come |
//! | `etcd://HOST:PORT` | etcd, and the crate's feature `etcd` | within 15 s |
//! | [`InProcess`] | nothing | an exchange that is dropped by a panic is lost at once |
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//! use fabric_exchange::{InProcess, Job, Membership};
//!
//! let patience = Duration::from_secs(10);
//! let place = InProcess::new();
//! let ranks: Vec<_> = (0..3)
//!     .map(|rank| {
//!         let place = place.clone();
//!         thread::spawn(move || {
//!             let job = Job::new("example", 0, 3)?;
//!             let exchange = place.join(&Membership::new(job, rank)?)?;
//!             // By key ...
//!             exchange.put(&format!("greeting of {rank}"), b"hello")?;
//!             let next = (rank + 1) % 3;
//!             assert_eq!(exchange.get(&format!("greeting of {next}"), patience)?, b"hello");
//!             // ... or all at once.
//!             let all = exchange.all_gather(&[rank as u8], patience)?;
//!             exchange.barrier("done", patience)?;
//!             exchange.leave()?;
//!             Ok::<_, fabric_exchange::ExchangeError>(all)
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().unwrap()?, [[0], [1], [2]]);
//! }
//! # Ok::<(), fabric_exchange::ExchangeError>(())
//! ```
//!
//! A process that was started by a launcher, such as `srun`, does it in three lines:
//!
//! ```no_run
//! # use fabric_exchange::{JoinOptions, Launch};
//! let launch = Launch::detect()?;
//! eprintln!("{launch}"); // what was chosen, and from which variables
//! let exchange = launch.join(&JoinOptions::from_env()?)?;
//! # Ok::<(), fabric_exchange::ExchangeError>(())
//! ```

#![forbid(unsafe_code)]

mod board;
mod channel;
mod client;
mod error;
mod exchange;
mod in_process;
mod job;
mod jobs;
mod keepalive;
mod launch;
mod limits;
mod random;
mod rendezvous;
mod server;
mod stored;
mod wire;

pub use fabric_core::{SECRET_FILE, Secret, Variable};

pub use error::{ExchangeError, MissingRanks, Result};
pub use exchange::Exchange;
pub use in_process::InProcess;
pub use job::{Job, MAX_JOB_NAME_BYTES, MAX_KEY_BYTES, MAX_RANKS, Membership};
pub use launch::Launch;
pub use limits::Limits;
pub use rendezvous::{DEFAULT_PORT, JoinOptions, Rendezvous};
pub use server::{RunningServer, Server, ServerOptions};
