//! Blocking sockets, plain or by rustls.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use crate::{LONG, Outcome, Way, each};

/// How a socket becomes a stream.
#[derive(Clone)]
enum Wrap {
    Plain,
    Tls(Arc<ClientConfig>, Arc<ServerConfig>),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Wrap {
    fn client(&self, socket: TcpStream) -> Outcome<Box<dyn Stream>> {
        Ok(match self {
            Wrap::Plain => Box::new(socket),
            Wrap::Tls(client, _) => {
                let name = ServerName::try_from("peer")?;
                let mut stream =
                    StreamOwned::new(ClientConnection::new(client.clone(), name)?, socket);
                stream.conn.complete_io(&mut stream.sock)?;
                Box::new(stream)
            }
        })
    }

    fn server(&self, socket: TcpStream) -> Outcome<Box<dyn Stream>> {
        Ok(match self {
            Wrap::Plain => Box::new(socket),
            Wrap::Tls(_, server) => {
                let mut stream = StreamOwned::new(ServerConnection::new(server.clone())?, socket);
                stream.conn.complete_io(&mut stream.sock)?;
                Box::new(stream)
            }
        })
    }
}

/// A connection to a thread that serves it.
pub(crate) struct Sockets {
    name: &'static str,
    wrap: Wrap,
    server: SocketAddr,
    stream: Box<dyn Stream>,
}

pub(crate) fn plain() -> Outcome<Sockets> {
    Sockets::new("sockets", Wrap::Plain)
}

pub(crate) fn rustls() -> Outcome<Sockets> {
    Sockets::new("rustls over sockets", tls()?)
}

impl Sockets {
    fn new(name: &'static str, wrap: Wrap) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = listener.local_addr()?;
        let serving = wrap.clone();
        // It lives as long as the process.
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let wrap = serving.clone();
                thread::spawn(move || serve(&wrap, socket));
            }
        });
        let stream = connect(&wrap, server)?;
        Ok(Sockets { name, wrap, server, stream })
    }
}

fn connect(wrap: &Wrap, server: SocketAddr) -> Outcome<Box<dyn Stream>> {
    let socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    wrap.client(socket)
}

/// Answers what comes: each request says how long it is; a short one comes back whole, a long one as a byte.
fn serve(wrap: &Wrap, socket: TcpStream) -> Outcome {
    socket.set_nodelay(true)?;
    let mut stream = wrap.server(socket)?;
    let mut bytes = vec![0; LONG];
    loop {
        let mut len = [0; 8];
        stream.read_exact(&mut len)?;
        let len = usize::from_le_bytes(len);
        stream.read_exact(&mut bytes[..len - 8])?;
        let answer = if len == 64 { 64 } else { 1 };
        stream.write_all(&bytes[..answer])?;
        stream.flush()?;
    }
}

impl Way for Sockets {
    fn name(&self) -> &'static str {
        self.name
    }

    fn set_up(&mut self, count: usize) -> Outcome<Duration> {
        let begun = Instant::now();
        for _ in 0..count {
            // The first answer shows that both ends are there.
            let mut stream = connect(&self.wrap, self.server)?;
            exchange(&mut *stream, 64, &mut [0; 64])?;
        }
        Ok(each(begun, count))
    }

    fn messages(&mut self, count: usize) -> Outcome<Duration> {
        let begun = Instant::now();
        for _ in 0..count {
            exchange(&mut *self.stream, 64, &mut [0; 64])?;
        }
        Ok(each(begun, count) / 2)
    }

    fn transfers(&mut self, count: usize) -> Outcome<Duration> {
        let bytes = transfer();
        let begun = Instant::now();
        for _ in 0..count {
            self.stream.write_all(&bytes)?;
        }
        self.stream.flush()?;
        for _ in 0..count {
            self.stream.read_exact(&mut [0])?;
        }
        Ok(each(begun, count))
    }
}

fn transfer() -> Vec<u8> {
    let mut bytes = vec![7; LONG];
    bytes[..8].copy_from_slice(&LONG.to_le_bytes());
    bytes
}

fn exchange(stream: &mut dyn Stream, len: usize, bytes: &mut [u8]) -> Outcome {
    bytes[..8].copy_from_slice(&len.to_le_bytes());
    stream.write_all(bytes)?;
    stream.flush()?;
    stream.read_exact(bytes)?;
    Ok(())
}

/// TLS 1.3 with the algorithms that this library takes, and a key that is not checked.
fn tls() -> Outcome<Wrap> {
    let provider = Arc::new(rustls::crypto::CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    });
    let pkcs8 =
        [&[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &[7; 32]]
            .concat();
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..]))?;
    let public = key.public_key().ok_or("no public key")?.to_vec();
    let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
    let versions = &[&rustls::version::TLS13];
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    Ok(Wrap::Tls(Arc::new(client), Arc::new(server)))
}

#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls13_signature(message, key, signed)
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
