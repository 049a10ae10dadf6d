//! The suite over a real etcd, which the test starts on loopback and ends: scripts/etcd-test.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod killed;
mod suite;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{Client, GetOptions, PutOptions};
use fabric_core::Secret;
use fabric_exchange::{Exchange, ExchangeError, Job, JoinOptions, Membership, Rendezvous};

/// An etcd of its own, with a directory that is removed.
struct Etcd {
    process: Child,
    place: Rendezvous,
    _data: tempfile::TempDir,
}

impl Etcd {
    fn start() -> Self {
        (0..5).find_map(|_| Self::try_start()).expect("an etcd that serves")
    }

    /// `None`: another program got a port of its own meanwhile.
    fn try_start() -> Option<Self> {
        let data = tempfile::tempdir().unwrap();
        // Free a moment ago. Both are held at a time, so they differ.
        let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = held.map(|held| held.local_addr().unwrap().to_string());
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let mut process = Command::new("etcd")
            .arg("--data-dir")
            .arg(data.path())
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .args(["--unsafe-no-fsync"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(&client).is_err() {
            if process.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Etcd { process, place: Rendezvous::Etcd(client), _data: data })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn options(secret: Option<Secret>) -> JoinOptions {
    let mut options = JoinOptions::default();
    (options.secret, options.timeout, options.limits) = (secret, suite::PATIENCE, suite::limits());
    options
}

fn runs(secret: Option<Secret>) {
    let etcd = Etcd::start();
    let options = options(secret);
    suite::run(&|membership| Exchange::join(&etcd.place, membership, &options));
}

#[test]
#[ignore = "it takes the program etcd: scripts/etcd-test installs it"]
fn etcd() {
    runs(None);
}

#[test]
#[ignore = "it takes the program etcd: scripts/etcd-test installs it"]
fn etcd_with_a_secret() {
    runs(Some(Secret::new(&[7; 32]).unwrap()));
}

#[test]
#[ignore = "it takes the program etcd: scripts/etcd-test installs it"]
fn a_rank_that_is_killed_is_named_when_its_lease_ends() {
    if killed::is_child() {
        return;
    }
    let etcd = Etcd::start();
    killed::kill_in_a_barrier("a_rank_that_is_killed_is_named_when_its_lease_ends", &etcd.place);
}

/// Longer than a lease: it is renewed.
#[test]
#[ignore = "it takes the program etcd: scripts/etcd-test installs it"]
fn a_rank_that_only_waits_lives() {
    let etcd = Etcd::start();
    let join = |rank| {
        let membership = Membership::new(Job::new("patient", 0, 2).unwrap(), rank).unwrap();
        Exchange::join(&etcd.place, &membership, &options(None)).unwrap()
    };
    let [first, _second] = [0, 1].map(join);
    let waited = first.get("absent", Duration::from_secs(15)).unwrap_err();
    assert!(matches!(waited, ExchangeError::TimedOut { .. }), "{waited}");
}

/// As of a process that ended before it had joined, and that was started again.
#[test]
#[ignore = "it takes the program etcd: scripts/etcd-test installs it"]
fn a_rank_does_not_live_by_the_lease_of_another_process() {
    const LEASE_S: i64 = 3;
    let etcd = Etcd::start();
    let join = |rank| {
        let membership = Membership::new(Job::new("again", 0, 2).unwrap(), rank).unwrap();
        Exchange::join(&etcd.place, &membership, &options(None))
    };
    let first = join(0).unwrap();
    let Rendezvous::Etcd(server) = &etcd.place else { panic!("of etcd") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect([server], None).await.unwrap();
        let of_first = GetOptions::new().with_prefix().with_keys_only();
        let found = client.get("fabric/exchange/", Some(of_first)).await.unwrap();
        let paths = found.kvs().iter().map(|entry| entry.key_str().unwrap());
        let alive = paths.filter_map(|path| path.strip_suffix("alive/0")).next().unwrap();
        let lease = client.lease_grant(LEASE_S, None).await.unwrap().id();
        let by_lease = Some(PutOptions::new().with_lease(lease));
        client.put(format!("{alive}alive/1"), b"", by_lease).await.unwrap();
    });
    let second = join(1).unwrap();
    // Longer than that lease, and the time for which who lives is not looked at again.
    let waited = first.get("absent", Duration::from_secs(LEASE_S as u64 + 5)).unwrap_err();
    assert!(matches!(waited, ExchangeError::TimedOut { .. }), "{waited}");
    let again = join(1).unwrap_err();
    assert_eq!(again, ExchangeError::AlreadyJoined { rank: 1 });
    drop(second);
}

/// The calls wait: for that a runtime has threads, but a caller may be careless.
#[test]
#[ignore = "it takes the program etcd: scripts/etcd-test installs it"]
fn a_call_within_another_runtime_works() {
    let etcd = Etcd::start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let membership = Membership::new(Job::new("within", 0, 1).unwrap(), 0).unwrap();
        let exchange = Exchange::join(&etcd.place, &membership, &options(None)).unwrap();
        assert_eq!(exchange.all_gather(b"x", suite::PATIENCE).unwrap(), [b"x"]);
    });
}

#[test]
fn servers_that_are_not_there_are_named() {
    // Nothing listens at port 1, and nothing gets it meanwhile.
    let free = "127.0.0.1:1";
    let membership = Membership::new(Job::new("job", 0, 1).unwrap(), 0).unwrap();
    let mut options = JoinOptions::default();
    options.timeout = Duration::from_millis(200);
    let place = Rendezvous::Etcd(free.into());
    let error = Exchange::join(&place, &membership, &options).unwrap_err();
    assert!(matches!(error, ExchangeError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}
