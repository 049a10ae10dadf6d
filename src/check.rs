//! Checks of what is posted: everything that can be known here is refused here, the same for all providers.

use std::sync::Arc;

use fabric_core::{
    Access, AtomicCall, AtomicOp, Capabilities, Error, RemoteSlice, Result, Segment, SendFlags,
    atomic,
};

use crate::endpoint::Endpoint;
use crate::op::{Op, Slices, What};
use crate::region::Slice;
use crate::slot::Keep;

impl Endpoint {
    #[inline]
    pub(crate) fn check_send(&self, op: &Op<'_>, len: usize) -> Result<()> {
        let name = op.what.name();
        let info = &self.domain.info;
        let (needs, may_write, may_tell) = match op.what {
            What::Send => (Capabilities::SEND, false, true),
            What::Write(_) => (Capabilities::RMA, true, true),
            What::Read(_) => (Capabilities::RMA, false, false),
            // Looked up below, in the matrix of operations and types.
            What::Atomic { .. } => (Capabilities::empty(), false, false),
        };
        let fits = len as u64 <= info.limits.message;
        let delivery = op.flags.contains(SendFlags::DELIVERY_COMPLETE) && !may_write;
        let immediate = op.immediate.is_some() && !may_tell;
        if !fits || !info.capabilities.contains(needs) || delivery || immediate {
            return Err(self.bad_send(name, len, needs, delivery));
        }
        match &op.what {
            What::Send => Ok(()),
            // Without bytes there is no access, and no peer checks one.
            What::Write(_) | What::Read(_) if len == 0 => Ok(()),
            What::Write(to) => to.check(name, len as u64, Access::REMOTE_WRITE),
            What::Read(from) => from.check(name, len as u64, Access::REMOTE_READ),
            What::Atomic { at, call, fetch, compares } => {
                if (call.op == AtomicOp::CompareSwap) != *compares {
                    return Err(Error::invalid(
                        name,
                        "compare_swap needs a value to compare with: make it by Op::compare_swap or \
                         Op::fetch_compare_swap",
                    ));
                }
                self.check_atomic(at, call, *fetch, len)
            }
        }
    }

    #[cold]
    fn bad_send(
        &self,
        name: &'static str,
        len: usize,
        needs: Capabilities,
        delivery: bool,
    ) -> Error {
        let info = &self.domain.info;
        let most = info.limits.message;
        if len as u64 > most {
            return Error::invalid(name, format!("{len} bytes; a message has at most {most}"));
        }
        let detail = if !info.capabilities.contains(needs) {
            format!("{} does not offer {}", info.device, needs.names())
        } else if delivery {
            "delivery-complete is for writes only".to_owned()
        } else {
            "only sends and writes carry immediate data".to_owned()
        };
        Error::unsupported(name, info.provider, detail)
    }

    fn check_atomic(
        &self,
        at: &RemoteSlice,
        call: &AtomicCall,
        fetch: bool,
        len: usize,
    ) -> Result<()> {
        const OP: &str = "atomic";
        let size = call.ty.size();
        if !self.domain.info.supports_atomic(call.op, call.ty) {
            let provider = self.domain.info.provider;
            let what = if atomic::is_defined(call.op, call.ty) {
                format!("{} has no atomics", self.domain.info.device)
            } else {
                format!("{} is not defined on {}", call.op, call.ty)
            };
            return Err(Error::unsupported(OP, provider, what));
        }
        if fetch && len != size {
            return Err(Error::invalid(
                OP,
                format!("the old value has {size} bytes, its slice {len}"),
            ));
        }
        at.check(OP, size as u64, Access::REMOTE_ATOMIC)?;
        if !at.addr().addr.is_multiple_of(size as u64) {
            let offset = at.offset();
            return Err(Error::invalid(
                OP,
                format!("offset {offset} is not aligned to {size} bytes"),
            ));
        }
        Ok(())
    }

    /// Checks local slices and appends them, with a reference to each region; gives the sum of the lengths.
    #[inline]
    pub(crate) fn add_slices(
        &self,
        name: &'static str,
        slices: &Slices<'_>,
        need: Access,
        most: usize,
        segments: &mut Vec<Segment>,
        keep: &mut Keep,
    ) -> Result<usize> {
        let mut total = 0usize;
        let before = segments.len();
        for slice in slices.as_slice() {
            let core = &slice.region.core;
            let fits =
                slice.offset.checked_add(slice.len).is_some_and(|end| end <= slice.region.len());
            if !fits || !core.access.contains(need) || !Arc::ptr_eq(&core.domain, &self.domain) {
                return Err(self.bad_slice(name, slice, need, fits));
            }
            if slice.len == 0 {
                continue;
            }
            if segments.len() - before == most {
                return Err(Error::invalid(
                    name,
                    format!("more than {most} segments, the endpoint's most"),
                ));
            }
            if !keep.has(core) {
                keep.add(core.clone());
                if core.is_closed() {
                    return Err(Error::state(name, "the region is closed"));
                }
            }
            total = total.saturating_add(slice.len);
            let (addr, key) = (core.addr_at(slice.offset), core.local_key);
            segments.push(Segment { addr, len: slice.len, key });
        }
        Ok(total)
    }

    #[cold]
    fn bad_slice(&self, name: &'static str, slice: &Slice<'_>, need: Access, fits: bool) -> Error {
        let (offset, len, size) = (slice.offset, slice.len, slice.region.len());
        Error::invalid(
            name,
            if !fits && len == usize::MAX {
                "the slice's range ends before it starts".to_owned()
            } else if !fits {
                format!("{len} bytes at offset {offset} do not fit a region of {size}")
            } else if !slice.region.core.access.contains(need) {
                let access = slice.region.core.access;
                format!("the local region has {access:?}; this needs {need:?}")
            } else {
                "the local region is of another domain".to_owned()
            },
        )
    }

    pub(crate) fn add_inject(
        &self,
        name: &'static str,
        bytes: &[u8],
        segments: &mut Vec<Segment>,
    ) -> Result<usize> {
        let most = self.attr.inject;
        if bytes.len() > most {
            let len = bytes.len();
            return Err(Error::invalid(
                name,
                format!("{len} bytes to inject; the endpoint takes {most}"),
            ));
        }
        if !bytes.is_empty() {
            segments.push(Segment { addr: bytes.as_ptr().cast_mut(), len: bytes.len(), key: 0 });
        }
        Ok(bytes.len())
    }
}
