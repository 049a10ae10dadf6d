//! The conformance suite of [`fabric`]: what every provider promises, as cases that can be run on it.
//!
//! An application sees no difference between providers but time and by what their [`Info`](fabric::Info) declares.
//! Each [`Case`](prelude::Case) here is one observable rule of that promise. It runs on a [`Rig`](prelude::Rig): two domains on one device,
//! with connected endpoints, guarded buffers and deadlines. What a case needs is data ([`Needs`](prelude::Needs)): the runner
//! reports `unsupported`, with what is missing, for a provider that does not offer it; a case never decides that
//! itself.
//!
//! The program `fabric-conformance` runs the cases on the providers of this machine; `conformance::main` is that program for any
//! [`Catalog`](fabric::Catalog). Tests can run single cases, on deliberately broken providers too:
//!
//! ```no_run
//! use std::sync::Arc;
//! use conformance::{Options, Status, Target};
//!
//! # fn f(broken: impl fabric::provider::Provider) -> Result<(), Box<dyn std::error::Error>> {
//! let catalog = Arc::new(fabric::Catalog::empty().add(broken)?);
//! let target = Target::find(&catalog, "broken", None)?;
//! let case = conformance::case("protection.prefix_ok").ok_or("no such case")?;
//! assert_eq!(conformance::run_case(&target, case, &Options::default()).status, Status::Fail);
//! # Ok(()) }
//! ```
//!
//! # How a case is run
//! - On a thread of its own, with a time limit. A case that hangs fails, with a dump of where its endpoints and
//!   domains stand; its thread is abandoned, and the run goes on. A panic is a failure too.
//! - Initiator and peer never share a domain. Waiting on one end polls the queue of that end alone, so that
//!   progress of the other is the provider's own.
//! - Every wait has a deadline. Deadlines scale with a factor measured at the start, so that a slow machine (an
//!   emulated guest) is not a failing one.
//! - Whatever is random comes from the seed, which is in the report, and from the case's name: one case alone
//!   sees the same numbers as in a full run.
//!
//! # What providers are compared by
//! What a case takes from the API is its [`Transcript`]: kinds, statuses, lengths, immediates and contexts of
//! completions, one sequence for each endpoint and side, and one of events for each domain; no times, keys or ports.
//! The ends of a rig record it. [`Matrix::merge`] puts the runs of several providers side by side, of one process or
//! of several, and compares transcripts: they are equal but for the [`Freedom`](prelude::Freedom) that a case states.
//!
//! # Cases
#![doc = include_str!("../CASES.md")]
#![deny(unsafe_code)] // allowed in `sys` and `remote::provider` alone

mod arithmetic;
mod authority;
mod calibrate;
mod case;
mod cases;
mod check;
mod choose;
mod done;
mod element;
mod end;
mod environment;
mod forge;
mod freedom;
mod guarded;
mod linear;
mod linkcontrol;
mod matrix;
mod merge;
mod options;
mod pattern;
pub mod prelude;
#[cfg(feature = "program")]
mod program;
#[doc(hidden)] // for `fabric-conformance fuzz`
pub mod random;
mod rdm;
mod recorded;
mod recorder;
mod remote;
mod report;
mod rig;
mod runner;
mod setup;
#[allow(unsafe_code)] // fork, mmap: the one place for it
mod sys;
mod target;
mod transcript;
mod usage;
mod watch;

pub use case::LinkFault;
pub use cases::{case, cases};
pub use check::Place;
#[doc(hidden)] // the macros' own
pub use check::{Failed, difference as __difference, show as __show};
pub use environment::Environment;
pub use forge::MISALIGN;
pub use linkcontrol::{BrokenLink, LinkControl};
pub use matrix::{Cell, Column, Matrix, Row, Totals, Verdict};
pub use merge::MergeError;
#[doc(hidden)] // for `fabric-conformance --list`
pub use options::select;
pub use options::{Options, RunError, Wanted};
#[cfg(feature = "program")]
pub use program::main;
pub use remote::{Peer, Process, Server};
pub use report::{CaseResult, Counts, FORMAT, PeerEntry, ProviderEntry, Report, Status, Summary};
pub use runner::{Progress, run, run_case};
pub use target::{Level, Target};
pub use transcript::{Difference, Sequence, Transcript};
