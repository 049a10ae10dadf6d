// What the examples of the documentation hide: two datagram endpoints.

use fabric::{Capabilities, DatagramAttr, Hints};
use fabric_async::datagram::DatagramEndpoint;
use fabric_async::{Error, Node, block_on};

/// Runs an example on two endpoints.
pub fn datagrams<F>(example: impl FnOnce(DatagramEndpoint, DatagramEndpoint) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let run = async {
        let hints = Hints { capabilities: Capabilities::DATAGRAMS, ..Hints::default() };
        let node = Node::builder().hints(hints).build()?;
        let client = DatagramEndpoint::new(&node, &DatagramAttr::default())?;
        let server = DatagramEndpoint::new(&node, &DatagramAttr::default())?;
        example(client, server).await
    };
    block_on(run).expect("the example works");
}
