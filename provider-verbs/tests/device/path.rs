//! Settings of the path and the way out: what is set is what the queue pair has, as libibverbs reports it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::time::Duration;

use fabric::{Access, CqAttr, Domain, Endpoint, EndpointBuilder, Error, Op};

use crate::bindings::{
    ibv_context, ibv_device, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask, ibv_qp_init_attr,
};
use crate::faults;
use crate::rig::{join, listen, open_builtin, take};

/// Only the objects of the provider that is built in have a way out.
fn open() -> Domain {
    open_builtin().unwrap()
}

/// A way out is used with libibverbs: as this process has it loaded.
type QueryQp =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
type GetDeviceName = unsafe extern "C" fn(*mut ibv_device) -> *const c_char;

fn attributes(endpoint: &Endpoint) -> ibv_qp_attr {
    // SAFETY: attributes are read, nothing else.
    let raw = unsafe { fabric::verbs::raw_endpoint(endpoint) }.unwrap();
    let (mut attr, mut init) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    let wanted = mask::IBV_QP_AV
        | mask::IBV_QP_TIMEOUT
        | mask::IBV_QP_RETRY_CNT
        | mask::IBV_QP_RNR_RETRY
        | mask::IBV_QP_MIN_RNR_TIMER;
    // SAFETY: the queue pair lives as long as the endpoint; both structures are written (ibv_query_qp(3)), and zero is a
    // value of each of their fields.
    unsafe {
        let ibv_query_qp = transmute::<*mut c_void, QueryQp>(faults::next(c"ibv_query_qp"));
        let answer =
            ibv_query_qp(raw.qp.cast(), attr.as_mut_ptr(), wanted.0 as i32, init.as_mut_ptr());
        assert_eq!(answer, 0, "ibv_query_qp");
        attr.assume_init()
    }
}

/// A connected pair whose first end has settings.
fn pair(
    domain: &Domain,
    settings: impl FnOnce(EndpointBuilder<'_>) -> EndpointBuilder<'_>,
) -> (Endpoint, Endpoint) {
    let queue = domain.completion_queue(1024).unwrap();
    let (from, to) = (
        settings(domain.endpoint()).build(&queue).unwrap(),
        domain.endpoint().build(&queue).unwrap(),
    );
    join(&listen(domain), &from, &to);
    (from, to)
}

pub(crate) fn settings_reach_the_queue_pair() {
    let domain = open();
    let (usual, _peer) = pair(&domain, |builder| builder);
    let usual = attributes(&usual);
    assert_eq!((usual.rnr_retry, usual.ah_attr.grh.traffic_class), (7, 0));
    let index = usual.ah_attr.grh.sgid_index;
    let (set, other) = pair(&domain, |builder| {
        let builder = builder.traffic_class(0x68).gid_index(index);
        let builder = builder.ack_timeout(Duration::from_millis(500)).retries(3);
        builder.rnr_timer(Duration::from_millis(5))
    });
    let (set, other) = (attributes(&set), attributes(&other));
    let grh = set.ah_attr.grh;
    assert_eq!((grh.traffic_class, grh.sgid_index), (0x68, index));
    // 4.096 us times 2 to the power of 17 is 537 ms; step 18 is 5.12 ms.
    assert_eq!((set.timeout, set.retry_cnt, set.min_rnr_timer), (17, 3, 18));
    // The other end has its own.
    let own = |attr: &ibv_qp_attr| (attr.timeout, attr.retry_cnt, attr.min_rnr_timer);
    assert_eq!(own(&other), own(&usual));

    // An entry that the table lacks.
    let queue = domain.completion_queue(512).unwrap();
    let error = domain.endpoint().gid_index(250).build(&queue).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("gid_index 250") && text.contains(&format!("{index} is ")), "{text}");
}

pub(crate) fn vectors_and_relaxed_ordering() {
    let domain = open();
    // Beyond the last interrupt from the beginning again.
    for vector in [0, 1, 1000] {
        let mut attr = CqAttr::new(512);
        attr.vector = Some(vector);
        let queue = domain.completion_queue_with(&attr).unwrap();
        let ends = [(); 2].map(|()| domain.endpoint().build(&queue).unwrap());
        join(&listen(&domain), &ends[0], &ends[1]);
        let room = domain.alloc(4096, Access::ALL | Access::RELAXED_ORDERING).unwrap();
        room.write_at(0, b"in any order").unwrap();
        let write = Op::write(room.slice(..12), room.remote().at(1024));
        ends[0].post(&write.delivery_complete()).unwrap();
        assert!(take(&queue, 1)[0].is_ok());
        assert_eq!(room.to_vec(1024..1036).unwrap(), b"in any order");
    }
}

pub(crate) fn the_way_out_leads_to_the_device() {
    let domain = open();
    // SAFETY: only a name is read.
    let raw = unsafe { fabric::verbs::raw_domain(&domain) }.unwrap();
    let context: *mut ibv_context = raw.context.as_ptr().cast();
    // SAFETY: the context lives as long as the domain, its device too; the name ends in a zero (ibv_get_device_name(3)).
    let name = unsafe {
        let name = faults::next(c"ibv_get_device_name");
        let ibv_get_device_name = transmute::<*mut c_void, GetDeviceName>(name);
        CStr::from_ptr(ibv_get_device_name((*context).device))
    };
    let device = domain.device().split('/').next().unwrap();
    assert_eq!((name.to_str().unwrap(), raw.port), (device, 1));
}
