// What the examples of the documentation hide: two ends of a connection in one process.

use fabric_async::{Connection, Error, Listener, block_on};

/// Runs an example on both ends of a connection.
#[allow(dead_code)]
pub fn pair<F>(example: impl FnOnce(Connection, Connection) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let run = async {
        let listener = Listener::bind("127.0.0.1:0").await?;
        let to = listener.local_addr();
        let connecting = std::thread::spawn(move || block_on(Connection::connect(to)));
        let peer = listener.accept().await?;
        let conn = connecting.join().expect("it does not panic")?;
        example(conn, peer).await
    };
    block_on(run).expect("the example works");
}
