//! Runs with the peer's end at a server: the same cases see the same, and what is wrong there is found from here.

#![allow(clippy::unwrap_used)] // helpers of tests too

#[allow(dead_code, reason = "other tests use the rest")]
mod flawed;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use conformance::{Matrix, Options, Peer, Report, Server, Status, case, run, run_case};
use fabric::Catalog;
use flawed::{Flaw, Flawed};

/// A server of this process, with the providers of a catalog.
fn serve(catalog: Catalog) -> Arc<Peer> {
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), &Arc::new(catalog)).unwrap();
    let addr: SocketAddr = server.local_addr().unwrap();
    thread::spawn(move || server.run());
    Arc::new(Peer::reach(addr).unwrap())
}

/// The same provider here and there; its endpoints find each other since both are in this process.
fn both(flaw: Flaw) -> (Arc<Catalog>, Arc<Peer>) {
    let flawed = Flawed::new(flaw);
    let catalog = Catalog::empty().add(flawed).unwrap();
    (Arc::new(catalog), serve(Catalog::empty().add(flawed).unwrap()))
}

fn options(cases: &[&str]) -> Options {
    let filters = cases.iter().map(|case| (*case).to_owned()).collect();
    Options { factor: Some(1.0), filters, ..Options::default() }
}

fn report(flaw: Flaw, cases: &[&str]) -> Report {
    let (catalog, peer) = both(flaw);
    let options = Options { peer: Some(peer), ..options(cases) };
    run(&catalog, &options, &mut ()).unwrap()
}

const KEPT: [&str; 4] =
    ["send.fifo", "rma.write_sizes", "protection.prefix_ok", "shared.oldest_first"];

#[test]
fn cases_see_the_same_from_one_process_and_from_two() {
    see_the_same(&KEPT);
}

fn see_the_same(ids: &[&str]) {
    let far = report(Flaw::None, ids);
    let near = Arc::new(Catalog::empty().add(Flawed::new(Flaw::None)).unwrap());
    let near = run(&near, &options(ids), &mut ()).unwrap();
    assert_eq!(far.cases.len(), ids.len());
    for (far, near) in far.cases.iter().zip(&near.cases) {
        assert_eq!(far.status, Status::Pass, "{}: {}", far.id, far.detail);
        let [far, near] =
            [far, near].map(|result| serde_json::to_value(&result.transcript).unwrap());
        assert_eq!(far, near);
    }
}

#[test]
fn shared_receives_are_named_and_end_as_near_ones() {
    let report =
        report(Flaw::None, &["shared.rest_stays", "shared.in_the_middle", "shared.last_of_all"]);
    assert_eq!(report.cases.len(), 3);
    for case in &report.cases {
        assert_eq!(case.status, Status::Pass, "{}: {}", case.id, case.detail);
    }
}

/// They are whole at the far end.
#[test]
fn datagram_endpoints_are_the_same_there() {
    see_the_same(&[
        "rdm.mixed_sizes",
        "rdm.multi_receive_last",
        "rdm.probe_claims_once",
        "rdm.memory_is_free",
    ]);
}

#[test]
fn what_is_wrong_is_found() {
    for (flaw, id) in [
        (Flaw::CarriesOn, "protection.prefix_ok"),
        (Flaw::Overruns, "rma.write_sizes"),
        (Flaw::Reverses, "send.fifo"),
    ] {
        let report = report(flaw, &[id]);
        assert_eq!(report.cases[0].status, Status::Fail, "{flaw:?} passes {id}");
    }
}

#[test]
fn reports_name_both_ends() {
    let report = report(Flaw::None, &KEPT[..1]);
    let peer = report.peer.as_ref().unwrap();
    assert_eq!(peer.environment.kernel, report.environment.kernel);
    let text = serde_json::to_string(&report).unwrap();
    let back: Report = serde_json::from_str(&text).unwrap();
    let matrix = Matrix::merge(&[back], &[]).unwrap();
    let column = &matrix.columns[0];
    assert_eq!(column.peer.as_ref().unwrap().address, peer.address);
    assert_eq!(column.provider.peer.as_ref().unwrap().device.as_deref(), Some("process"));
}

#[test]
fn what_needs_one_process_is_reported_so() {
    let report = report(Flaw::None, &["progress.armed_no_tick"]);
    assert_eq!(report.cases[0].status, Status::Unsupported);
    assert!(report.cases[0].detail.contains("both ends in one process"), "{:?}", report.cases[0]);
}

#[test]
fn peer_without_the_provider_is_told() {
    let peer = serve(Catalog::empty().add(Flawed::named("other", Flaw::None)).unwrap());
    let catalog = Arc::new(Catalog::empty().add(Flawed::new(Flaw::None)).unwrap());
    let options = Options { peer: Some(peer.clone()), ..options(&KEPT) };
    let report = run(&catalog, &options, &mut ()).unwrap();
    let reason = report.providers[0].unavailable.as_deref().unwrap();
    assert!(reason.contains("does not have the provider flawed"), "{reason}");
    let target = conformance::Target::find(&catalog, "flawed", None).unwrap();
    assert!(target.with_peer(&peer, None).is_err());
}

#[test]
fn capabilities_are_those_of_both_ends() {
    let peer = serve(Catalog::empty().add(Flawed::new(Flaw::SendsOnly)).unwrap());
    let catalog = Arc::new(Catalog::empty().add(Flawed::new(Flaw::None)).unwrap());
    let target = conformance::Target::find(&catalog, "flawed", None).unwrap();
    let target = target.with_peer(&peer, None).unwrap();
    let result = run_case(&target, case("rma.write_sizes").unwrap(), &options(&[]));
    assert_eq!(result.status, Status::Unsupported);
    assert!(result.detail.contains("rma"), "{}", result.detail);
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    // Nothing listens at port 1, and nothing gets it meanwhile.
    let error = Peer::reach((Ipv4Addr::LOCALHOST, 1).into()).unwrap_err();
    assert!(error.contains("no server at"), "{error}");
}
