//! HTTP by hyper, which knows nothing of fabrics, over connections as streams.
//!
//!     cargo run -q -p anyfabric-async --example http -- serve & sleep 1; cargo run -q -p anyfabric-async --example http -- get /hello
//!
//! `load` makes many requests and reports the rate. `proxy` lets every HTTP client in: it takes connections over
//! TCP, and passes each on over a fabric. With `--plain`, on both sides, the same over tokio's TCP.

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use fabric_async::{Listener, Stream};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

mod common;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// HTTP over a fabric.
#[derive(Parser)]
#[command(
    after_help = "FABRIC_PROVIDER chooses the provider: tcp, verbs, verbs:mlx5_0. Over verbs --at is an address of the device."
)]
struct Args {
    /// Where the server listens.
    #[arg(long, global = true, default_value = "127.0.0.1:7478")]
    at: String,
    /// Over tokio's TCP, to compare.
    #[arg(long, global = true)]
    plain: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Serve until killed: `/hello`, and `/bytes/N` for N bytes.
    Serve,
    /// Print what the server answers.
    Get {
        /// The path.
        path: String,
    },
    /// Take TCP connections, and pass each on to the server: for `curl`, `wrk` and browsers.
    Proxy {
        /// Where it listens.
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: String,
    },
    /// Make many requests.
    Load {
        /// The path.
        #[arg(long, default_value = "/hello")]
        path: String,
        /// Requests of each connection.
        #[arg(long, default_value_t = 5000)]
        requests: u32,
        /// Connections at a time.
        #[arg(long, default_value_t = 8)]
        connections: u32,
    },
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    let bytes = path.strip_prefix("/bytes/").and_then(|n| n.parse().ok()).filter(|n| *n <= 1 << 26);
    let (status, body) = match (path, bytes) {
        ("/hello", _) => (StatusCode::OK, Bytes::from_static(b"hello over a fabric\n")),
        (_, Some(count)) => (StatusCode::OK, vec![b'x'; count].into()),
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"not here\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

fn serve_one(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let serve = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer));
    tokio::spawn(async move {
        // Clients may leave while the last answer is still on its way.
        match serve.await {
            Err(error) if !error.is_incomplete_message() => eprintln!("a client left: {error}"),
            _ => {}
        }
    });
}

async fn serve(at: &str, plain: bool) -> Outcome {
    if plain {
        let listener = TcpListener::bind(at).await?;
        println!("listening on {}, plain TCP", listener.local_addr()?);
        loop {
            let stream = listener.accept().await?.0;
            stream.set_nodelay(true)?;
            serve_one(stream);
        }
    }
    let listener = Listener::bind(at).await?;
    println!("listening on {}", listener.local_addr());
    loop {
        serve_one(Stream::from(listener.accept().await?));
    }
}

async fn connect_plain(at: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Requests the path so many times over one connection; gives the last answer.
async fn request<S>(stream: S, path: &str, times: u32) -> Outcome<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driving = tokio::spawn(connection);
    let mut last = (StatusCode::OK, Bytes::new());
    for _ in 0..times {
        sender.ready().await?;
        let request = Request::builder().uri(path).header("host", "fabric");
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        last = (response.status(), response.into_body().collect().await?.to_bytes());
    }
    drop(sender);
    driving.await??;
    Ok(last)
}

async fn fetch(at: &str, plain: bool, path: &str, times: u32) -> Outcome<(StatusCode, Bytes)> {
    if plain {
        return request(connect_plain(at).await?, path, times).await;
    }
    request(Stream::connect(at).await?, path, times).await
}

async fn proxy(at: &str, plain: bool, listen: &str) -> Outcome {
    let listener = TcpListener::bind(listen).await?;
    println!("listening on {}, for {at}", listener.local_addr()?);
    loop {
        let mut client = listener.accept().await?.0;
        let at = at.to_owned();
        tokio::spawn(async move {
            if let Err(error) = pass_on(&at, plain, &mut client).await {
                eprintln!("a connection ended: {error}");
            }
        });
    }
}

async fn pass_on(at: &str, plain: bool, client: &mut TcpStream) -> Outcome {
    client.set_nodelay(true)?;
    if plain {
        copy_bidirectional(client, &mut connect_plain(at).await?).await?;
    } else {
        copy_bidirectional(client, &mut Stream::connect(at).await?).await?;
    }
    Ok(())
}

async fn load(at: &str, plain: bool, path: &str, requests: u32, connections: u32) -> Outcome {
    let start = Instant::now();
    let mut all = Vec::new();
    for _ in 0..connections {
        let (at, path) = (at.to_owned(), path.to_owned());
        all.push(tokio::spawn(async move { fetch(&at, plain, &path, requests).await }));
    }
    let mut bytes = 0;
    for one in all {
        bytes += one.await??.1.len() as u64 * u64::from(requests);
    }
    let time: Duration = start.elapsed();
    let count = f64::from(requests) * f64::from(connections);
    let rate = count / time.as_secs_f64();
    let volume = bytes as f64 / time.as_secs_f64() / 1e6;
    println!("{count} requests in {time:.2?}: {rate:.0} a second, {volume:.1} MB/s");
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    env_logger::init();
    common::finish(run(Args::parse()).await)
}

async fn run(Args { at, plain, what }: Args) -> Outcome {
    match what {
        What::Serve => serve(&at, plain).await,
        What::Get { path } => {
            let (status, body) = fetch(&at, plain, &path, 1).await?;
            println!("{status}\n{}", String::from_utf8_lossy(&body));
            Ok(())
        }
        What::Proxy { listen } => proxy(&at, plain, &listen).await,
        What::Load { path, requests, connections } => {
            load(&at, plain, &path, requests, connections).await
        }
    }
}
