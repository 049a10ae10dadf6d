//! The server that is attacked: it accepts all, and takes messages of each connection until that ends.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fabric_async::Node;

use crate::Outcome;
use crate::credentials::Credentials;

/// A server in a process of its own, which ends with this.
pub(crate) struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Server {
    /// `by`: what it proves itself by, if it does.
    pub(crate) fn start(program: &Path, by: Option<&Credentials>) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.arg("server").env("FABRIC_PROVIDER", "tcp");
        command.envs(by.map(Credentials::of_server).unwrap_or_default());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let out = child.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let addr = line.trim().parse();
        Ok(Server { child, addr: addr.map_err(|_| format!("the server says {line:?}"))? })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory in bytes (proc_pid_status(5)).
    pub(crate) fn memory(&self) -> Outcome<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.ok_or("the server has ended")? << 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What its process does.
pub(crate) fn run() -> Outcome {
    crate::crowd::raise_descriptor_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let node = Node::builder().build()?;
        let listener = node.listen("127.0.0.1:0").await?;
        println!("{}", listener.local_addr());
        std::io::stdout().flush()?;
        loop {
            let conn = listener.accept().await?;
            tokio::spawn(async move { while conn.recv().await.is_ok() {} });
        }
    })
}
