//! `fi_getinfo`: which devices suit an application's hints, and what each offers.

pub(crate) mod address;
mod found;
mod list;
mod matching;
mod offer;
pub(crate) mod owned;
mod request;

pub(crate) use list::getinfo;
pub(crate) use offer::{
    CM_DATA_SIZE, FABRIC_NAME, FENCED_ATOMICS, FENCED_WRITES, ORDER_WITH_ATOMICS, PROVIDER_NAME,
    RDM_INJECT, default_depth,
};
pub(crate) use request::with_directions;
