//! A process with a role: this program again, spoken to by lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Catalog, Choice, Domain, Hints};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const ROLE: &str = "FABRIC_KILLS_ROLE";
const PROVIDER: &str = "FABRIC_KILLS_PROVIDER";
/// Before each line for the parent: the test harness prints lines too.
const MARK: &str = "kills: ";

/// Nothing takes so long, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A domain on the provider of that name.
pub(crate) fn domain(provider: &str) -> Domain {
    let choice = Choice::parse(provider).unwrap();
    Catalog::builtin().open_with(&choice, &Hints::default()).unwrap()
}

/// The same in a child.
pub(crate) fn own_domain() -> Domain {
    domain(&std::env::var(PROVIDER).unwrap())
}

/// Says a line to the parent.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may be gone; then so is this process, soon.
    let _ = writeln!(out, "{MARK}{line}").and_then(|()| out.flush());
}

/// What the parent says, line by line. This process ends with it.
pub(crate) fn heard() -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                return;
            }
        }
        std::process::exit(3);
    });
    lines
}

/// A child. Dropping it kills it.
pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
    /// What it said before what was expected last.
    passed: Vec<String>,
}

impl Process {
    pub(crate) fn start(
        name: &str,
        role: &str,
        provider: &str,
        variables: &[(&str, String)],
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture"]).env(ROLE, role).env(PROVIDER, provider);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, said) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if let Some((_, said)) = line.split_once(MARK) {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Process { name: name.to_owned(), child, input, said, passed: Vec::new() }
    }

    /// Says a line to it. One that is dead hears nothing: its silence is noticed elsewhere.
    pub(crate) fn order(&mut self, line: &str) {
        let _ = writeln!(self.input, "{line}");
    }

    /// What it says within this time; `None`: nothing. `Err`: it is at its end.
    pub(crate) fn line(&self, within: Duration) -> Result<Option<String>, String> {
        match self.said.recv_timeout(within) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(format!("{} has ended", self.name)),
        }
    }

    /// Waits until it says a line that begins with this word, and gives the rest.
    pub(crate) fn expect(&mut self, word: &str) -> String {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.line(left).unwrap();
            let line = line.unwrap_or_else(|| panic!("{} does not say {word}", self.name));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            self.passed.push(line);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it, and gives what it had said and was not expected.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.passed.drain(..).chain(self.said.iter()).collect()
    }

    /// Waits for its end.
    pub(crate) fn ends_well(mut self) {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{}: {status}", self.name);
                return;
            }
            assert!(Instant::now() < until, "{} does not end", self.name);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
