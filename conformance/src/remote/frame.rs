//! How the two ends talk: a line each that names program and version, then frames of bounded length.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fabric_util::introductions::{ReadUntil, leave};
use fabric_util::mutual_proof::{MAGIC, prove};
use fabric_util::proof::{HandshakeKeys, Prover};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Of calls, answers and what they mean. Both ends have the same, or part.
const PROTOCOL: u32 = 4;
/// No frame is longer: room for the largest batch of operations, and for a [`CHUNK`] of payload.
const MAX_FRAME: usize = 16 << 20;
/// Bytes of memory that travel in one frame.
pub(super) const CHUNK: usize = 1 << 20;
/// No line is longer.
const MAX_LINE: usize = 256;
/// How long the other end may take for its whole line: it may be a guest on a busy machine, and nothing runs there for 30 s.
const GREET_TIMEOUT: Duration = Duration::from_secs(60);

/// What each end says first. A word size or byte order of its own would make memory mean something else there.
pub(super) fn own_line() -> String {
    let order = if cfg!(target_endian = "little") { "little" } else { "big" };
    let version = env!("CARGO_PKG_VERSION");
    format!("fabric-conformance {version} protocol {PROTOCOL} {order}-endian {}", usize::BITS)
}

/// The near end's introduction, and the server's answer; behind the proof of the secret of these keys, if there is one. The
/// error is for people.
pub(super) fn greet(stream: &TcpStream, keys: Option<&HandshakeKeys>) -> Result<(), String> {
    prove_as(stream, keys, Prover::Initiator)?;
    say_own_line(stream)?;
    hear_line(stream)
}

/// The server's part: hears who the other end is.
pub(super) fn hear(stream: &TcpStream, keys: Option<&HandshakeKeys>) -> Result<(), String> {
    prove_as(stream, keys, Prover::Acceptor)?;
    hear_line(stream)
}

fn prove_as(stream: &TcpStream, keys: Option<&HandshakeKeys>, end: Prover) -> Result<(), String> {
    keys.map_or(Ok(()), |keys| prove(stream, keys, end, GREET_TIMEOUT))
}

/// Says who this is. The server does that when it lets the other end in.
pub(super) fn say_own_line(stream: &TcpStream) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    stream.set_nodelay(true).map_err(text)?;
    stream.set_write_timeout(Some(GREET_TIMEOUT)).map_err(text)?;
    write_line(stream, &own_line()).map_err(text)
}

/// Hears who the other end is: the same program, or the reason why not.
fn hear_line(stream: &TcpStream) -> Result<(), String> {
    let silent = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => format!("it did not say who it is within {GREET_TIMEOUT:?}"),
        _ => format!("it did not say who it is: {error}"),
    };
    let theirs = read_line(ReadUntil::new(stream, GREET_TIMEOUT)).map_err(silent)?;
    stream.set_read_timeout(None).map_err(|error| error.to_string())?;
    let own = own_line();
    if theirs == own {
        return Ok(());
    }
    match theirs.strip_prefix("error: ") {
        Some(reason) => Err(reason.to_owned()),
        None if theirs.starts_with(MAGIC) => {
            Err("it has a secret, and this server has none (FABRIC_SECRET_FILE)".to_owned())
        }
        None if theirs.starts_with("fabric-conformance ") => {
            Err(format!("it is {theirs:?}, this is {own:?}: run the same program at both ends"))
        }
        None => Err(format!("it is no fabric-conformance; it says {theirs:?}")),
    }
}

/// Sends the other end away, with the reason.
pub(super) fn refuse(stream: &TcpStream, reason: &str) -> io::Result<()> {
    write_line(stream, &format!("error: {reason}"))?;
    leave(stream)
}

fn write_line(mut stream: &TcpStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

fn read_line(mut stream: impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte: what follows the line is not for this reader.
    while line.len() < MAX_LINE {
        if stream.read(&mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte == *b"\n" {
            break;
        }
        line.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(text.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// Writes one frame.
pub(super) fn write(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let len = frame.len() - 4;
    if len > MAX_FRAME {
        return Err(io::Error::other(format!("a frame of {len} bytes; it may have {MAX_FRAME}")));
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    stream.write_all(&frame)
}

/// Reads one frame; `None` if the other end has closed.
pub(super) fn read<T: DeserializeOwned>(mut stream: &TcpStream) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match stream.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_FRAME {
        return Err(io::Error::other(format!("a frame of {len} bytes; it may have {MAX_FRAME}")));
    }
    let mut frame = vec![0; len];
    stream.read_exact(&mut frame)?;
    postcard::from_bytes(&frame).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn frames_arrive_whole_and_their_end_is_seen() {
        let (near, far) = connected();
        write(&near, &(7u32, "text")).unwrap();
        drop(near);
        assert_eq!(read::<(u32, String)>(&far).unwrap(), Some((7, "text".to_owned())));
        assert_eq!(read::<(u32, String)>(&far).unwrap(), None);
    }

    #[test]
    fn frames_that_lie_are_refused() {
        let too_long = u32::MAX.to_le_bytes().to_vec();
        let no_such_value = [&2u32.to_le_bytes()[..], &[0xff, 0xff]].concat();
        let cut_short = [&9u32.to_le_bytes()[..], &[1]].concat();
        for bytes in [too_long, no_such_value, cut_short] {
            let (mut near, far) = connected();
            near.write_all(&bytes).unwrap();
            drop(near);
            assert!(read::<Option<u32>>(&far).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn strangers_are_named() {
        for (line, named) in [
            ("HTTP/1.1 400 Bad Request\r\n", "it is no fabric-conformance; it says \"HTTP/1.1"),
            ("error: too many\n", "too many"),
            ("fabric-conformance 0.0.1 protocol 0\n", "run the same program at both ends"),
            ("", "it did not say who it is"),
        ] {
            let (near, mut far) = connected();
            far.write_all(line.as_bytes()).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            let error = greet(&near, None).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
