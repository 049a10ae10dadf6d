// What the examples of the documentation hide: two reliable datagram endpoints that know each other.

use fabric_async::rdm::Endpoint;
use fabric_async::{Error, Node, block_on};
use fabric_rdm::{Peer, RdmAttr};

/// Runs an example on two endpoints, with the peer that the second is to the first, and the other way round.
pub fn endpoints<F>(example: impl FnOnce(Endpoint, Endpoint, Peer, Peer) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let run = async {
        let node = Node::shared()?;
        let a = Endpoint::new(&node, &RdmAttr::default())?;
        let b = Endpoint::new(&node, &RdmAttr::default())?;
        let (to_b, to_a) = (a.insert(b.address())?, b.insert(a.address())?);
        example(a, b, to_b, to_a).await
    };
    block_on(run).expect("the example works");
}
