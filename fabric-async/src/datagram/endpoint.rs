//! The endpoint as applications have it.

use std::fmt;
use std::sync::Arc;

use fabric::{AddressHandle, Counters, DatagramAddress, DatagramAttr, DatagramDrops};

use super::inner::DatagramInner;
use super::recv::{DatagramStream, RecvDatagram};
use super::send::{InjectDatagram, SendDatagram};
use crate::error::Result;
use crate::node::Node;
use crate::oneshot::Oneshot;
use crate::op_buffers::Payload;
use crate::pool::Pool;
use crate::wakers::Wakers;

/// An endpoint that sends datagrams to any address, without connections: unreliable, and cheap where peers are many.
///
/// What it promises is what [`fabric::DatagramEndpoint`] does. Here operations are futures that own their buffers, which are of the
/// node's [`Pool`], and what arrives waits in an inbox: see [the module](super). Any task or thread may use it; clones are the same
/// endpoint. It ends with its last handle and future.
///
/// ```
/// use fabric::{Capabilities, DatagramAttr, Hints};
/// use fabric_async::datagram::DatagramEndpoint;
/// use fabric_async::{Node, block_on};
///
/// # fn main() -> Result<(), fabric_async::Error> {
/// let hints = Hints { capabilities: Capabilities::DATAGRAMS, ..Hints::default() };
/// let node = Node::builder().hints(hints).build()?;
/// let server = DatagramEndpoint::new(&node, &DatagramAttr::default())?;
/// let client = DatagramEndpoint::new(&node, &DatagramAttr::default())?;
/// // The client has it from a file, an argument, a server of names.
/// let text = server.address().to_string();
///
/// block_on(async {
///     let to_server = client.resolve(&text.parse()?).await?;
///     client.inject_to(&to_server, b"question").await?;
///
///     let question = server.recv_from().await?;
///     assert_eq!(*question, *b"question");
///     let to_client = server.resolve(&question.source.expect("this device says so")).await?;
///     server.send_to(&to_client, node.pool().alloc_from(b"answer")?).await?;
///
///     assert_eq!(*client.recv_from().await?, *b"answer");
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct DatagramEndpoint {
    inner: Arc<DatagramInner>,
}

impl DatagramEndpoint {
    /// Makes an endpoint on the node's device. Its completion queue, memory, thread and
    /// [`WaitStrategy`](crate::WaitStrategy) are those of the node.
    ///
    /// # Errors
    /// The fabric's, as of [`Domain::datagram_endpoint`](fabric::Domain::datagram_endpoint): `Unsupported` where the device has no
    /// datagrams, or the domain a level of security; `InvalidArgument` that names the setting, or says how much room the node's
    /// [completion queue](crate::NodeBuilder::completions) has left. `PoolExhausted` without memory for a single receive.
    pub fn new(node: &Node, attr: &DatagramAttr) -> Result<Self> {
        Ok(DatagramEndpoint { inner: DatagramInner::new(&node.inner, attr)? })
    }

    /// Its address, for those who send to it: ship it by any way, as bytes or text.
    pub fn address(&self) -> DatagramAddress {
        self.inner.endpoint.address()
    }

    /// The settings it was made with.
    pub fn attr(&self) -> &DatagramAttr {
        self.inner.endpoint.attr()
    }

    /// Bytes of the longest datagram that it sends.
    pub fn max_len(&self) -> usize {
        self.inner.endpoint.max_len()
    }

    /// The node that it is on.
    pub fn node(&self) -> Node {
        Node { inner: self.inner.node.clone() }
    }

    /// The registered memory that buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.inner.node.pool
    }

    /// Makes ready to send to an address. A thread of its own asks for the way there, since on RoCE that may take seconds; so keep
    /// handles. They are of this endpoint alone; clones are the same handle.
    ///
    /// # Errors
    /// The fabric's, as of [`fabric::DatagramEndpoint::resolve`]: `InvalidArgument`, `Unreachable`, `NoMemory`, `DeviceLost`, and
    /// `InvalidState` in a forked child.
    pub fn resolve(
        &self,
        address: &DatagramAddress,
    ) -> impl Future<Output = Result<AddressHandle>> + Send + 'static + use<> {
        let (inner, address) = (self.inner.clone(), *address);
        async move {
            // A child made by fork makes no thread: what another thread of its parent held then is held there for ever.
            if let Some(refusal) = inner.node.driver.refusal() {
                return Err(refusal);
            }
            let oneshot = Oneshot::new();
            let keeper = oneshot.clone();
            let thread = std::thread::Builder::new().name("fabric-resolve".to_owned());
            let spawned = thread.spawn(move || {
                keeper.send(inner.endpoint.resolve(&address), &mut Wakers::new());
            });
            if let Err(cause) = spawned {
                return Err(fabric::Error::system("resolve", "fabric-async", cause).into());
            }
            Ok(oneshot.value().await?)
        }
    }

    /// Sends a datagram of at most [`max_len`](DatagramEndpoint::max_len) bytes, from at most four buffers. The future is done when
    /// the buffer is free again; whether the datagram arrives is not known.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument` for more bytes or buffers, or another endpoint's handle; `DeviceLost`. The error has the
    /// buffer. Nothing that a network or a peer does fails it.
    pub fn send_to<P: Payload>(&self, to: &AddressHandle, payload: P) -> SendDatagram<P> {
        SendDatagram::new(&self.inner, to, payload)
    }

    /// Sends a short datagram, of at most [`DatagramAttr::inject`] bytes, which are copied. The future is done when it is posted.
    ///
    /// # Errors
    /// As [`send_to`](DatagramEndpoint::send_to).
    pub fn inject_to<'a>(&self, to: &AddressHandle, bytes: &'a [u8]) -> InjectDatagram<'a> {
        InjectDatagram::new(&self.inner, to, bytes)
    }

    /// The next datagram, whatever its sender. Dropping the future loses nothing. Several tasks that wait are served in turn.
    ///
    /// # Errors
    /// The fabric's `DeviceLost`, when every datagram that arrived before has been taken; `InvalidState` in a forked child.
    #[inline]
    pub fn recv_from(&self) -> RecvDatagram {
        RecvDatagram::new(&self.inner)
    }

    /// All further datagrams as a stream. Dropping it loses nothing.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/datagrams.rs")); }
    /// use futures_util::StreamExt;
    ///
    /// # doc::datagrams(async |client, server| {
    /// let to_server = client.resolve(&server.address()).await?;
    /// for number in 0..4 {
    ///     client.inject_to(&to_server, b"").immediate(number).await?;
    /// }
    /// let mut datagrams = server.datagrams();
    /// while let Some(datagram) = datagrams.next().await.transpose()? {
    ///     if datagram.immediate == Some(3) {
    ///         break;
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`recv_from`](DatagramEndpoint::recv_from), as the last item.
    pub fn datagrams(&self) -> DatagramStream {
        DatagramStream::new(&self.inner)
    }

    /// Datagrams that were dropped at this end so far; `None` where the device does not say.
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub fn drops(&self) -> Result<DatagramDrops> {
        Ok(self.inner.endpoint.drops()?)
    }

    /// Datagrams that were lost since they were longer than the receives are, which is as long as
    /// [`NodeBuilder::max_message`](crate::NodeBuilder::max_message) allows: those that the node knows of, which it hears of when a
    /// future is polled.
    pub fn too_long(&self) -> u64 {
        self.inner.state.inbox().too_long
    }

    /// What it did so far: posts, and how they ended.
    pub fn counters(&self) -> Counters {
        self.inner.endpoint.counters()
    }

    /// Its state as text, for a bug report.
    pub fn dump(&self) -> String {
        self.inner.endpoint.dump()
    }
}

impl fmt::Debug for DatagramEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatagramEndpoint({:?})", self.address())
    }
}
