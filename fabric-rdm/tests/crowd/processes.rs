//! The processes of a crowd: this program again, with a rank. They find each other by a server of the first one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{Catalog, Choice, Domain, Hints};
use fabric_exchange::{
    Exchange, Job, JoinOptions, Membership, Rendezvous, RunningServer, Server, ServerOptions,
};
use fabric_rdm::{Address, Endpoint};

/// In the environment of a child: what it is, which one, of how many, and where the others are.
const ROLE: &str = "FABRIC_CROWD_ROLE";
const RANK: &str = "FABRIC_CROWD_RANK";
const SIZE: &str = "FABRIC_CROWD_SIZE";
const SERVER: &str = "FABRIC_CROWD_SERVER";
/// Before the line of a child: the test harness prints lines too.
const MARK: &str = "crowd: ";

/// Nothing may take longer without progress.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process waits for the others.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A number of the environment.
pub(crate) fn variable(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Processes of one role, in a job that this process may join too.
pub(crate) struct Processes {
    server: RunningServer,
    size: u32,
    children: Vec<Running>,
}

/// A child. Dropping it kills it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Processes {
    /// Starts them, with these variables. The job has so many ranks, theirs are the first ones.
    pub(crate) fn start(
        role: &str,
        count: usize,
        size: usize,
        variables: &[(&'static str, usize)],
    ) -> Self {
        let mut options = ServerOptions::default();
        options.limits.blob_bytes = fabric_exchange::Limits::MAX_BLOB_BYTES;
        let server = Server::bind("127.0.0.1:0", options).unwrap().spawn().unwrap();
        let at = server.local_addr().to_string();
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["child", "--exact", "--nocapture"]).stdout(Stdio::piped());
            command.env(ROLE, role).env(SERVER, &at);
            command.env(RANK, rank.to_string()).env(SIZE, size.to_string());
            command.envs(variables.iter().map(|(name, value)| (name, value.to_string())));
            Running(command.spawn().unwrap())
        };
        let children = (0..count).map(start).collect();
        Processes { server, size: size as u32, children }
    }

    /// This process as the last rank.
    pub(crate) fn join(&self) -> Exchange {
        join(&self.server.local_addr().to_string(), self.size - 1, self.size)
    }

    /// What each of them says at its end.
    pub(crate) fn outcomes(self) -> Vec<Vec<u64>> {
        let said = self.children.into_iter().map(outcome).collect();
        self.server.stop().unwrap();
        said
    }
}

fn outcome(mut child: Running) -> Vec<u64> {
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = None;
    for line in lines {
        said = said.or(line.split_once(MARK).map(|(_, said)| said.to_owned()));
    }
    assert!(child.0.wait().unwrap().success(), "a process failed");
    said.unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn join(server: &str, rank: u32, size: u32) -> Exchange {
    let membership = Membership::new(Job::new("crowd", 0, size).unwrap(), rank).unwrap();
    let place: Rendezvous = format!("tcp://{server}").parse().unwrap();
    Exchange::join(&place, &membership, &JoinOptions::default()).unwrap()
}

/// Does what a child of this role does, if this process is one.
pub(crate) fn be_child(run: impl FnOnce(&str) -> fn(&Exchange) -> Vec<u64>) {
    if let (Ok(role), Ok(server)) = (std::env::var(ROLE), std::env::var(SERVER)) {
        let exchange = join(&server, variable(RANK, 0) as u32, variable(SIZE, 0) as u32);
        let said: Vec<_> = run(&role)(&exchange).iter().map(u64::to_string).collect();
        exchange.leave().unwrap();
        println!("{MARK}{}", said.join(" "));
    }
}

/// The addresses of all endpoints, in the order of the ranks.
pub(crate) fn share<'a>(
    exchange: &Exchange,
    own: impl Iterator<Item = &'a Address>,
) -> Vec<Address> {
    let texts: Vec<_> = own.map(Address::to_string).collect();
    let all = exchange.all_gather(texts.join(" ").as_bytes(), LONG).unwrap();
    let all: Vec<_> = all.into_iter().map(|part| String::from_utf8(part).unwrap()).collect();
    all.iter().flat_map(|part| part.split_whitespace()).map(|one| one.parse().unwrap()).collect()
}

/// A domain of this provider.
pub(crate) fn open(provider: &str) -> Domain {
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).unwrap();
    catalog.open_with(&Choice::parse(provider).unwrap(), &Hints::default()).unwrap()
}

/// The most memory that this process ever had, in MiB.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Descriptors that this process has open. (0: it has none left to look by.)
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Parks the connections of these, and waits until they are closed: they are not lost when they go. The others have their turns.
pub(crate) fn park<'a>(
    all: impl Iterator<Item = &'a Endpoint> + Clone,
    others: impl Iterator<Item = &'a Endpoint> + Clone,
) {
    let until = Instant::now() + PATIENCE;
    all.clone().for_each(|endpoint| endpoint.park_all().unwrap());
    while let Some(open) = all.clone().find(|endpoint| endpoint.connections().unwrap() > 0) {
        all.clone().chain(others.clone()).for_each(|endpoint| endpoint.progress().unwrap());
        assert!(Instant::now() < until, "{}", open.dump());
    }
}

/// Connections that an endpoint had so far, and its attempts at one.
pub(crate) fn counts(dump: &str) -> [u64; 2] {
    let count = |before: &str| {
        let (text, _) = dump.split_once(before).unwrap();
        text.rsplit([' ', '(']).next().unwrap().parse().unwrap()
    };
    [count(" so far"), count(" attempts")]
}
