//! Streams: a connection as bytes in and bytes out, for software that knows nothing else.
//!
//! One copy on each side: from the writer's memory into a buffer of the pool, which is then sent as it is, and from the
//! received buffer into the reader's memory. Flow is controlled by what the connection does anyway: the peer posts so many
//! receives, a message beyond them waits here, and no more than a few messages are under way. An empty message says that no
//! more bytes will come.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::DisconnectReason;

use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::error::{Error, OpError};
use crate::operation::Operation;
use crate::pool::AllocWait;
use crate::recv::Receive;

/// Bytes of one message, if the peer takes as many.
const CHUNK: usize = 64 << 10;
/// Messages of a stream that are under way, unless the send queue is shorter.
const DEPTH: usize = 8;

/// A connection as a stream of bytes: [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`].
///
/// Software that runs over a `TcpStream` runs over this, on any provider. Both ends must use the connection as a stream, and
/// for nothing else. What is written leaves at once, in messages of at most 64 KiB, so `flush` has nothing to do;
/// `shutdown` signals the end of the stream to the peer, and waits until its side has everything. Dropping it closes the
/// connection at once, so shut down first: only that confirms that all bytes have arrived at the peer's side.
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
    /// In line for room, where operations from before this was a stream have it; nothing of it was sent.
    waiting: Option<Operation<Buffer>>,
    memory: Option<AllocWait>,
    /// This side writes no more.
    closed: bool,
    /// A message could not be sent.
    has_failed: bool,
}

impl From<Connection> for Stream {
    fn from(conn: Connection) -> Self {
        Stream {
            conn,
            arrived: Buffer::empty(),
            read: 0,
            receiving: None,
            ended: false,
            sending: VecDeque::with_capacity(DEPTH),
            waiting: None,
            memory: None,
            closed: false,
            has_failed: false,
        }
    }
}

impl Stream {
    /// Connects, on the [shared node](crate::Node::shared).
    ///
    /// ```
    /// # use fabric_async::{Listener, Stream};
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = Listener::bind("127.0.0.1:0").await?;
    /// let (client, conn) = tokio::join!(Stream::connect(listener.local_addr()), listener.accept());
    /// let (mut client, mut server) = (client?, Stream::from(conn?));
    /// client.write_all(b"hello").await?;
    /// let mut bytes = [0; 5];
    /// server.read_exact(&mut bytes).await?;
    /// assert_eq!(&bytes, b"hello");
    /// # Ok(()) }
    /// ```
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

    /// How many messages may be under way.
    fn depth(&self) -> usize {
        DEPTH.min(self.conn.inner.endpoint.attr().send_depth)
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

    /// Ends what is done of what was sent; pending while more than `max` messages are under way.
    fn poll_sent(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<()>> {
        loop {
            let under_way = self.sending.len();
            let Some(first) = self.sending.front_mut() else { break };
            let done = match first.try_take() {
                Some(done) => done,
                None if under_way <= max => break,
                None => ready!(Pin::new(first).poll(cx)),
            };
            self.sending.pop_front();
            if let Err(failed) = done {
                // Behind all bytes comes the end of the stream, and who left before that missed nothing.
                let left = matches!(failed.error, Error::Disconnected(DisconnectReason::Remote));
                if left && self.closed && self.sending.is_empty() {
                    continue;
                }
                return Poll::Ready(Err(self.failed(failed)));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// A message could not be sent, so none after it can.
    fn failed(&mut self, failed: OpError<Buffer>) -> io::Error {
        self.sending.clear();
        (self.closed, self.has_failed) = (true, true);
        failed.into()
    }

    /// Posts a message, and waits for it later. There is room for it if fewer than `depth` are in flight, and no others.
    fn poll_post(&mut self, cx: &mut Context<'_>, message: Buffer) -> Poll<()> {
        let mut sending = self.conn.send(message);
        if sending.poll_posted(cx).is_pending() {
            // Only its place in the queue counts: the next call may come with other bytes.
            self.waiting = Some(sending);
            return Poll::Pending;
        }
        self.sending.push_back(sending);
        Poll::Ready(())
    }

    /// Memory for a message. It waits for what is under way, too: that has some.
    fn poll_memory(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<io::Result<Buffer>> {
        loop {
            let Stream { memory, conn, sending, .. } = self;
            let got = match memory {
                Some(memory) => Pin::new(memory).poll(cx),
                None => match conn.inner.node.pool.alloc_dirty(len) {
                    Err(Error::PoolExhausted { .. }) => {
                        *memory = Some(conn.inner.node.pool.alloc_wait_dirty(len));
                        continue;
                    }
                    got => Poll::Ready(got),
                },
            };
            if let Poll::Ready(got) = got {
                *memory = None;
                return Poll::Ready(Ok(got?));
            }
            let Some(others) = sending.len().checked_sub(1) else { return Poll::Pending };
            ready!(self.poll_sent(cx, others))?;
        }
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
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    /// Several parts need not be copied together first.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.waiting = None;
        if this.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let max = CHUNK.min(this.conn.max_message()).max(1);
        let len = parts.iter().fold(0, |len: usize, part| len.saturating_add(part.len())).min(max);
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(this.poll_sent(cx, this.depth() - 1))?;
        let mut message = ready!(this.poll_memory(cx, len))?;
        // A caller that had to wait may come back with other bytes.
        let len = len.min(message.len());
        message.truncate(len);
        let mut left = &mut message[..];
        for part in parts {
            let (to, rest) = left.split_at_mut(part.len().min(left.len()));
            to.copy_from_slice(&part[..to.len()]);
            left = rest;
        }
        ready!(this.poll_post(cx, message));
        // That the connection has ended is known at once.
        if let Some(done) = this.sending.back_mut().and_then(Operation::try_take) {
            this.sending.pop_back();
            if let Err(failed) = done {
                return Poll::Ready(Err(this.failed(failed)));
            }
        }
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sent(cx, usize::MAX)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        (this.memory, this.waiting) = (None, None);
        if this.has_failed {
            // Bytes are lost, though an earlier call said so already.
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !this.closed {
            ready!(this.poll_sent(cx, this.depth() - 1))?;
            ready!(this.poll_post(cx, Buffer::empty()));
            this.closed = true;
        }
        this.poll_sent(cx, 0)
    }
}
