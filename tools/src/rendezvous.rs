//! `fabric rendezvous`: the server where the processes of jobs find each other.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fabric_exchange::{DEFAULT_PORT, SECRET_FILE, Secret, Server, ServerOptions};
use rustix::process::Resource;
use serde_json::json;

use crate::failure::Failure;
use crate::report::{HEAD, WARN};

/// Serve as the place where the processes of a job find each other.
///
/// Each process of a job joins here with its rank, stores small blobs under keys, such as the address of its endpoint, gets
/// those of the others, and waits for them in barriers. The server keeps all of it in memory, for any number of jobs, until
/// their processes have left. One process on any host that the others reach is enough; it needs no rights.
///
/// Processes name it by FABRIC_RENDEZVOUS=tcp://HOST:PORT. By a secret, the same file here and there, both ends prove that they
/// belong together, and no message can be changed or repeated on the way; messages are not encrypted. The secret itself is never sent.
#[derive(Args)]
#[command(after_help = "\
Examples:
  (umask 077; openssl rand -hex 32 >job.secret)     a secret for the job
  fabric rendezvous --listen 0.0.0.0 --secret-file job.secret
  FABRIC_RENDEZVOUS=tcp://login1:7473 FABRIC_SECRET_FILE=job.secret srun -n 64 ./program
  fabric rendezvous --listen 127.0.0.1              for the processes of this host, without a secret
  fabric rendezvous --listen 127.0.0.1:0 --json | head -1 | jq -r .rendezvous

It serves until it is killed, and logs the ranks that are lost, with their jobs (of many at once, some); with
RUST_LOG=fabric_exchange=info also those that join, or are refused.

Exit codes: 1 it failed, 2 wrong usage.")]
pub(crate) struct RendezvousArgs {
    /// Listen on this address; port 0 is any that is free [default port: 7473].
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = address)]
    listen: SocketAddr,
    /// The file with the job's secret, which every client has to prove: 32 to 64 bytes that only its owner may touch [default:
    /// FABRIC_SECRET_FILE, if it is set].
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Bytes of one blob.
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().limits.blob_bytes)]
    max_blob: u32,
    /// Keys of one job.
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().limits.job_keys)]
    max_keys: u32,
    /// Bytes of the blobs and barriers of all jobs.
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().max_bytes)]
    max_bytes: u64,
    /// Jobs at a time; for one more the one that has had no process for longest is forgotten.
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().max_jobs)]
    max_jobs: usize,
    /// Processes at a time, of all jobs; each takes a descriptor.
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().max_members)]
    max_members: usize,
    /// Forget a job so many seconds after its last process has gone, though others never came; earlier if others need the room.
    #[arg(long, value_name = "S", default_value_t = ServerOptions::default().keep_time.as_secs())]
    keep: u64,
    /// Write where it listens as JSON, in one line.
    #[arg(long)]
    json: bool,
}

/// An address with a port, or one that gets the default port.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, DEFAULT_PORT).into());
    }
    let is_bracketed = text.starts_with('[') && text.ends_with(']');
    let text = match text.contains(':') && !is_bracketed {
        true => text.to_owned(),
        false => format!("{text}:{DEFAULT_PORT}"),
    };
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "it has no address".to_owned())
}

impl RendezvousArgs {
    fn secret(&self) -> Result<Option<Secret>, Failure> {
        let (name, path) = match (&self.secret_file, std::env::var_os(SECRET_FILE)) {
            (Some(path), _) => ("--secret-file", path.clone()),
            (None, Some(path)) => (SECRET_FILE, path.into()),
            (None, None) => return Ok(None),
        };
        let secret = Secret::from_file(path);
        secret.map(Some).map_err(|error| Failure { text: format!("{name}: {error}"), code: 2 })
    }

    fn options(&self) -> Result<ServerOptions, Failure> {
        let mut options = ServerOptions::default();
        options.secret = self.secret()?;
        (options.limits.blob_bytes, options.limits.job_keys) = (self.max_blob, self.max_keys);
        (options.max_jobs, options.max_members) = (self.max_jobs, self.max_members);
        options.max_bytes = self.max_bytes;
        options.keep_time = Duration::from_secs(self.keep);
        let checked = options.limits.check();
        checked.map_err(|error| Failure { text: error.to_string(), code: 2 })?;
        Ok(options)
    }
}

/// As many descriptors as this process may have: most systems give fewer unless they are asked.
fn raise_descriptors() {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With those that it has, it serves fewer processes.
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}

/// Serves until it is killed.
pub(crate) fn run(args: &RendezvousArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let is_authenticated = options.secret.is_some();
    let failed = |error: &dyn std::fmt::Display| {
        let text = format!("rendezvous at {}: {error}", args.listen);
        Failure { text, code: 1 }
    };
    raise_descriptors();
    let server = Server::bind(args.listen, options).map_err(|error| failed(&error))?;
    let at = server.local_addr();
    if !is_authenticated && !at.ip().to_canonical().is_loopback() {
        anstream::eprintln!(
            "{WARN}warning:{WARN:#} every host that reaches {at} can join any job here, and read and write its blobs: give a \
             secret by --secret-file"
        );
    }
    let place = format!("tcp://{at}");
    let text = match args.json {
        true => format!("{}\n", json!({ "rendezvous": place, "authenticated": is_authenticated })),
        false => {
            let how = if is_authenticated { "with a secret" } else { "without a secret" };
            format!("{HEAD}rendezvous{HEAD:#} at {place}, {how}\n")
        }
    };
    let mut out = anstream::stdout();
    // A reader that goes away is no reason to stop serving.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    server.run().map_err(|error| failed(&error))
}
