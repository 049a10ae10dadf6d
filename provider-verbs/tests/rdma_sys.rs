//! What `src/ffi/bindings` says of C beside what `rdma-sys` says, which is bound from the headers of this machine: sizes,
//! alignments, offsets and types of all fields, and constants. The functions' types the compiler compares, where the feature
//! `rdma-sys` fills the table of `src/ffi/functions.rs`.
//!
//! And what is known to be wrong with rdma-sys 0.3.0, kept in sight: when that fails, the provider has more to choose from.

#[path = "../src/ffi/bindings/mod.rs"]
#[macro_use]
mod bindings;

use std::any::type_name;
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use rdma_sys::{ib_uverbs_advise_mr_advice, ibv_advise_mr, verbs_context};

/// A field's size and type.
fn field<T, F>(_: fn(*const T) -> *const F) -> (usize, String) {
    (size_of::<F>(), plain(type_name::<F>()))
}

/// A type's name without its paths.
fn plain(name: &str) -> String {
    name.split("::").fold(String::new(), |mut plain, piece| {
        let path = |c: char| c.is_alphanumeric() || c == '_';
        plain.truncate(plain.trim_end_matches(path).len());
        plain + piece
    })
}

/// Compares types, all their fields: a structure's field that is not named does not compile. `untyped`: it need only be
/// as big, as it is a mutex, or a function that is never called.
macro_rules! compare {
    ($($kind:ident $name:ident { $($field:ident $(: $untyped:ident)?),* })*) => {$(
        #[test]
        fn $name() {
            exhaustive!($kind $name { $($field),* });
            type Ours = bindings::$name;
            type Theirs = rdma_sys::$name;
            assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
            assert_eq!(align_of::<Ours>(), align_of::<Theirs>());
            $(
                let what = stringify!($field);
                assert_eq!(offset_of!(Ours, $field), offset_of!(Theirs, $field), "{what}");
                // SAFETY: never called.
                let ours = field::<Ours, _>(|of| unsafe { &raw const (*of).$field });
                // SAFETY: as above.
                let theirs = field::<Theirs, _>(|of| unsafe { &raw const (*of).$field });
                if stringify!($($untyped)?) == "untyped" {
                    assert_eq!(ours.0, theirs.0, "{what}");
                } else {
                    assert_eq!(ours, theirs, "{what}");
                }
            )*
        }
    )*};
}

macro_rules! exhaustive {
    (struct $name:ident { $($field:ident),* }) => {
        let _: fn(bindings::$name) = |bindings::$name { $($field: _),* }| ();
        let _: fn(rdma_sys::$name) = |rdma_sys::$name { $($field: _),* }| ();
    };
    (union $name:ident { $($field:ident),* }) => {};
}

compare! {
    struct ibv_device_attr {
        fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver,
        max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd,
        max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap,
        max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
        max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge,
        max_pkeys, local_ca_ack_delay, phys_port_cnt
    }
    struct ibv_port_attr {
        state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
        pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
        active_speed, phys_state, link_layer, flags, port_cap_flags2
    }
    struct ibv_pd { context, handle }
    struct ibv_mr { context, pd, addr, length, handle, lkey, rkey }
    struct ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    struct ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
    struct ibv_srq_attr { max_wr, max_sge, srq_limit }
    struct ibv_srq_init_attr { srq_context, attr }
    struct ibv_qp_attr {
        qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
        cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining,
        max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
        alt_port_num, alt_timeout, rate_limit
    }
    struct ibv_sge { addr, length, lkey }
    struct ibv_recv_wr { wr_id, next, sg_list, num_sge }
    struct ibv_qp {
        context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex: untyped,
        cond: untyped, events_completed
    }
    struct ibv_srq {
        context, srq_context, pd, handle, mutex: untyped, cond: untyped, events_completed
    }
    struct ibv_comp_channel { context, fd, refcnt }
    struct ibv_cq {
        context, channel, cq_context, handle, cqe, mutex: untyped, cond: untyped, comp_events_completed,
        async_events_completed
    }
    struct _ibv_device_ops { _dummy1: untyped, _dummy2: untyped }
    struct ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
    struct ibv_context_ops {
        _compat_query_device: untyped, _compat_query_port: untyped, _compat_alloc_pd: untyped,
        _compat_dealloc_pd: untyped, _compat_reg_mr: untyped, _compat_rereg_mr: untyped,
        _compat_dereg_mr: untyped, alloc_mw: untyped, bind_mw: untyped, dealloc_mw: untyped,
        _compat_create_cq: untyped, poll_cq, req_notify_cq, _compat_cq_event: untyped,
        _compat_resize_cq: untyped, _compat_destroy_cq: untyped, _compat_create_srq: untyped,
        _compat_modify_srq: untyped, _compat_query_srq: untyped, _compat_destroy_srq: untyped,
        post_srq_recv, _compat_create_qp: untyped, _compat_query_qp: untyped,
        _compat_modify_qp: untyped, _compat_destroy_qp: untyped, post_send, post_recv,
        _compat_create_ah: untyped, _compat_destroy_ah: untyped, _compat_attach_mcast: untyped,
        _compat_detach_mcast: untyped, _compat_async_event: untyped
    }
    struct ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex: untyped, abi_compat }
    struct ibv_gid_global_t { subnet_prefix, interface_id }
    union ibv_gid { raw, global }
    struct ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
    struct ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
    union ibv_async_event_element_t { cq, qp, srq, wq, port_num }
    struct ibv_async_event { element, event_type }
    union imm_data_invalidated_rkey_union_t { imm_data, invalidated_rkey }
    struct ibv_wc {
        wr_id, status, opcode, vendor_err, byte_len, imm_data_invalidated_rkey_union, qp_num, src_qp,
        wc_flags, pkey_index, slid, sl, dlid_path_bits
    }
    struct rdma_t { remote_addr, rkey }
    struct atomic_t { remote_addr, compare_add, swap, rkey }
    struct ud_t { ah, remote_qpn, remote_qkey }
    union wr_t { rdma, atomic, ud }
    struct xrc_t { remote_srqn }
    union qp_type_t { xrc }
    struct ibv_mw_bind_info { mr, addr, length, mw_access_flags }
    struct bind_mw_t { mw, rkey, bind_info }
    struct tso_t { hdr, hdr_sz, mss }
    union bind_mw_tso_union_t { bind_mw, tso }
    struct ibv_send_wr {
        wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data_invalidated_rkey_union, wr, qp_type,
        bind_mw_tso_union
    }
    struct rdma_route { addr, path_rec, num_paths }
    struct rdma_event_channel { fd }
    struct rdma_cm_id {
        verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel,
        recv_cq, srq, pd, qp_type
    }
    struct rdma_conn_param {
        private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
        rnr_retry_count, srq, qp_num
    }
    struct rdma_ib_addr { sgid, dgid, pkey }
    union src_addr_union_t { src_addr, src_sin, src_sin6, src_storage }
    union dst_addr_union_t { dst_addr, dst_sin, dst_sin6, dst_storage }
    union addr_union_t { ibaddr }
    struct rdma_addr { src_addr_union, dst_addr_union, addr }
    struct rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
    union param_t { conn, ud }
    struct rdma_cm_event { id, listen_id, event, status, param }
}

macro_rules! compare_constants {
    ($($name:ident: $type:ident { $($constant:ident = $value:expr;)* })*) => {$(
        #[test]
        fn $name() {
            let _: fn(bindings::$name::Type) -> rdma_sys::$name::Type = |value| value;
            $(assert_eq!(bindings::$name::$constant, rdma_sys::$name::$constant, stringify!($constant));)*
        }
    )*};
}

macro_rules! compare_flags {
    ($($name:ident { $($flag:ident = $value:expr;)* })*) => {$(
        #[test]
        fn $name() {
            assert_eq!(size_of::<bindings::$name>(), size_of::<rdma_sys::$name>());
            $(assert_eq!(bindings::$name::$flag.0, rdma_sys::$name::$flag.0, stringify!($flag));)*
        }
    )*};
}

each_constant!(compare_constants);
each_flag!(compare_flags);

macro_rules! compare_events {
    ($($event:ident)*) => {
        #[test]
        fn ibv_event_type() {
            use bindings::ibv_event_type as ours;
            use rdma_sys::ibv_event_type as theirs;
            // There is no other.
            let _ = |event| match event {
                $(ours::$event)|* => (),
            };
            $(assert_eq!(ours::$event as u32, theirs::$event as u32, stringify!($event));)*
            assert_eq!(size_of::<ours>(), size_of::<theirs>());
        }
    };
}

compare_events! {
    IBV_EVENT_CQ_ERR IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST
    IBV_EVENT_SQ_DRAINED IBV_EVENT_PATH_MIG IBV_EVENT_PATH_MIG_ERR IBV_EVENT_DEVICE_FATAL
    IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE IBV_EVENT_SM_CHANGE
    IBV_EVENT_SRQ_ERR IBV_EVENT_SRQ_LIMIT_REACHED IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_CLIENT_REREGISTER
    IBV_EVENT_GID_CHANGE IBV_EVENT_WQ_FATAL
}

#[test]
fn names_of_types_are_compared_without_their_paths() {
    assert_eq!(
        plain("core::option::Option<unsafe fn(*mut a::b) -> c::d>"),
        "Option<unsafe fn(*mut b) -> d>"
    );
    assert_eq!(plain("[*const a::b; 64]"), "[*const b; 64]");
    assert_ne!(plain("*mut a::b"), plain("*const a::b"));
}

/// An extended verb of a driver.
unsafe extern "C" fn advise_mr(
    _pd: *mut rdma_sys::ibv_pd,
    _advice: ib_uverbs_advise_mr_advice::Type,
    _flags: u32,
    _list: *mut rdma_sys::ibv_sge,
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
    let mut pd: rdma_sys::ibv_pd = unsafe { MaybeUninit::zeroed().assume_init() };
    pd.context = &raw mut context.context;
    // SAFETY: the context's only function is the one above, which touches nothing.
    let answer = unsafe { ibv_advise_mr(&raw mut pd, 0, 0, ptr::null_mut(), 0) };
    assert_eq!(answer, libc::EOPNOTSUPP, "0: the driver was asked");
}
