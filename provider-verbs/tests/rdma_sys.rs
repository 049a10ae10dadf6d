//! What is known to be wrong with rdma-sys 0.3.0, kept in sight: when a test here fails, `ffi.rs` has more to choose
//! from.

use std::mem::MaybeUninit;
use std::ptr;

use rdma_sys::{ib_uverbs_advise_mr_advice, ibv_advise_mr, ibv_pd, ibv_sge, verbs_context};

/// An extended verb of a driver.
unsafe extern "C" fn advise_mr(
    _pd: *mut ibv_pd,
    _advice: ib_uverbs_advise_mr_advice::Type,
    _flags: u32,
    _list: *mut ibv_sge,
    _len: u32,
) -> i32 {
    0
}

/// libibverbs marks an extended context by `abi_compat` of all ones, 64 of them; rdma-sys looks for 32.
#[test]
#[cfg(target_pointer_width = "64")]
fn extended_verbs_are_dead() {
    // SAFETY: numbers, pointers and optional functions; zero is a value of each.
    let mut context: verbs_context = unsafe { MaybeUninit::zeroed().assume_init() };
    context.advise_mr = Some(advise_mr);
    context.sz = size_of::<verbs_context>() as _;
    context.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    // SAFETY: as above.
    let mut pd: ibv_pd = unsafe { MaybeUninit::zeroed().assume_init() };
    pd.context = &raw mut context.context;
    // SAFETY: the context's only function is the one above, which touches nothing.
    let answer = unsafe { ibv_advise_mr(&raw mut pd, 0, 0, ptr::null_mut(), 0) };
    assert_eq!(answer, libc::EOPNOTSUPP, "0: the driver was asked");
}
