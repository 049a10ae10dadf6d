//! Compares the types and constants here with the headers that are installed. It needs Debian's `libfabric-dev` and `gcc`, which
//! `make setup` installs; where they are missing it says so, and proves nothing.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use super::*;

/// A field, or the whole of a structure where it has no name: in C, and where it is or how large it is here.
struct Place {
    c: &'static str,
    field: &'static str,
    here: usize,
}

/// Lists the places of structures; a field that has another name in C is `ours = "theirs"`.
macro_rules! places {
    ($($c:literal $ours:ident { $($field:ident $(= $name:literal)?),* $(,)? })*) => {
        vec![$(
            Place { c: $c, field: "", here: size_of::<$ours>() },
            $(Place { c: $c, field: name!($field $(= $name)?), here: offset_of!($ours, $field) },)*
        )*]
    };
}

macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident = $name:literal) => {
        $name
    };
}

#[rustfmt::skip]
fn infos() -> Vec<Place> {
    places! {
        "struct fi_tx_attr" FiTxAttr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass,
        }
        "struct fi_rx_attr" FiRxAttr {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit,
        }
        "struct fi_ep_attr" FiEpAttr {
            kind = "type", protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
            max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key,
        }
        "struct fi_domain_attr" FiDomainAttr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size,
            cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx,
            max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass,
        }
        "struct fi_fabric_attr" FiFabricAttr { fabric, name, prov_name, prov_version, api_version }
        "struct fi_info" FiInfo {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr,
            ep_attr, domain_attr, fabric_attr, nic,
        }
        "struct fi_provider" FiProvider { version, fi_version, context, name, getinfo, fabric, cleanup }
    }
}

#[rustfmt::skip]
fn handles() -> Vec<Place> {
    places! {
        "struct fid" Fid { fclass, context, ops }
        "struct fi_ops" Ops { size, close, bind, control, ops_open, tostr, ops_set }
        "struct fid_fabric" FidFabric { fid, ops, api_version }
        "struct fi_ops_fabric" OpsFabric { size, domain, passive_ep, eq_open, wait_open, trywait, domain2 }
        "struct fid_domain" FidDomain { fid, ops, mr }
        "struct fi_ops_domain" OpsDomain {
            size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx, srx_ctx, query_atomic,
            query_collective, endpoint2,
        }
        "struct fi_ops_mr" OpsMr { size, reg, regv, regattr }
        "struct fid_mr" FidMr { fid, mem_desc, key }
        "struct fid_eq" FidEq { fid, ops }
        "struct fi_ops_eq" OpsEq { size, read, readerr, write, sread, strerror }
        "struct fid_cq" FidCq { fid, ops }
        "struct fi_ops_cq" OpsCq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        "struct fid_cntr" FidCntr { fid, ops }
        "struct fi_ops_cntr" OpsCntr { size, read, readerr, add, set, wait, adderr, seterr }
        "struct fid_ep" FidEp { fid, ops, cm, msg, rma, tagged, atomic, collective }
        "struct fid_pep" FidPep { fid, ops, cm }
        "struct fid_stx" FidStx { fid, ops }
        "struct fi_ops_ep" OpsEp { size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left }
        "struct fi_ops_cm" OpsCm {
            size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join,
        }
        "struct fi_ops_msg" OpsMsg {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
        }
        "struct fi_ops_rma" OpsRma {
            size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata,
        }
        "struct fi_ops_tagged" OpsTagged {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
        }
        "struct fi_ops_atomic" OpsAtomic {
            size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite, compwritev,
            compwritemsg, writevalid, readwritevalid, compwritevalid,
        }
        "struct fid_av" FidAv { fid, ops }
        "struct fi_ops_av" OpsAv { size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set }
        "struct fi_ops_collective" OpsCollective { size, all = "barrier" }
    }
}

#[rustfmt::skip]
fn transfers() -> Vec<Place> {
    places! {
        "struct fi_eq_attr" FiEqAttr { size, flags, wait_obj, signaling_vector, wait_set }
        "struct fi_eq_err_entry" FiEqErrEntry { fid, context, data, err, prov_errno, err_data, err_data_size }
        "struct fi_eq_cm_entry" FiEqCmEntry { fid, info }
        "struct fi_cq_attr" FiCqAttr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        "struct fi_cq_entry" FiCqEntry { op_context }
        "struct fi_cq_msg_entry" FiCqMsgEntry { op_context, flags, len }
        "struct fi_cq_data_entry" FiCqDataEntry { op_context, flags, len, buf, data }
        "struct fi_cq_tagged_entry" FiCqTaggedEntry { op_context, flags, len, buf, data, tag }
        "struct fi_cq_err_entry" FiCqErrEntry {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
        }
        "struct fi_cntr_attr" FiCntrAttr { events, wait_obj, wait_set, flags }
        "struct iovec" Iovec { iov_base, iov_len }
        "struct fi_msg" FiMsg { msg_iov, desc, iov_count, addr, context, data }
        "struct fi_rma_iov" FiRmaIov { addr, len, key }
        "struct fi_msg_rma" FiMsgRma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        "struct fi_av_attr" FiAvAttr { kind = "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        "struct fi_msg_tagged" FiMsgTagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
        "struct fi_atomic_attr" FiAtomicAttr { count, size }
        "struct fi_ioc" FiIoc { addr, count }
        "struct fi_rma_ioc" FiRmaIoc { addr, count, key }
        "struct fi_msg_atomic" FiMsgAtomic {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data,
        }
        "struct fi_mr_attr" FiMrAttr {
            mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key,
        }
    }
}

/// Structures whose first part alone is here.
const PREFIXES: [&str; 1] = ["struct fi_mr_attr"];

macro_rules! values {
    ($($name:ident)*) => { [$((stringify!($name), flags::$name as u64)),*] };
}

#[rustfmt::skip]
fn constants() -> Vec<(&'static str, u64)> {
    values! {
        FI_MSG FI_RMA FI_TAGGED FI_ATOMIC FI_MULTI_RECV FI_MATCH_COMPLETE FI_DIRECTED_RECV FI_DISCARD FI_CLAIM
        FI_FETCH_ATOMIC FI_COMPARE_ATOMIC FI_SYNC_ERR FI_EP_RDM FI_AV_MAP FI_AV_TABLE FI_ADDR_UNSPEC FI_CLASS_AV
        FI_OPT_MIN_MULTI_RECV FI_ENOAV FI_READ FI_WRITE FI_RECV FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_REMOTE_CQ_DATA FI_MORE FI_PEEK
        FI_FENCE FI_COMPLETION FI_INJECT FI_INJECT_COMPLETE FI_TRANSMIT_COMPLETE FI_DELIVERY_COMPLETE FI_AFFINITY
        FI_LOCAL_COMM FI_REMOTE_COMM FI_PROV_ATTR_ONLY FI_NUMERICHOST FI_SOURCE FI_SELECTIVE_COMPLETION FI_RX_CQ_DATA
        FI_LOCAL_MR FI_MR_BASIC FI_MR_SCALABLE FI_MR_LOCAL FI_MR_VIRT_ADDR FI_MR_ALLOCATED FI_MR_PROV_KEY
        FI_ORDER_RAR FI_ORDER_RAW FI_ORDER_RAS FI_ORDER_WAW FI_ORDER_WAS FI_ORDER_SAW FI_ORDER_SAS FI_ORDER_STRICT
        FI_ORDER_RMA_RAR FI_ORDER_RMA_RAW FI_ORDER_RMA_WAW FI_ORDER_WAR FI_ORDER_RMA_WAR FI_ORDER_ATOMIC_RAR
        FI_ORDER_ATOMIC_RAW FI_ORDER_ATOMIC_WAR FI_ORDER_ATOMIC_WAW FI_EP_UNSPEC FI_EP_MSG FI_FORMAT_UNSPEC
        FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_THREAD_UNSPEC FI_THREAD_SAFE FI_THREAD_ENDPOINT FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO
        FI_RM_ENABLED FI_AV_UNSPEC FI_PROV_SPECIFIC FI_CLASS_FABRIC FI_CLASS_DOMAIN FI_CLASS_EP
        FI_CLASS_SRX_CTX FI_CLASS_STX_CTX FI_SHARED_CONTEXT
        FI_CLASS_PEP FI_CLASS_MR FI_CLASS_EQ FI_CLASS_CQ FI_CLASS_CNTR FI_CLASS_CONNREQ FI_GETOPSFLAG FI_SETOPSFLAG
        FI_GETWAIT FI_ENABLE FI_BACKLOG FI_GETWAITOBJ FI_OPT_ENDPOINT FI_OPT_CM_DATA_SIZE FI_WAIT_NONE FI_WAIT_UNSPEC
        FI_WAIT_FD FI_WAIT_YIELD FI_CONNREQ FI_CONNECTED FI_SHUTDOWN FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT
        FI_CQ_FORMAT_MSG FI_CQ_FORMAT_DATA FI_CQ_FORMAT_TAGGED FI_CQ_COND_NONE FI_CQ_COND_THRESHOLD FI_CNTR_EVENTS_COMP FI_LOG_WARN
        FI_LOG_INFO FI_LOG_DEBUG FI_LOG_CORE
        FI_EOTHER FI_ETOOSMALL FI_EOPBADSTATE FI_EAVAIL FI_EBADFLAGS FI_ENOEQ FI_EDOMAIN FI_ENOCQ FI_ETRUNC
    }
    .into_iter()
    .chain(enums())
    .collect()
}

macro_rules! values_of {
    ($module:ident: $($name:ident)*) => { [$((stringify!($name), flags::$module::$name as u64)),*] };
}

/// Operations and types of atomics.
#[rustfmt::skip]
fn enums() -> Vec<(&'static str, u64)> {
    let ops = values_of! {
        op: FI_MIN FI_MAX FI_SUM FI_BOR FI_BAND FI_BXOR FI_ATOMIC_READ FI_ATOMIC_WRITE FI_CSWAP
    };
    let types = values_of! {
        datatype: FI_INT8 FI_UINT8 FI_INT16 FI_UINT16 FI_INT32 FI_UINT32 FI_INT64 FI_UINT64 FI_FLOAT FI_DOUBLE
    };
    ops.into_iter().chain(types).collect()
}

/// A program that prints the version, then a number a line.
fn program(places: &[Place], constants: &[(&str, u64)]) -> String {
    let mut text = String::new();
    for header in
        ["fi_domain", "fi_eq", "fi_cm", "fi_rma", "fi_tagged", "fi_atomic", "fi_collective"]
    {
        let _ = writeln!(text, "#include <rdma/{header}.h>");
    }
    text += "#include <rdma/providers/fi_prov.h>\n#include <rdma/providers/fi_log.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <sys/uio.h>\n";
    text += "#define N(n) printf(\"%llu\\n\", (unsigned long long) (n))\n";
    text += "int main(void) {\nN(FI_MAJOR_VERSION * 1000 + FI_MINOR_VERSION);\n";
    for Place { c, field, .. } in places {
        let _ = match *field {
            "" => writeln!(text, "N(sizeof({c}));"),
            field => writeln!(text, "N(offsetof({c}, {field}));"),
        };
    }
    for (name, _) in constants {
        let _ = writeln!(text, "N({name});");
    }
    text + "return 0; }\n"
}

/// What the program prints; `None` where the headers or the compiler are missing.
fn run(text: &str) -> Option<Vec<u64>> {
    let has_compiler = Command::new("gcc").arg("--version").output().is_ok();
    if !has_compiler || !Path::new("/usr/include/rdma/fabric.h").exists() {
        return None;
    }
    let folder = std::env::temp_dir().join(format!("anyfabric-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("gcc").arg(&source).arg("-o").arg(&binary).status().unwrap();
    assert!(compiled.success(), "{} does not compile", source.display());
    let printed = Command::new(&binary).output().unwrap().stdout;
    std::fs::remove_dir_all(&folder).unwrap();
    Some(String::from_utf8(printed).unwrap().lines().map(|line| line.parse().unwrap()).collect())
}

#[test]
fn types_and_constants_are_those_of_the_headers() {
    let places: Vec<_> = [infos(), handles(), transfers()].into_iter().flatten().collect();
    let constants = constants();
    let Some(there) = run(&program(&places, &constants)) else {
        println!("NOT RUN: it needs libfabric-dev and gcc: `make setup` installs them");
        return;
    };
    let (version, there) = there.split_first().unwrap();
    assert_eq!(there.len(), places.len() + constants.len());
    let (of_places, of_constants) = there.split_at(places.len());
    for (Place { c, field, here }, there) in places.iter().zip(of_places) {
        // Later versions, and what is here in part only, have more at the end.
        let grows = field.is_empty() && (*version > 1017 || PREFIXES.contains(c));
        let fits = *there == *here as u64 || grows && *there > *here as u64;
        assert!(fits, "{c} {field}: {here} here, {there} in the headers");
    }
    for ((name, here), there) in constants.iter().zip(of_constants) {
        // Constants of type int are compared by their lower half.
        assert_eq!(*here as u32, *there as u32, "{name}");
        assert!(
            here == there || *there >> 32 == 0 || *there >> 32 == u64::from(u32::MAX),
            "{name}"
        );
    }
}
