//! Engines that are wrong on purpose: for each, the conformance case that is there for it fails, and passes
//! on the real engine. A case that could not fail would prove nothing.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

use std::sync::Arc;

use conformance::{Options, Status, Target, case, run_case};
use fabric::Catalog;
use provider_tcp::TcpProvider;
use provider_tcp::policy::{Faithful, Policy};

fn outcome<P: Policy>(id: &str) -> (Status, String) {
    let catalog = Catalog::empty().add(TcpProvider::<P>::with_policy()).unwrap();
    let target = Target::find(&Arc::new(catalog), P::NAME, None).unwrap();
    let result = run_case(&target, case(id).expect(id), &Options::default());
    (result.status, result.detail)
}

macro_rules! doubles {
    ($($test:ident: $flaw:ident fails $($id:literal),+;)+) => { $(
        #[test]
        fn $test() {
            struct Wrong;
            impl Policy for Wrong {
                const $flaw: bool = true;
            }
            for id in [$($id),+] {
                assert_eq!(outcome::<Faithful>(id), (Status::Pass, String::new()), "{id} on the real engine");
                let (status, detail) = outcome::<Wrong>(id);
                assert_eq!(status, Status::Fail, "{id} does not notice {}", stringify!($flaw));
                assert!(!detail.is_empty(), "{id} fails without saying why");
            }
        }
    )+ };
}

doubles! {
    complete_at_write: COMPLETE_AT_WRITE fails "protection.bad_key", "protection.prefix_ok";
    skip_bounds: SKIP_BOUNDS fails "protection.oob_high", "protection.oob_straddle";
    skip_rights: SKIP_RIGHTS fails "protection.no_remote_write", "protection.no_remote_read";
    keep_closed: KEEP_CLOSED fails "memory.dereg_access", "memory.stale_key";
    carry_on: CARRY_ON fails "protection.prefix_ok";
    no_recv_flush: NO_RECV_FLUSH fails "protection.target_recv_flush";
    silent_errors: SILENT_ERRORS fails "completion.unsignaled_error";
    no_thread: NO_THREAD fails "progress.target_sleep", "progress.target_compute";
    no_fence: NO_FENCE fails "ordering.read_fence_send";
    free_immediate: FREE_IMMEDIATE fails "rma.write_imm_no_recv";
    truncate: TRUNCATE fails "send.oversize_fatal";
    pad_data: PAD_DATA fails "connection.data_sizes", "connection.reject_data";
    drop_empty: DROP_EMPTY fails "send.send_zero";
    check_empty: CHECK_EMPTY fails "rma.write_zero_badkey", "rma.read_zero_badkey";
    late_inject: LATE_INJECT fails "send.inject_reuse";
}
