//! One suite over every implementation: they do the same. That over etcd is in `etcd.rs`.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod suite;

use fabric_core::Secret;
use fabric_exchange::{
    Exchange, InProcess, Job, JoinOptions, Membership, Rendezvous, Server, ServerOptions,
};

fn secret() -> Option<Secret> {
    Some(Secret::new(&[7; 32]).unwrap())
}

fn options(secret: Option<Secret>) -> JoinOptions {
    let mut options = JoinOptions::default();
    (options.secret, options.timeout, options.limits) = (secret, suite::PATIENCE, suite::limits());
    options
}

#[test]
fn in_process() {
    let place = InProcess::with_limits(suite::limits()).unwrap();
    suite::run(&|membership| place.join(membership));
}

fn directory(secret: Option<Secret>) {
    let root = tempfile::tempdir().unwrap();
    let (place, options) = (Rendezvous::Directory(root.path().into()), options(secret));
    suite::run(&|membership| Exchange::join(&place, membership, &options));
}

#[test]
fn a_directory() {
    directory(None);
}

#[test]
fn a_directory_with_a_secret() {
    directory(secret());
}

fn server(secret: Option<Secret>) {
    let mut bounds = ServerOptions::default();
    (bounds.secret, bounds.limits) = (secret.clone(), suite::limits());
    let server = Server::bind("127.0.0.1:0", bounds).unwrap().spawn().unwrap();
    let (place, options) = (Rendezvous::Tcp(server.local_addr().to_string()), options(secret));
    suite::run(&|membership| Exchange::join(&place, membership, &options));
    server.stop().unwrap();
}

#[test]
fn a_server() {
    server(None);
}

#[test]
fn a_server_with_a_secret() {
    server(secret());
}

/// More than one answer of a gather has room for, and more than may be on the way to join.
#[test]
fn many_ranks() {
    const RANKS: u32 = 300;
    let mut bounds = ServerOptions::default();
    bounds.secret = secret();
    let server = Server::bind("127.0.0.1:0", bounds).unwrap().spawn().unwrap();
    let (place, options) = (Rendezvous::Tcp(server.local_addr().to_string()), options(secret()));
    let job = Job::new("many", 0, RANKS).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let membership = Membership::new(job.clone(), rank).unwrap();
            let (place, options) = (&place, &options);
            scope.spawn(move || {
                let exchange = Exchange::join(place, &membership, options).unwrap();
                let own = rank.to_le_bytes().repeat(60);
                let all = exchange.all_gather(&own, suite::PATIENCE).unwrap();
                assert_eq!(all.len(), RANKS as usize);
                for (rank, blob) in (0..RANKS).zip(all) {
                    assert_eq!(blob, rank.to_le_bytes().repeat(60));
                }
                exchange.barrier("all", suite::PATIENCE).unwrap();
                exchange.leave().unwrap();
            });
        }
    });
}
