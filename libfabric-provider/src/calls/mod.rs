//! What C calls: the tables of functions, and the functions. Each turns its arguments into what `objects` takes, and a result into a
//! number; what it relies on is what the manual page of its call asks of the caller.

mod any_ep;
mod av;
mod cm;
mod cntr;
mod common;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod mr;
mod msg;
mod options;
mod pep;
mod provider;
mod rdm;
mod refusals;
mod rma;
mod shared_context;
