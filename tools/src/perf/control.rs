//! What the two ends send each other beside the connections that are measured: over a TCP connection of its own, so
//! that the measured domain carries nothing else.
//!
//! Each message is a length (32 bits, little-endian) and that many bytes of JSON. First both say who they are.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fabric_util::introductions::{ReadUntil, leave};
use fabric_util::mutual_proof::{keys_from_env, prove};
use fabric_util::proof::{HandshakeKeys, Prover};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::problem::Outcome;

/// Raised whenever the two ends of an older version would misunderstand each other.
const PROTOCOL: u32 = 1;
const MAGIC: &str = "fabric perf";
const LONGEST: usize = 64 << 10;
/// A peer that is no `fabric perf` is noticed after so long.
const HELLO: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Hello {
    magic: String,
    protocol: u32,
    version: String,
    /// Not said by versions that had no word for it.
    #[serde(default)]
    debug_build: bool,
    /// Why the other end is sent away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

impl Hello {
    fn own() -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let debug_build = cfg!(debug_assertions);
        Hello { magic: MAGIC.into(), protocol: PROTOCOL, version, debug_build, refusal: None }
    }
}

/// From the client.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Prepare for this, with this region at my end (its descriptor; empty for plain sockets).
    Run(Plan, Vec<u8>),
}

/// From the server.
#[derive(Serialize, Deserialize)]
pub(crate) enum Reply {
    Ready(Ready),
    /// All connections stand.
    Connected {
        /// What each idle connection takes here.
        idle_bytes: f64,
    },
    Done(Done),
    Failed(String),
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Where to connect.
    pub(crate) address: SocketAddr,
    /// The descriptor of the region.
    pub(crate) region: Vec<u8>,
    /// What each connection begins with, so that strangers are noticed.
    pub(crate) secret: u64,
    pub(crate) provider: String,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Wake-ups of all threads while only idle connections were there.
    pub(crate) wakeups: u64,
    pub(crate) cpu_s: f64,
}

pub(crate) struct Control {
    stream: TcpStream,
    /// The other end is a debug build.
    pub(crate) debug_build: bool,
}

impl Control {
    pub(crate) fn connect(to: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&to, HELLO).map_err(|error| {
            format!("cannot connect to {to}: {error}; is `fabric perf --serve` running there?")
        })?;
        let keys = keys_from_env()?;
        Self::over(stream, keys.as_ref(), Prover::Initiator)
            .map_err(|error| format!("{to}: {error}").into())
    }

    /// Proves the secret of these keys if there is one, and has the other end do so; says who this is and hears who the other
    /// one is.
    pub(crate) fn over(
        stream: TcpStream,
        keys: Option<&HandshakeKeys>,
        end: Prover,
    ) -> Outcome<Self> {
        stream.set_nodelay(true)?;
        let mut control = Control { stream, debug_build: false };
        if let Some(Err(why)) = keys.map(|keys| prove(&control.stream, keys, end, HELLO)) {
            if end == Prover::Acceptor {
                // It may be gone already.
                let _ = control.say(&Hello { refusal: Some(why.clone()), ..Hello::own() });
                let _ = leave(&control.stream);
            }
            return Err(why.into());
        }
        control.say(&Hello::own())?;
        let stranger = |error| format!("the other end is no `fabric perf`: {error}");
        let hello: Hello = control.hear(HELLO).map_err(stranger)?;
        if hello.magic != MAGIC {
            return Err(stranger(format!("it calls itself {:?}", hello.magic).into()).into());
        }
        if let Some(why) = hello.refusal {
            return Err(why.into());
        }
        if hello.protocol != PROTOCOL {
            return Err(format!(
                "the other end is fabric {} and speaks version {} of the perf protocol, this one is fabric {} and \
                 speaks version {PROTOCOL}: run the same version on both",
                hello.version,
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            )
            .into());
        }
        control.debug_build = hello.debug_build;
        Ok(control)
    }

    pub(crate) fn local_addr(&self) -> Outcome<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    pub(crate) fn say<T: Serialize>(&mut self, message: &T) -> Outcome {
        let body = serde_json::to_vec(message)?;
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        self.stream.set_write_timeout(Some(HELLO))?;
        Ok(self.stream.write_all(&bytes).map_err(gone)?)
    }

    /// The next message, within `patience`.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, patience: Duration) -> Outcome<T> {
        self.hear_or_end(Some(patience))?
            .ok_or_else(|| gone(ErrorKind::UnexpectedEof.into()).into())
    }

    /// The next message; `None` if the other end has left in between two messages.
    pub(crate) fn hear_or_end<T: DeserializeOwned>(
        &mut self,
        patience: Option<Duration>,
    ) -> Outcome<Option<T>> {
        self.stream.set_read_timeout(patience)?;
        let mut length = [0; 4];
        match self.stream.read(&mut length[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(gone(error).into()),
        }
        // Once it has begun, for all of the message.
        let mut rest = ReadUntil::new(&self.stream, HELLO);
        rest.read_exact(&mut length[1..]).map_err(gone)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err("what it sends is no message of this protocol".into());
        }
        let mut body = vec![0; length];
        rest.read_exact(&mut body).map_err(gone)?;
        serde_json::from_slice(&body)
            .map(Some)
            .map_err(|error| format!("a message that cannot be understood: {error}").into())
    }
}

fn gone(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "nothing was heard in time".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the other end is gone".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What `over` makes of an other end that sends these bytes.
    fn meets(bytes: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other.write_all(bytes).unwrap();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        let stream = listener.accept().unwrap().0;
        Control::over(stream, None, Prover::Acceptor).err().unwrap().to_string()
    }

    fn framed(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn strangers_and_other_versions_are_told_apart() {
        let other = meets(&framed(r#"{"magic":"fabric perf","protocol":99,"version":"7.0.0"}"#));
        assert!(other.contains("fabric 7.0.0") && other.contains("version 99"), "{other}");
        assert!(other.contains("run the same version"), "{other}");
        let stranger = meets(&framed(r#"{"magic":"iperf","protocol":1,"version":"3"}"#));
        assert!(stranger.contains("no `fabric perf`") && stranger.contains("iperf"), "{stranger}");
        let http = meets(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        assert!(http.contains("no `fabric perf`") && http.contains("no message of this"), "{http}");
        assert!(meets(b"").contains("the other end is gone"));
        assert!(meets(&framed("[]")).contains("cannot be understood"));
    }
}
