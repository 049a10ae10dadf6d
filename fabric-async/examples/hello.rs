//! The ten lines: a buffer, a lease of the peer's memory, a write, an atomic, a message.
//!
//!     cargo run -q -p anyfabric-async --example hello -- serve & sleep 1; cargo run -q -p anyfabric-async --example hello -- greet

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use fabric_async::{Connection, Error, Listener};

mod common;

/// Greet another process through its own memory.
#[derive(Parser)]
#[command(
    after_help = "FABRIC_PROVIDER chooses the provider: tcp, verbs, verbs:mlx5_0. Over verbs --at is an address of the device."
)]
enum Args {
    /// Wait for one greeting.
    Serve {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:7476")]
        at: String,
    },
    /// Greet.
    Greet {
        /// Where the other process listens.
        #[arg(long, default_value = "127.0.0.1:7476")]
        at: String,
    },
}

async fn greet(at: &str) -> Result<(), Error> {
    let conn = Connection::connect(at).await?;
    let mut buf = conn.alloc(4096)?;
    buf.fill(0);
    buf[..5].copy_from_slice(b"hello");
    let remote = conn.request_lease(4096, Duration::from_secs(30)).await?;
    let buf = conn.write(buf, remote.at(0)).await?;
    let old = conn.fetch_add(remote.at(8), 1).await?;
    let buf = conn.send(buf).await?;
    println!("wrote and sent {} bytes; the number was {old}", buf.len());
    conn.shutdown(Duration::from_secs(5)).await
}

async fn serve(at: &str) -> Result<(), Error> {
    let listener = Listener::bind(at).await?;
    println!("listening on {}", listener.local_addr());
    let conn = listener.accept().await?;
    let message = conn.recv().await?;
    let text = String::from_utf8_lossy(message.get(..5).unwrap_or(&message));
    match conn.peer_addr() {
        Some(peer) => println!("{text:?} from {peer}"),
        None => println!("{text:?}"),
    }
    println!("the peer left: {}", conn.closed().await);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    env_logger::init();
    let outcome = match Args::parse() {
        Args::Serve { at } => serve(&at).await,
        Args::Greet { at } => greet(&at).await,
    };
    common::finish(outcome)
}
