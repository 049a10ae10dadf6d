//! What comes between a client and its answers.

use std::io;
use std::net::{SocketAddr, TcpListener};

use super::*;
use crate::server::tests::{join, member, secret, server};

/// Passes connections on: of each so many bytes in both directions, and of the last all.
fn cut(server: SocketAddr, lengths: &'static [u64]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for length in lengths.iter().copied().chain([u64::MAX]) {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            thread::scope(|scope| {
                for (from, mut to) in [(&client, &server), (&server, &client)] {
                    scope.spawn(move || io::copy(&mut from.take(length), &mut to));
                }
            });
        }
    });
    at
}

/// As a server does to the oldest of those that have not joined, for others.
#[test]
fn a_client_whose_connection_ends_before_it_has_joined_tries_again() {
    const HELLOS: u64 = HELLO as u64;
    const PROOFS: u64 = HELLOS + PROOF as u64;
    for (secret, lengths) in [(None, &[0, HELLOS][..]), (secret(1), &[0, HELLOS, PROOFS])] {
        let server = server(|options| options.secret = secret.clone());
        let at = cut(server.local_addr(), lengths);
        let exchange = join(at, &member("job", 1, 0), secret).unwrap();
        exchange.put("key", b"x").unwrap();
    }
}

#[test]
fn an_answer_that_came_while_the_process_was_stopped_is_taken() {
    let is_taken = || {
        let (sender, receiver) = sync_channel(1);
        thread::scope(|scope| {
            // The thread that reads, which goes on as late as the one that waits.
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                sender.send(Say::Late).unwrap();
            });
            receive(&receiver, Duration::ZERO) == Ok(Say::Late)
        })
    };
    // Others may have the processors for longer than that is waited for.
    assert!((0..10).any(|_| is_taken()));
}

#[test]
fn ends_are_said_in_words() {
    let text = |kind: ErrorKind| in_words(&kind.into());
    assert_eq!(text(ErrorKind::UnexpectedEof), "the server closed it");
    assert_eq!(text(ErrorKind::TimedOut), "the server's host does not answer");
    assert!(text(ErrorKind::WouldBlock).contains("took nothing"));
}
