//! What is measured: one plan makes one result. The client sends it to the other end, which needs no options of its
//! own; both check it.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::problem::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    Send,
    Write,
    /// With 32 bits of immediate data.
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::Write => "write",
            Operation::WriteImm => "write-imm",
            Operation::Read => "read",
            Operation::FetchAdd => "fetch-add",
            Operation::CompareSwap => "compare-swap",
        }
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }

    /// Whether latency is measured by sending back and forth, and is half a round trip then.
    pub(crate) fn is_one_way(self) -> bool {
        matches!(self, Operation::Send | Operation::Write | Operation::WriteImm)
    }

    /// Whether each one takes a receive of the target's.
    pub(crate) fn takes_receives(self) -> bool {
        matches!(self, Operation::Send | Operation::WriteImm)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// The time of one operation, with one in flight.
    Latency,
    /// Bytes per second, with as many operations in flight as the depth allows.
    Bandwidth,
    /// Operations per second, with as many in flight as the depth allows.
    Rate,
    /// Memory, wake-ups and processor time of idle connections (--idle), with no operations.
    Idle,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Latency => "latency",
            Mode::Bandwidth => "bandwidth",
            Mode::Rate => "rate",
            Mode::Idle => "idle",
        }
    }
}

/// How an end waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wait {
    /// Busy polling.
    Poll,
    /// Sleeping until one arrives.
    Sleep,
}

impl Wait {
    pub(crate) fn name(self) -> &'static str {
        if self == Wait::Poll { "poll" } else { "sleep" }
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Limit {
    /// After so many operations of each endpoint.
    Iterations(u64),
    Seconds(f64),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Plain TCP sockets instead of fabric.
    pub(crate) raw: bool,
    pub(crate) op: Operation,
    pub(crate) mode: Mode,
    pub(crate) size: usize,
    pub(crate) depth: usize,
    pub(crate) batch: usize,
    /// Every so manyth operation is signaled; of latency 0 means none.
    pub(crate) signal: usize,
    pub(crate) inject: bool,
    pub(crate) endpoints: usize,
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) wait: Wait,
    pub(crate) target: Wait,
    pub(crate) verify: bool,
    pub(crate) limit: Limit,
    pub(crate) warmup: u64,
    /// Without a completion for so long, the client gives up.
    pub(crate) timeout_s: u64,
}

/// Receives beyond those that the data needs: for the message that says that it is over.
pub(crate) const SPARE: usize = 2;
const MAX_ENDPOINTS: usize = 60_000;
const MAX_THREADS: usize = 256;
const MAX_MEMORY: usize = 4 << 30;
/// An atomic operation has so many bytes.
pub(crate) const ATOMIC_SIZE: usize = 8;

impl Plan {
    /// Operations of an endpoint that are under way at a time: whole batches.
    pub(crate) fn window(&self) -> usize {
        self.depth / self.batch * self.batch
    }

    /// Places for the data of an endpoint, each way: one, unless each operation's data is to be looked at. Then one for
    /// each receive; there are some more of them than operations.
    pub(crate) fn slots(&self) -> usize {
        if self.verify { self.window() + SPARE } else { 1 }
    }

    /// From one place to the next.
    pub(crate) fn stride(&self) -> usize {
        self.size.max(1).next_multiple_of(64)
    }

    /// Bytes of one endpoint: what goes out, and behind it what comes in.
    pub(crate) fn memory(&self) -> usize {
        2 * self.inbound()
    }

    /// Where in these bytes that begins which comes in.
    pub(crate) fn inbound(&self) -> usize {
        self.slots().saturating_mul(self.stride())
    }

    /// The endpoints of a thread, by their numbers.
    pub(crate) fn of_thread(&self, thread: usize) -> impl Iterator<Item = usize> {
        (thread..self.endpoints).step_by(self.threads)
    }

    /// What has no meaning, or no place, is refused here, in the words of the options.
    pub(crate) fn check(&self) -> Outcome {
        self.check_numbers()?;
        self.check_combinations()?;
        if self.raw { self.check_raw() } else { Ok(()) }
    }

    fn check_numbers(&self) -> Outcome {
        let within = |name: &str, value: usize, min: usize, max: usize| match value {
            _ if (min..=max).contains(&value) => Ok(()),
            _ => Err(format!("--{name} {value}: it must be in {min} to {max}")),
        };
        within("endpoints", self.endpoints, 1, MAX_ENDPOINTS)?;
        within("idle", self.idle, 0, MAX_ENDPOINTS)?;
        within("threads", self.threads, 1, MAX_THREADS)?;
        within("depth", self.depth, 1, 1 << 20)?;
        if self.threads > self.endpoints {
            return Err(format!(
                "--threads {}: each needs an endpoint of its own, and there are {} (--endpoints)",
                self.threads, self.endpoints
            )
            .into());
        }
        if self.batch == 0 || self.batch > self.depth {
            return Err(format!(
                "--batch {}: a batch has 1 to {} operations, the depth (--depth)",
                self.batch, self.depth
            )
            .into());
        }
        let quiet = self.signal == 0 && self.mode == Mode::Latency;
        if !quiet && (self.signal == 0 || !self.window().is_multiple_of(self.signal)) {
            return Err(format!(
                "--signal {}: it must divide the {} operations that are under way at a time",
                self.signal,
                self.window()
            )
            .into());
        }
        match self.limit {
            Limit::Iterations(0) => return Err("--iterations 0: at least 1".into()),
            Limit::Seconds(s) if !(s > 0.0 && s <= 86_400.0) => {
                return Err(format!("--seconds {s}: it must be above 0 and at most 86400").into());
            }
            _ => {}
        }
        within("timeout", self.timeout_s as usize, 1, 86_400)?;
        let memory = self.memory().saturating_mul(self.endpoints);
        if memory > MAX_MEMORY {
            return Err(format!(
                "{} endpoints with {} places of {} B each way are {memory} B, more than the {MAX_MEMORY} that this tool \
                 takes: reduce --size, --endpoints, or with --verify --depth",
                self.endpoints,
                self.slots(),
                self.size,
            )
            .into());
        }
        Ok(())
    }

    fn check_combinations(&self) -> Outcome {
        let op = self.op.name();
        if self.op.is_atomic() && self.size != ATOMIC_SIZE {
            let text = format!("--size {}: {op} works on {ATOMIC_SIZE} bytes", self.size);
            return Err(text.into());
        }
        if self.size == 0 && self.op != Operation::Send {
            return Err(format!("--size 0: only sends can be empty, not {op}").into());
        }
        if self.inject && !matches!(self.op, Operation::Send | Operation::Write) {
            return Err(format!("--inject: sends and writes can be injected, not {op}").into());
        }
        if self.inject && self.verify {
            return Err("--inject and --verify: the injected bytes are always the same".into());
        }
        let watches = self.mode == Mode::Latency && self.op == Operation::Write;
        for (option, wait) in [("wait", self.wait), ("target", self.target)] {
            if watches && wait == Wait::Sleep {
                return Err(format!(
                    "--{option} sleep: who waits for a plain write watches its memory; write-imm wakes the target"
                )
                .into());
            }
        }
        if self.signal == 0 && self.op != Operation::Send && !self.inject
            || self.signal == 0 && self.verify
        {
            return Err("--signal 0: only sends and injected writes can go unsignaled here, without --verify".into());
        }
        if self.mode == Mode::Latency && (self.depth, self.batch, self.signal.max(1)) != (1, 1, 1) {
            return Err("--depth, --batch, --signal: latency is that of one operation at a time; \
                        use --mode bandwidth or rate"
                .into());
        }
        if self.mode == Mode::Idle {
            if self.idle == 0 {
                return Err("--mode idle: say of how many connections (--idle)".into());
            }
            if !matches!(self.limit, Limit::Seconds(_)) {
                return Err(
                    "--mode idle: nothing is done that could be counted; use --seconds".into()
                );
            }
        }
        Ok(())
    }

    fn check_raw(&self) -> Outcome {
        let refused = [
            (self.op != Operation::Send, "--op: a plain socket has only send"),
            (self.size == 0, "--size 0: a plain socket has no empty messages"),
            (self.batch != 1, "--batch: it writes each message alone"),
            (self.signal != 1, "--signal: there are no completions"),
            (self.inject, "--inject: it always copies"),
            (self.verify, "--verify: that is for fabric"),
            (self.endpoints != self.threads, "--endpoints: each socket needs a thread (--threads)"),
            (self.idle != 0, "--idle: that is for fabric"),
        ];
        match refused.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, text)) => Err(format!("{text} (--raw)").into()),
            None => Ok(()),
        }
    }
}
