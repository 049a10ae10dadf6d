//! Calls of address vectors (`fi_av(3)`).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use super::common::{close, put_address};
use crate::abi::flags::{
    FI_ADDR_UNSPEC, FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC, FI_EBADFLAGS, FI_MORE, FI_SYMMETRIC,
    FI_SYNC_ERR,
};
use crate::abi::{FiAvAttr, Fid, FidAv, FidDomain, Ops, OpsAv};
use crate::discovery::address;
use crate::discovery::owned::text;
use crate::entry::{entry, handle_ops, no_control, refused};
use crate::errno::Errno;
use crate::handle::{fid, object, open};
use crate::objects::av::AddressVector;
use crate::objects::domain::Domain;

// To an event queue: what is inserted is there when the call returns, so there are no events.
static FID_OPS: Ops = handle_ops(close::<AddressVector>, bind, no_control);

static OPS: OpsAv = OpsAv {
    size: size_of::<OpsAv>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: refused,
};

/// `fi_av_open`
pub(super) unsafe extern "C" fn open_vector(
    domain: *mut FidDomain,
    attr: *mut FiAvAttr,
    vector: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a domain of ours, attributes or null, a place for a handle.
        unsafe {
            let domain = object::<Domain>(domain)?;
            let place = vector.as_mut().ok_or(Errno::INVALID)?;
            if let Some(attr) = attr.as_mut() {
                // None is shared by processes, reports by events, or has addresses of several contexts. How addresses are spread
                // is a hint.
                let is_other = attr.flags & !FI_SYMMETRIC != 0;
                if !attr.name.is_null() || is_other || attr.rx_ctx_bits != 0 {
                    return Err(Errno::NOT_THERE);
                }
                match attr.kind {
                    FI_AV_UNSPEC => attr.kind = FI_AV_TABLE,
                    FI_AV_MAP | FI_AV_TABLE => {}
                    _ => return Err(Errno::INVALID),
                }
            }
            *place = open(Arc::new(AddressVector::new(domain)), |_| FidAv {
                fid: fid::<AddressVector>(context, &FID_OPS),
                ops: &OPS,
            });
        }
        Ok(0)
    })
}

unsafe extern "C" fn bind(_: *mut Fid, _: *mut Fid, flags: u64) -> c_int {
    if flags == 0 { 0 } else { -libc::EINVAL }
}

/// Where the outcome of each insert goes.
struct Outcomes {
    /// Numbers, or null.
    numbers: *mut u64,
    /// Errors (`FI_SYNC_ERR`), or null.
    errors: *mut c_int,
}

impl Outcomes {
    /// # Safety
    /// `fi_av(3)`: the numbers are null, or as many as addresses; with `FI_SYNC_ERR` the context is as many errors.
    unsafe fn new(numbers: *mut u64, flags: u64, context: *mut c_void) -> Result<Self, Errno> {
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let has_errors = flags & FI_SYNC_ERR != 0;
        if has_errors && context.is_null() {
            return Err(Errno::INVALID);
        }
        let errors = if has_errors { context.cast() } else { std::ptr::null_mut() };
        Ok(Outcomes { numbers, errors })
    }

    /// How many were inserted: this one, or none.
    ///
    /// # Safety
    /// There is a place with this index in what is not null.
    unsafe fn put(&self, at: usize, outcome: Result<u64, Errno>) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            if !self.numbers.is_null() {
                *self.numbers.add(at) = outcome.unwrap_or(FI_ADDR_UNSPEC);
            }
            if !self.errors.is_null() {
                *self.errors.add(at) = outcome.err().map_or(0, |errno| errno.0);
            }
        }
        c_int::from(outcome.is_ok())
    }
}

unsafe extern "C" fn insert(
    vector: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    numbers: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a vector of ours, so many addresses one behind the other, and as many places for what comes of them.
        unsafe {
            let vector = object::<AddressVector>(vector)?;
            let outcomes = Outcomes::new(numbers, flags, context)?;
            if count > 0 && addresses.is_null() {
                return Err(Errno::INVALID);
            }
            let (mut inserted, mut next) = (0, Some(addresses));
            for at in 0..count {
                let found = next.and_then(|next| address::read(next, None));
                // Behind an address of an unknown family, no one knows where the next one is.
                next = next.zip(found).map(|(next, found)| next.byte_add(address::len(found)));
                let outcome = found.ok_or(Errno::INVALID).and_then(|place| vector.insert(place));
                inserted += outcomes.put(at, outcome);
            }
            Ok(inserted)
        }
    })
}

unsafe extern "C" fn insertsvc(
    vector: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    number: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a vector of ours, texts that end in zero, and a place for a number.
        unsafe {
            let vector = object::<AddressVector>(vector)?;
            let outcomes = Outcomes::new(number, flags, context)?;
            let (node, service) = (text(node), text(service));
            // A text of libfabric's for an address is all of it.
            let node = node.ok_or(Errno::INVALID)?;
            insert_named(vector, &outcomes, (node, 1), (service, 1))
        }
    })
}

// The counts are those of `fi_av_insertsym` in `fi_av(3)`: services of a node go before the next node.
unsafe extern "C" fn insertsym(
    vector: *mut FidAv,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    numbers: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a vector of ours, texts that end in zero, and as many places as nodes with as many services.
        unsafe {
            let vector = object::<AddressVector>(vector)?;
            let outcomes = Outcomes::new(numbers, flags, context)?;
            let (Some(node), Some(service)) = (text(node), text(service)) else {
                return Err(Errno::INVALID);
            };
            insert_named(vector, &outcomes, (node, nodes), (Some(service), services))
        }
    })
}

/// Inserts so many nodes from the first, and so many services of each; says how many were inserted.
///
/// # Safety
/// There are places for as many outcomes.
unsafe fn insert_named(
    vector: &AddressVector,
    outcomes: &Outcomes,
    (node, nodes): (&CStr, usize),
    (service, services): (Option<&CStr>, usize),
) -> Result<c_int, Errno> {
    let count = nodes.checked_mul(services).and_then(|count| c_int::try_from(count).ok());
    count.ok_or(Errno::INVALID)?;
    let mut inserted = 0;
    for at in 0..nodes {
        let name = address::node_behind(node, at as u64).ok_or(Errno::INVALID);
        let first = name.and_then(|name| address::resolve(Some(&name), service, (0, false, false)));
        for further in 0..services {
            let place = first.and_then(|first| {
                let port = usize::from(first.port()).checked_add(further);
                let port = port.and_then(|port| u16::try_from(port).ok());
                Ok(SocketAddr::new(first.ip(), port.ok_or(Errno::INVALID)?))
            });
            let outcome = place.and_then(|place| vector.insert(place));
            // SAFETY: the caller's promise.
            inserted += unsafe { outcomes.put(at * services + further, outcome) };
        }
    }
    Ok(inserted)
}

unsafe extern "C" fn remove(
    vector: *mut FidAv,
    numbers: *mut u64,
    count: usize,
    flags: u64,
) -> c_int {
    entry(|| {
        if flags != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        if count > 0 && numbers.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: a vector of ours, and so many numbers.
        unsafe {
            let vector = object::<AddressVector>(vector)?;
            for at in 0..count {
                vector.remove(*numbers.add(at))?;
            }
        }
        Ok(0)
    })
}

unsafe extern "C" fn lookup(
    vector: *mut FidAv,
    number: u64,
    to: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: a vector of ours, and as many bytes as the number says.
    let found = || unsafe {
        match put_address(object::<AddressVector>(vector)?.lookup(number)?, to, len) {
            // The length says what is missing (fi_av(3), `fi_av_lookup`).
            Err(Errno(crate::abi::flags::FI_ETOOSMALL)) => Ok(0),
            other => other,
        }
    };
    entry(found)
}

/// As libfabric writes such addresses: `fi_sockaddr_in://192.0.2.1:7471`.
fn written(place: SocketAddr) -> String {
    let family = if place.is_ipv4() { "fi_sockaddr_in" } else { "fi_sockaddr_in6" };
    format!("{family}://{place}")
}

unsafe extern "C" fn straddr(
    _: *mut FidAv,
    from: *const c_void,
    to: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    entry(|| {
        // SAFETY: `fi_av(3)`: a whole address, and as many bytes as the number says.
        unsafe {
            let len = len.as_mut().ok_or(Errno::INVALID)?;
            let place = address::read(from, None).ok_or(Errno::INVALID)?;
            let text = CString::new(written(place)).map_err(|_| Errno::INVALID)?;
            let needed = text.count_bytes() + 1;
            if !to.is_null() && *len > 0 {
                libc::strncpy(to, text.as_ptr(), *len);
                *to.add(*len - 1) = 0;
            }
            *len = needed;
        }
        Ok(to.cast_const())
    })
}
