//! A second process on this host, which can be stopped and killed.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{Choice, Domain, Info, ProviderSpec};
use fabric_util::wakeup::wait_readable;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::Peer;
use crate::check::{Failed, Outcome};
use crate::choose::anything;

/// How long the program may take until it serves, before scaling.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A server in a process of its own, and the device that cases use there. It is killed when this is dropped.
///
/// What was made on its domains must not be used while it is stopped: each call waits for its answer. When it is dead,
/// every call fails, and dropping works.
#[derive(Debug)]
pub struct Process {
    child: Child,
    peer: Peer,
    choice: Choice,
}

impl Process {
    /// Starts `program`, which calls `conformance::main`, for the provider and device of `info`.
    pub(crate) fn start(program: &Path, info: &Info, factor: f64) -> Result<Self, Failed> {
        let serving = ["--serve", "127.0.0.1:0", "--with-stdin"];
        let mut child = Command::new(program)
            .args(serving)
            .env_remove("FABRIC_PROVIDER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let outcome = Self::reach(&mut child, START_TIMEOUT.mul_f64(factor));
        let peer = outcome.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (provider, device) = (info.provider.to_owned(), Some(info.device.clone()));
        Ok(Process {
            child,
            peer,
            choice: Choice::Include(vec![ProviderSpec { provider, device }]),
        })
    }

    fn reach(child: &mut Child, timeout: Duration) -> Result<Peer, Failed> {
        let expected = || "a second process that serves";
        let Some(out) = child.stdout.take() else { return Err(Failed::new(expected(), "no pipe")) };
        if !wait_readable(out.as_fd(), Some(Instant::now() + timeout))? {
            return Err(Failed::new(expected(), format!("no word of it within {timeout:?}")));
        }
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let addr = line.trim_end().strip_prefix("serving on ").and_then(|addr| addr.parse().ok());
        let Some(addr) = addr else { return Err(Failed::new(expected(), format!("{line:?}"))) };
        Peer::reach(addr).map_err(|reason| Failed::new(expected(), reason))
    }

    /// Opens the device there.
    ///
    /// # Errors
    /// What the provider says.
    #[track_caller]
    pub fn domain(&self) -> Result<Domain, Failed> {
        Ok(self.peer.catalog().open_with(&self.choice, &anything())?)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops it as `SIGSTOP` does; when this returns, no thread of it runs any more.
    ///
    /// # Errors
    /// If it has ended.
    #[track_caller]
    pub fn stop(&self) -> Outcome {
        kill_process(self.pid(), Signal::STOP).map_err(std::io::Error::from)?;
        let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let state = waitid(WaitId::Pid(self.pid()), how).map_err(std::io::Error::from)?;
        match state {
            Some(state) if state.stopped() => Ok(()),
            _ => Err(Failed::new("a process that stops", "it has ended")),
        }
    }

    /// Lets it go on as `SIGCONT` does.
    ///
    /// # Errors
    /// If it has ended.
    #[track_caller]
    pub fn resume(&self) -> Outcome {
        Ok(kill_process(self.pid(), Signal::CONT).map_err(std::io::Error::from)?)
    }

    /// Kills it as `SIGKILL` does; when this returns, it is gone.
    ///
    /// # Errors
    /// As `kill(2)` and `waitpid(2)`.
    #[track_caller]
    pub fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Twice is harmless, and then nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
