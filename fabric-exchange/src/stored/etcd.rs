//! etcd as a store. A rank that ends without leaving is noticed when its lease runs out.

use std::future::Future;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, GetOptions, KeyValue,
    LeaseKeepAliveStream, LeaseKeeper, PutOptions, Txn, TxnOp,
};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::names::name_of;
use super::store::{MEMBERS, Store};
use crate::error::{ExchangeError, Result};
use crate::job::Membership;
use crate::limits::{Backoff, Deadline};

/// One request takes no longer.
const REQUEST: Duration = Duration::from_secs(10);
/// The lease of a rank that is gone runs out within this time.
const LEASE_S: i64 = 10;
/// A lease is renewed so often.
const RENEW: Duration = Duration::from_secs(3);
/// What waits for etcd, or for a lease to run out, looks again after so long at most.
const PAUSE: Duration = Duration::from_millis(500);
/// Names that one answer has, so that it stays below what gRPC takes.
const NAMES: i64 = 8192;
const ALIVE: &str = "alive";

/// The values of one incarnation, at etcd's servers.
pub(crate) struct Etcd {
    client: Client,
    lease: i64,
    /// What all of its names begin with.
    prefix: String,
    driver: Driver,
}

impl Etcd {
    /// Connects to servers, `HOST:PORT` separated by commas, within `time`; this rank lives from then on.
    pub(crate) fn open(servers: &str, membership: &Membership, time: Duration) -> Result<Self> {
        let (driver, deadline) = (Driver::start()?, Deadline::after(time));
        let (client, lease) = connect(&driver.handle, servers, time)?;
        driver.renew(client.clone(), lease)?;
        let job = membership.job();
        let prefix = format!("fabric/exchange/{}.{}/", name_of(job.name()), job.incarnation());
        let etcd = Etcd { client, lease, prefix, driver };
        etcd.begin_to_live(membership.rank(), &deadline)?;
        Ok(etcd)
    }

    /// From now on this rank lives by its own lease. One that ended before it had joined lives until its lease has run out.
    fn begin_to_live(&self, rank: u32, deadline: &Deadline) -> Result<()> {
        let (name, mut backoff) = (rank.to_string(), Backoff::up_to(PAUSE));
        let path = self.path(ALIVE, &name);
        // etcd's client tries again on its own, and may find what it made.
        while !self.put_new(&path, b"", Some(self.lease))? && !self.is_by_own_lease(&path)? {
            let members = self.path(MEMBERS, &name);
            if self.get(members)?.is_some() {
                return Err(ExchangeError::AlreadyJoined { rank });
            }
            if deadline.is_over() {
                let text = format!(
                    "etcd: another process lives as rank {rank}, and has not joined; if it ended, its lease runs out within {LEASE_S} s"
                );
                return Err(ExchangeError::Storage(text));
            }
            thread::sleep(backoff.next(deadline));
        }
        Ok(())
    }

    fn is_by_own_lease(&self, path: &str) -> Result<bool> {
        Ok(self.get(path.to_owned())?.is_some_and(|entry| entry.lease() == self.lease))
    }

    fn get(&self, path: String) -> Result<Option<KeyValue>> {
        let mut client = self.client.clone();
        let answer = self.ask(async move { client.get(path, None).await })?;
        Ok(answer.kvs().first().cloned())
    }

    fn path(&self, folder: &str, name: &str) -> String {
        format!("{}{folder}/{name}", self.prefix)
    }

    fn ask<T: Send + 'static>(
        &self,
        answer: impl Future<Output = Result<T, etcd_client::Error>> + Send + 'static,
    ) -> Result<T> {
        ask(&self.driver.handle, REQUEST, answer)
    }

    fn put_new(&self, path: &str, value: &[u8], lease: Option<i64>) -> Result<bool> {
        let options = lease.map(|lease| PutOptions::new().with_lease(lease));
        let absent = Compare::create_revision(path, CompareOp::Equal, 0);
        let put = Txn::new().when([absent]).and_then([TxnOp::put(path, value, options)]);
        let mut client = self.client.clone();
        Ok(self.ask(async move { client.txn(put).await })?.succeeded())
    }

    fn delete(&self, path: String, options: Option<DeleteOptions>) -> Result<()> {
        let mut client = self.client.clone();
        self.ask(async move { client.delete(path, options).await }).map(drop)
    }
}

/// Waits for an answer, in whatever thread: the driver's does the work. So this works in a thread of another runtime, too.
fn ask<T: Send + 'static>(
    handle: &Handle,
    time: Duration,
    answer: impl Future<Output = Result<T, etcd_client::Error>> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle.spawn(async move {
        // The other side waits for it.
        let _ = sender.send(timeout(time, answer).await);
    });
    let slow = || ExchangeError::Storage(format!("etcd did not answer within {time:?}"));
    match receiver.recv() {
        Ok(Ok(answer)) => answer.map_err(|error| ExchangeError::Storage(format!("etcd: {error}"))),
        Ok(Err(_)) => Err(slow()),
        Err(_) => Err(ExchangeError::Storage("the thread of etcd's client has ended".to_owned())),
    }
}

/// A client, and a lease by it, once the servers are there.
fn connect(handle: &Handle, servers: &str, time: Duration) -> Result<(Client, i64)> {
    let endpoints: Vec<_> = servers.split(',').map(|server| format!("http://{server}")).collect();
    let (deadline, mut backoff) = (Deadline::after(time), Backoff::up_to(PAUSE));
    loop {
        let attempt = deadline.left().clamp(Duration::from_millis(10), REQUEST);
        let options = ConnectOptions::new().with_connect_timeout(attempt).with_timeout(REQUEST);
        let endpoints = endpoints.clone();
        let leased = ask(handle, attempt, async move {
            let mut client = Client::connect(endpoints, Some(options)).await?;
            let lease = client.lease_grant(LEASE_S, None).await?;
            Ok((client, lease.id()))
        });
        match leased {
            Err(why) if deadline.is_over() => {
                return Err(ExchangeError::Unreachable(format!(
                    "no etcd at {servers} within {time:?}: {why}"
                )));
            }
            Err(_) => thread::sleep(backoff.next(&deadline)),
            Ok(leased) => return Ok(leased),
        }
    }
}

impl Store for Etcd {
    fn create(&self, folder: &str, name: &str, value: &[u8]) -> Result<bool> {
        self.put_new(&self.path(folder, name), value, None)
    }

    fn read(&self, folder: &str, name: &str, max: usize) -> Result<Option<Vec<u8>>> {
        let path = self.path(folder, name);
        let Some(entry) = self.get(path.clone())? else { return Ok(None) };
        let value = entry.value();
        if value.len() > max {
            let text = format!("etcd: the value of {path} has more than {max} bytes");
            return Err(ExchangeError::Storage(text));
        }
        Ok(Some(value.to_vec()))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let prefix = self.path(folder, "");
        // Behind all names that begin with the prefix: `0` follows `/`.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let (mut names, mut begin) = (Vec::new(), prefix.clone().into_bytes());
        loop {
            let options =
                GetOptions::new().with_range(end.as_str()).with_keys_only().with_limit(NAMES);
            let (from, mut client) = (begin.clone(), self.client.clone());
            let answer = self.ask(async move { client.get(from, Some(options)).await })?;
            let found = answer.kvs().iter().filter_map(|entry| entry.key_str().ok());
            names.extend(found.filter_map(|key| key.strip_prefix(&prefix)).map(str::to_owned));
            match answer.kvs().last() {
                Some(last) if answer.more() => begin = [last.key(), &[0]].concat(),
                _ => return Ok(names),
            }
        }
    }

    fn count(&self, folder: &str) -> Result<usize> {
        let (prefix, mut client) = (self.path(folder, ""), self.client.clone());
        let options = GetOptions::new().with_prefix().with_count_only();
        let answer = self.ask(async move { client.get(prefix, Some(options)).await })?;
        Ok(usize::try_from(answer.count()).unwrap_or(0))
    }

    fn remove(&self, folder: &str, name: &str) -> Result<()> {
        self.delete(self.path(folder, name), None)
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        self.delete(self.path(folder, ""), Some(DeleteOptions::new().with_prefix()))
    }

    fn remove_all(&self) -> Result<()> {
        self.delete(self.prefix.clone(), Some(DeleteOptions::new().with_prefix()))
    }

    const ALIVE: Option<&'static str> = Some(ALIVE);
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Else it runs out on its own.
        let (lease, mut client) = (self.lease, self.client.clone());
        let _ = self.ask(async move { client.lease_revoke(lease).await });
    }
}

/// The thread in which tokio works, for as long as this lives.
struct Driver {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start() -> Result<Self> {
        let failed = |error: std::io::Error| {
            ExchangeError::Storage(format!("cannot start the thread of etcd's client: {error}"))
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("fabric-etcd".into()).spawn(move || {
            // It ends by a word, or without one when this is dropped.
            let _ = runtime.block_on(stopped);
        });
        Ok(Driver { handle, stop: Some(stop), thread: Some(thread.map_err(failed)?) })
    }

    /// Renews a lease until the driver ends.
    fn renew(&self, mut client: Client, lease: i64) -> Result<()> {
        let (began, begin) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let mut renewal = client.lease_keep_alive(lease).await.ok();
            let _ = began.send(());
            loop {
                tokio::time::sleep(RENEW).await;
                // etcd may have been away: then by a new stream.
                let is_renewed = match &mut renewal {
                    Some(renewal) => renew_once(renewal).await,
                    None => false,
                };
                if !is_renewed {
                    let again = timeout(RENEW, client.lease_keep_alive(lease)).await;
                    renewal = again.ok().and_then(Result::ok);
                }
            }
        });
        let slow = |_| ExchangeError::Storage("etcd does not renew the lease".to_owned());
        begin.recv_timeout(REQUEST).map_err(slow)
    }
}

async fn renew_once((keeper, answers): &mut (LeaseKeeper, LeaseKeepAliveStream)) -> bool {
    let renewal = timeout(RENEW, async {
        keeper.keep_alive().await?;
        answers.message().await
    });
    matches!(renewal.await, Ok(Ok(Some(answer))) if answer.ttl() > 0)
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
