//! Calls with bulk data: requests and answers are messages, the data goes by one-sided writes into leased memory.
//!
//!     cargo run -q -p anyfabric-async --example rpc -- serve & sleep 1; cargo run -q -p anyfabric-async --example rpc -- sum Cargo.lock
//!
//! The server computes check sums (CRC-32). A client leases memory of the server, writes a piece of a file there while the
//! server is busy with the piece before, and sends which lease it is. The server waits for no data, and copies
//! it once, for a peer that writes where it should not must not change what is being summed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use fabric_async::{Connection, Error, Listener, RemoteLease};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod common;

/// Bytes of one piece.
const PIECE: usize = 1 << 20;
const TIME: Duration = Duration::from_secs(30);

/// Have another process compute check sums of files.
#[derive(Parser)]
#[command(
    after_help = "FABRIC_PROVIDER chooses the provider: tcp, verbs, verbs:mlx5_0. Over verbs --at is an address of the device."
)]
enum Args {
    /// Serve clients until killed.
    Serve {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:7477")]
        at: String,
    },
    /// Print the check sums of files, as the server computes them.
    Sum {
        /// Where the server listens.
        #[arg(long, default_value = "127.0.0.1:7477")]
        at: String,
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// "So many bytes are at the beginning of that lease; go on from this sum."
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Request {
    lease: u64,
    len: u32,
    sum: u32,
}

async fn serve_one(conn: Connection) -> Result<(), Error> {
    let mut piece = vec![0; PIECE];
    loop {
        let message = conn.recv().await?;
        let Request { lease, len, sum } = message.buffer.view::<Request>()?;
        let lent = conn.local_lease(*lease).filter(|lent| *len as usize <= lent.len());
        let Some((lent, piece)) = lent.zip(piece.get_mut(..*len as usize)) else {
            conn.close();
            return Err(Error::Protocol("a request for memory that is not lent".to_owned()));
        };
        // What a peer may write at any time is copied before it is trusted.
        lent.read_at(0, piece)?;
        let mut hasher = crc32fast::Hasher::new_with_initial(*sum);
        hasher.update(piece);
        let mut answer = conn.alloc(4)?;
        *answer.view_mut::<u32>()? = hasher.finalize();
        conn.send(answer).await?;
    }
}

async fn serve(at: &str) -> Result<(), Error> {
    let listener = Listener::bind(at).await?;
    println!("listening on {}", listener.local_addr());
    loop {
        let conn = listener.accept().await?;
        tokio::spawn(async move {
            let peer = conn.peer_addr().map_or_else(|| "a client".to_owned(), |at| at.to_string());
            match serve_one(conn).await {
                Ok(()) | Err(Error::Disconnected(_)) => {}
                Err(error) => eprintln!("{peer}: {error}"),
            }
        });
    }
}

fn unreadable(file: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", file.display())
}

async fn sum(conn: &Connection, leases: &[RemoteLease; 2], bytes: &[u8]) -> Result<u32, Error> {
    let (mut sum, mut waiting) = (0, false);
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        let remote = &leases[index % 2];
        // This piece is written while the server sums the one before.
        let buffer = conn.node().pool().alloc_from(piece)?;
        conn.write(buffer, remote.at(0)).delivered().await?;
        if waiting {
            sum = *conn.recv().await?.buffer.view::<u32>()?;
        }
        let mut request = conn.alloc(size_of::<Request>())?;
        *request.view_mut()? = Request { lease: remote.id(), len: piece.len() as u32, sum };
        conn.send(request).await?;
        waiting = true;
        remote.renew(TIME).await?;
    }
    if waiting {
        sum = *conn.recv().await?.buffer.view::<u32>()?;
    }
    Ok(sum)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    env_logger::init();
    common::finish(run(Args::parse()).await)
}

async fn run(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    match args {
        Args::Serve { at } => serve(&at).await?,
        Args::Sum { at, files } => {
            // What is wrong here is said before another process is asked.
            for file in &files {
                File::open(file).map_err(|error| unreadable(file, &error))?;
            }
            let conn = Connection::connect(at).await?;
            let first = conn.request_lease(PIECE, TIME).await?;
            let leases = [first, conn.request_lease(PIECE, TIME).await?];
            for file in files {
                let bytes = std::fs::read(&file).map_err(|error| unreadable(&file, &error))?;
                println!("{:08x} {}", sum(&conn, &leases, &bytes).await?, file.display());
            }
            conn.shutdown(Duration::from_secs(5)).await?;
        }
    }
    Ok(())
}
