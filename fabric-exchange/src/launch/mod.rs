//! What a process was started as: its rank, its job and where to meet, from the variables of launchers.

mod launchers;
mod own;
mod variables;

use std::fmt;

use fabric_core::Variable;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::job::{Job, Membership};
use crate::rendezvous::{JoinOptions, Rendezvous};
use launchers::{Word, words};
use variables::{Found, Variables, invalid};

/// What this process was started as.
///
/// Our own variables come first: `FABRIC_RANK`, `FABRIC_SIZE`, `FABRIC_LOCAL_RANK`, `FABRIC_JOB`, `FABRIC_INCARNATION` and
/// `FABRIC_RENDEZVOUS`. What they do not say is taken from the launcher that started this process: torchrun, Open MPI, PMIx, PMI,
/// Slurm or Kubernetes, in this order, as each may have been started by one behind it. From an outer one comes only
/// what the inner ones do not say; and a size or a local rank only if it gives this process the same rank.
///
/// `Display` shows what was chosen, and from which variables.
///
/// ```
/// use fabric_exchange::{Launch, Rendezvous};
///
/// let launch = Launch::from_variables(|name| match name {
///     "SLURM_PROCID" => Some("3".into()),
///     "SLURM_NTASKS" => Some("8".into()),
///     "SLURM_JOB_ID" => Some("1234".into()),
///     "SLURM_STEP_ID" => Some("0".into()),
///     "FABRIC_RENDEZVOUS" => Some("tcp://login1:7473".into()),
///     _ => None,
/// })?;
/// assert_eq!((launch.membership().rank(), launch.membership().job().size()), (3, 8));
/// assert_eq!(launch.membership().job().name(), "slurm-1234.0");
/// assert_eq!(launch.rendezvous(), Some(&Rendezvous::Tcp("login1:7473".into())));
/// # Ok::<(), fabric_exchange::ExchangeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    membership: Membership,
    local_rank: Option<u32>,
    rendezvous: Option<Rendezvous>,
    /// What was chosen: its name, its value, and from where.
    choices: Vec<(&'static str, String, String)>,
}

/// A restart of an outer launcher is more than any of an inner one, which counts from zero then.
const RESTART_BITS: u32 = 32;

impl Launch {
    /// Our own variables, with what they mean: what `fabric info --env` shows of jobs.
    pub const VARIABLES: [Variable; 6] = own::ALL;

    /// From the environment of this process.
    ///
    /// # Errors
    /// `Invalid`, as [`from_variables`](Launch::from_variables).
    pub fn detect() -> Result<Self> {
        // What is no Unicode is no number; it is shown in the error.
        let lookup =
            |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::from_variables(lookup)
    }

    /// From what `lookup` gives for each variable.
    ///
    /// # Errors
    /// `Invalid`: what is missing, malformed or contradictory, with the variables, their values, and what would be right.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variables = Variables(&lookup);
        let words = words(&variables)?;
        let mut choices = Vec::new();
        let rank = choose_rank(&variables, &words)?;
        choices.push(("rank", rank.value.to_string(), rank.from.clone()));
        let agree = || words.iter().filter(|word| word.rank.value == rank.value);
        let size = match variables.number(own::SIZE, u32::MAX)? {
            None => agree().find_map(|word| word.size.clone()),
            size => size,
        };
        let size = size.ok_or_else(|| no_size(&rank, &words))?;
        choices.push(("size", size.value.to_string(), size.from.clone()));
        check_below("rank", &rank, &size)?;
        let local_rank = match variables.number(own::LOCAL_RANK, u32::MAX)? {
            None => agree().find_map(|word| word.local_rank.clone()),
            local => local,
        };
        if let Some(local) = &local_rank {
            check_below("local rank", local, &size)?;
            choices.push(("local rank", local.value.to_string(), local.from.clone()));
        }
        let job = choose_job(&variables, &words, &rank)?;
        choices.push(("job", format!("{:?}", job.value), job.from.clone()));
        let incarnation = choose_incarnation(&variables, &words)?;
        choices.push(("incarnation", incarnation.value.to_string(), incarnation.from));
        let rendezvous = choose_rendezvous(&variables, &words)?;
        if let Some((place, from)) = &rendezvous {
            choices.push(("rendezvous", place.to_string(), from.clone()));
        }
        let job = Job::new(job.value, incarnation.value, size.value)
            .map_err(|error| invalid(format!("{} and {}: {error}", job.from, size.from)))?;
        Ok(Launch {
            membership: Membership::new(job, rank.value)?,
            local_rank: local_rank.map(|local| local.value),
            rendezvous: rendezvous.map(|(place, _)| place),
            choices,
        })
    }

    /// The job, and this process's rank in it.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Which one this process is of those on its host, if that is known.
    pub fn local_rank(&self) -> Option<u32> {
        self.local_rank
    }

    /// Where to meet, if that is known.
    pub fn rendezvous(&self) -> Option<&Rendezvous> {
        self.rendezvous.as_ref()
    }

    /// Joins the job there.
    ///
    /// # Errors
    /// `Invalid` if it is not known where; else as [`Exchange::join`].
    pub fn join(&self, options: &JoinOptions) -> Result<Exchange> {
        let place = self.rendezvous().ok_or_else(|| {
            invalid(
                "no variable says where to meet: set FABRIC_RENDEZVOUS to tcp://HOST:PORT (`fabric rendezvous` serves \
                 there), or to dir:///PATH, a directory that all processes see"
                    .to_owned(),
            )
        })?;
        Exchange::join(place, &self.membership, options)
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value, from)) in self.choices.iter().enumerate() {
            let end = if at > 0 { "\n" } else { "" };
            write!(f, "{end}{name}: {value} ({from})")?;
        }
        Ok(())
    }
}

fn choose_rank(variables: &Variables<'_>, words: &[Word]) -> Result<Found<u32>> {
    if let Some(rank) = variables.number(own::RANK, u32::MAX)? {
        return Ok(rank);
    }
    if let Some(word) = words.first() {
        let from = format!("{}, of {}", word.rank.from, word.launcher);
        return Ok(Found { value: word.rank.value, from });
    }
    let batch = match variables.is_set("SLURM_PROCID") {
        true => {
            "; SLURM_PROCID without SLURM_STEP_ID is a batch script's: start the program by srun"
        }
        false => "",
    };
    Err(invalid(format!(
        "no variable says which rank this process is: start it by srun, mpirun, torchrun or as an indexed job of Kubernetes, or set \
         FABRIC_RANK, FABRIC_SIZE and FABRIC_JOB{batch}"
    )))
}

fn no_size(rank: &Found<u32>, words: &[Word]) -> crate::ExchangeError {
    let other = words.iter().find(|word| word.rank.value != rank.value && word.size.is_some());
    let other = other.map_or(String::new(), |word| {
        format!(" ({} says it to another rank, {})", word.launcher, word.rank.from)
    });
    invalid(format!(
        "{} is this process's rank, and no variable says how many ranks there are{other}: set FABRIC_SIZE",
        rank.from
    ))
}

fn check_below(what: &str, rank: &Found<u32>, size: &Found<u32>) -> Result<()> {
    if rank.value < size.value {
        return Ok(());
    }
    let (rank, size) = (&rank.from, &size.from);
    Err(invalid(format!(
        "{rank} and {size} contradict each other: a {what} is less than the number of ranks"
    )))
}

fn choose_job(
    variables: &Variables<'_>,
    words: &[Word],
    rank: &Found<u32>,
) -> Result<Found<String>> {
    if let Some(job) = variables.text(own::JOB)? {
        return Ok(job);
    }
    let job = words.iter().find_map(|word| word.job.clone());
    job.ok_or_else(|| {
        invalid(format!(
            "{} is this process's rank, and no variable names its job: set FABRIC_JOB, to the same in all its processes and to \
             another in each other job",
            rank.from
        ))
    })
}

/// The restarts by each launcher; those by an outer one count more.
fn choose_incarnation(variables: &Variables<'_>, words: &[Word]) -> Result<Found<u64>> {
    if let Some(incarnation) = variables.number(own::INCARNATION, u64::MAX)? {
        return Ok(incarnation);
    }
    let restarts = words.iter().filter_map(|word| word.restarts.clone().transpose());
    match &restarts.collect::<Result<Vec<_>>>()?[..] {
        [] => Ok(Found { value: 0, from: "no variable counts restarts".to_owned() }),
        [one] => Ok(Found { value: one.value.into(), from: one.from.clone() }),
        [inner, outer, ..] => Ok(Found {
            value: u64::from(outer.value) << RESTART_BITS | u64::from(inner.value),
            from: format!("{} in {}", inner.from, outer.from),
        }),
    }
}

fn choose_rendezvous(
    variables: &Variables<'_>,
    words: &[Word],
) -> Result<Option<(Rendezvous, String)>> {
    let place = match variables.text(own::RENDEZVOUS)? {
        None => words.iter().find_map(|word| word.place.clone()),
        place => place,
    };
    let Some(Found { value, from }) = place else { return Ok(None) };
    let place = value.parse().map_err(|error| invalid(format!("{from}: {error}")))?;
    Ok(Some((place, from)))
}

#[cfg(test)]
mod tests;
