//! Streams: a connection as bytes in and bytes out, for software that knows nothing else.
//!
//! One copy on each side: from the writer's memory into a buffer of the pool, which is then sent as it is, and from the
//! received buffer into the reader's memory. Flow is controlled by what the connection does anyway: the peer posts so many
//! receives, a message beyond them waits here, and no more than a few messages are under way. An empty message says that no
//! more bytes will come.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::error::{Error, Failed};
use crate::operation::Operation;
use crate::pool::AllocWait;
use crate::recv::Receive;

/// Bytes of one message, if the peer takes as many.
const CHUNK: usize = 64 << 10;
/// Messages of a stream that are under way.
const DEPTH: usize = 8;

/// A connection as a stream of bytes: [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`].
///
/// Software that runs over a `TcpStream` runs over this, on any provider. Both ends must use the connection as a stream, and
/// for nothing else. What is written leaves at once, in messages of at most 64 KiB; `flush` waits until the peer's side has
/// it, `shutdown` also tells the peer that no more comes. Dropping it closes the connection at once, so shut down first.
///
/// ```
/// use fabric_async::{Listener, Stream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Listener::bind("127.0.0.1:0").await?;
/// let address = listener.local_addr();
/// let server = tokio::spawn(async move {
///     let mut stream = Stream::from(listener.accept().await?);
///     let mut request = String::new();
///     stream.read_to_string(&mut request).await?;
///     stream.write_all(request.to_uppercase().as_bytes()).await?;
///     stream.shutdown().await?;
///     Ok::<_, std::io::Error>(())
/// });
/// let mut stream = Stream::connect(address).await?;
/// stream.write_all(b"as if it were tcp").await?;
/// stream.shutdown().await?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer).await?;
/// assert_eq!(answer, "AS IF IT WERE TCP");
/// server.await??;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Stream {
    conn: Connection,
    /// What arrived and was not read yet.
    arrived: Buffer,
    read: usize,
    receiving: Option<Receive>,
    /// The peer writes no more.
    ended: bool,
    sending: VecDeque<Operation<Buffer>>,
    memory: Option<AllocWait>,
    /// This side writes no more.
    closed: bool,
}

impl From<Connection> for Stream {
    fn from(conn: Connection) -> Self {
        Stream {
            conn,
            arrived: Buffer::empty(),
            read: 0,
            receiving: None,
            ended: false,
            sending: VecDeque::with_capacity(DEPTH + 1),
            memory: None,
            closed: false,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Disconnected(fabric::DisconnectReason::Remote) => io::ErrorKind::ConnectionReset,
            Error::Disconnected(_) => io::ErrorKind::ConnectionAborted,
            Error::TimedOut(_) => io::ErrorKind::TimedOut,
            Error::PoolExhausted { .. } => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl<B> From<Failed<B>> for io::Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error.into()
    }
}

impl Stream {
    /// Connects, on the [shared node](crate::Node::shared).
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect(to: impl crate::Address) -> Result<Stream, Error> {
        Ok(Connection::connect(to).await?.into())
    }

    /// The connection beneath.
    pub fn connection(&self) -> &Connection {
        &self.conn
    }

    /// Bytes that arrived: at least one, or none at the end.
    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        while self.read == self.arrived.len() && !self.ended {
            let receiving = self.receiving.get_or_insert_with(|| self.conn.recv());
            let message = ready!(Pin::new(receiving).poll(cx));
            self.receiving = None;
            let message = message?;
            self.ended = message.is_empty();
            (self.arrived, self.read) = (message.buffer, 0);
        }
        Poll::Ready(Ok(&self.arrived[self.read..]))
    }

    /// Ends what is done of what was sent; pending while more than `most` messages are under way.
    fn poll_sent(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        while let Some(first) = self.sending.front_mut() {
            match Pin::new(first).poll(cx) {
                Poll::Ready(done) => {
                    self.sending.pop_front();
                    if let Err(failed) = done {
                        self.sending.clear();
                        self.closed = true;
                        return Poll::Ready(Err(failed.into()));
                    }
                }
                Poll::Pending if self.sending.len() > most => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Posts a message; it is waited for later.
    fn send(&mut self, cx: &mut Context<'_>, message: Buffer) -> io::Result<()> {
        let mut sending = self.conn.send(message);
        match Pin::new(&mut sending).poll(cx) {
            Poll::Ready(done) => drop(done?),
            Poll::Pending => self.sending.push_back(sending),
        }
        Ok(())
    }
}

impl tokio::io::AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let bytes = ready!(this.poll_arrived(cx))?;
        let count = bytes.len().min(out.remaining());
        out.put_slice(&bytes[..count]);
        this.read += count;
        if this.read == this.arrived.len() {
            // Back to the pool at once: the peer may wait for it.
            (this.arrived, this.read) = (Buffer::empty(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(this.poll_sent(cx, DEPTH - 1))?;
        let len = bytes.len().min(CHUNK).min(this.conn.max_message()).max(1);
        let mut message = match this.conn.alloc(len) {
            Err(Error::PoolExhausted { .. }) => {
                let Stream { memory, conn, .. } = this;
                let memory = memory.get_or_insert_with(|| conn.alloc_wait(len));
                ready!(Pin::new(memory).poll(cx))?
            }
            other => other?,
        };
        this.memory = None;
        // Whoever had to wait may come back with other bytes.
        let len = len.min(message.len());
        message.truncate(len);
        message.copy_from_slice(&bytes[..len]);
        this.send(cx, message)?;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sent(cx, 0)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            this.closed = true;
            this.send(cx, Buffer::empty())?;
        }
        this.poll_sent(cx, 0)
    }
}
