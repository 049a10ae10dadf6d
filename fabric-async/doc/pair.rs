// What the examples of the documentation hide: two ends of a connection in one process.

use fabric_async::{Connection, Error, Node, block_on};

/// Runs an example on both ends of a connection.
pub fn pair<F>(example: impl FnOnce(Connection, Connection) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    pair_on(&Node::shared().expect("there is a device"), example);
}

/// Runs an example on both ends of a connection of this node.
pub fn pair_on<F>(node: &Node, example: impl FnOnce(Connection, Connection) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let run = async {
        let listener = node.listen("127.0.0.1:0").await?;
        let (to, node) = (listener.local_addr(), node.clone());
        let connecting = std::thread::spawn(move || block_on(node.connect(to)));
        let peer = listener.accept().await?;
        let conn = connecting.join().expect("it does not panic")?;
        example(conn, peer).await
    };
    block_on(run).expect("the example works");
}
