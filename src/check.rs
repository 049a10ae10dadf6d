//! Checks of what is posted: everything that can be known here is refused here, the same for all providers.

use fabric_core::{
    Access, AtomicCall, AtomicOp, Error, RemoteSlice, Result, Segment, SendOp, atomic, unlikely,
};

use crate::domain::DomainInner;
use crate::op::{Op, OpCode, OpSpec};

impl DomainInner {
    /// Checks an operation of `len` bytes; gives what the provider is to do.
    #[inline]
    pub(crate) fn check_send(
        &self,
        op: &Op<'_>,
        spec: &'static OpSpec,
        len: usize,
    ) -> Result<SendOp> {
        let info = &self.info;
        let fits = len as u64 <= info.limits.message;
        let taken = !op.flags.intersects(spec.forbidden_flags)
            & (spec.allows_immediate | op.immediate.is_none());
        if unlikely(!fits | !info.capabilities.contains(spec.required_caps) | !taken) {
            return Err(self.bad_send(op, spec, len));
        }
        match op.code {
            OpCode::Send => Ok(SendOp::Send { imm: op.immediate }),
            // Without bytes there is no access, and no peer checks one.
            OpCode::Write(to) => {
                if len > 0 {
                    to.check(spec.name, len as u64, Access::REMOTE_WRITE)?;
                }
                Ok(SendOp::Write { to: to.addr(), imm: op.immediate })
            }
            OpCode::Read(from) => {
                if len > 0 {
                    from.check(spec.name, len as u64, Access::REMOTE_READ)?;
                }
                Ok(SendOp::Read { from: from.addr() })
            }
            OpCode::Atomic { at, call, fetch, compares } => {
                if (call.op == AtomicOp::CompareSwap) != compares {
                    return Err(Error::invalid(
                        spec.name,
                        "compare_swap needs a value to compare with: make it by Op::compare_swap or \
                         Op::fetch_compare_swap",
                    ));
                }
                self.check_atomic(&at, &call, fetch, len)?;
                Ok(SendOp::Atomic { at: at.addr(), call, fetch })
            }
        }
    }

    #[cold]
    fn bad_send(&self, op: &Op<'_>, spec: &'static OpSpec, len: usize) -> Error {
        let info = &self.info;
        let max = info.limits.message;
        if len as u64 > max {
            return Error::invalid(spec.name, format!("{len} bytes; a message has at most {max}"));
        }
        let detail = if !info.capabilities.contains(spec.required_caps) {
            format!("{} does not offer {}", info.device, spec.required_caps.names())
        } else if op.flags.intersects(spec.forbidden_flags) {
            "delivery-complete is for writes only".to_owned()
        } else {
            "only sends and writes carry immediate data".to_owned()
        };
        Error::unsupported(spec.name, info.provider, detail)
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
        if !self.info.supports_atomic(call.op, call.ty) {
            let provider = self.info.provider;
            let what = if atomic::is_defined(call.op, call.ty) {
                format!("{} has no atomics", self.info.device)
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
}

/// Checks bytes to inject; an endpoint takes `max` of them.
#[inline]
pub(crate) fn check_inject(max: usize, name: &'static str, bytes: &[u8]) -> Result<usize> {
    let len = bytes.len();
    if len > max {
        return Err(Error::invalid(
            name,
            format!("{len} bytes to inject; the endpoint takes {max}"),
        ));
    }
    Ok(len)
}

/// The same, and appends them.
pub(crate) fn add_inject(
    max: usize,
    name: &'static str,
    bytes: &[u8],
    segments: &mut Vec<Segment>,
) -> Result<usize> {
    check_inject(max, name, bytes)?;
    if !bytes.is_empty() {
        segments.push(Segment::new(bytes.as_ptr().cast_mut(), bytes.len(), 0));
    }
    Ok(bytes.len())
}
