//! The examples, each as two processes, as their first lines say. `FABRIC_PROVIDER` chooses what over.

#![cfg(all(feature = "tokio", not(miri)))] // Miri has no processes
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

/// An example, built beside this test.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    Command::new(test.parent().unwrap().parent().unwrap().join("examples").join(name))
}

/// A server that is killed when the test is over.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(name: &str) -> Self {
        Self::run(name, &["serve", "--at", &common::address()])
    }

    fn run(name: &str, args: &[&str]) -> Self {
        let child = example(name).args(args).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
        let address = address.split(',').next().unwrap_or(address).to_owned();
        Server { address, child, output }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text
}

/// What an example that fails prints.
#[track_caller]
fn failure(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn errors_are_text_that_names_what_failed() {
    let mut sum = example("rpc");
    sum.args(["sum", "/no/such"]);
    let text = failure(sum);
    assert!(text.starts_with("error: /no/such: No such file"), "{text}");
    // Nothing listens at port 1, and nothing gets it meanwhile.
    let mut unused: std::net::SocketAddr = common::address().parse().unwrap();
    unused.set_port(1);
    let mut greet = example("hello");
    greet.args(["greet", "--at", &unused.to_string()]);
    let text = failure(greet);
    assert!(text.starts_with(&format!("error: {unused}: the peer refused")), "{text}");
}

#[test]
fn hello() {
    let mut server = Server::start("hello");
    let mut client = example("hello");
    client.args(["greet", "--at", &server.address]);
    assert_eq!(output(client), "wrote and sent 4096 bytes; the number was 0\n");
    let mut text = String::new();
    server.output.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("\"hello\" from ") && text.contains("closed by the peer"), "{text}");
    assert!(server.child.wait().unwrap().success());
}

#[test]
#[cfg(feature = "rdm")]
fn async_work_queue() {
    let mut queue = example("async_work_queue");
    queue.args(["--workers", "3", "--tasks", "50"]);
    assert_eq!(output(queue), "the squares below 50 add up to 40425\n");
}

#[test]
fn rpc() {
    let server = Server::start("rpc");
    let file = std::env::current_exe().unwrap();
    let mut client = example("rpc");
    client.args(["sum", "--at", &server.address]).args([&file, &file]);
    let text = output(client);
    let sum = crc32fast::hash(&std::fs::read(&file).unwrap());
    assert_eq!(text, format!("{sum:08x} {}\n", file.display()).repeat(2));
}

#[test]
fn http() {
    let server = Server::start("http");
    let get = |path: &str| {
        let mut client = example("http");
        client.args(["get", "--at", &server.address, path]);
        output(client)
    };
    assert_eq!(get("/hello"), "200 OK\nhello over a fabric\n\n");
    assert!(get("/nothing").starts_with("404"));
    let bytes = get("/bytes/3000000");
    assert_eq!(bytes.bytes().filter(|byte| *byte == b'x').count(), 3_000_000);
    let mut load = example("http");
    load.args(["load", "--at", &server.address, "--requests", "50", "--connections", "4"]);
    assert!(output(load).starts_with("200 requests in "));
}

#[test]
fn http_for_clients_that_know_tcp_only() {
    let server = Server::start("http");
    let proxy = ["proxy", "--listen", "127.0.0.1:0", "--at", &server.address];
    let proxy = Server::run("http", &proxy);
    let mut client = TcpStream::connect(&proxy.address).unwrap();
    client.write_all(b"GET /hello HTTP/1.1\r\nhost: fabric\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello over a fabric\n"), "{answer}");
}
