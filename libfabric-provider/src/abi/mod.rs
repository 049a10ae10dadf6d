//! The types and constants of libfabric's interface, as version 1.17 has them. Later versions added fields at the ends only, and
//! every table of functions has its size: what is here holds for all of them. Nothing here reads or writes more than this.
//! The test `layout` compares all of it with the headers that are installed.

mod av;
mod base;
mod ep;
mod fid;
pub(crate) mod flags;
mod info;
#[cfg(test)]
mod layout;
mod provider;
mod queue;
mod transfer;

pub(crate) use av::*;
pub(crate) use base::*;
pub(crate) use ep::*;
pub(crate) use fid::*;
pub(crate) use info::*;
pub(crate) use provider::*;
pub(crate) use queue::*;
pub(crate) use transfer::*;
