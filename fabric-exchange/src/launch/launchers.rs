//! What each launcher puts into the environment of the processes that it starts.

use super::variables::{Found, Variables, invalid};
use crate::error::Result;

/// What one launcher says. Only the rank is always there.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) launcher: &'static str,
    pub(super) rank: Found<u32>,
    pub(super) size: Option<Found<u32>>,
    pub(super) local_rank: Option<Found<u32>>,
    pub(super) job: Option<Found<String>>,
    /// How often this launcher has started the job again; or why that cannot be known.
    pub(super) restarts: Result<Option<Found<u32>>>,
    pub(super) place: Option<Found<String>>,
    /// It is one of those that give the processes of one MPI job the same ranks.
    pub(super) is_mpi: bool,
}

impl Word {
    fn new(launcher: &'static str, rank: Found<u32>) -> Self {
        let (size, local_rank, job, place) = Default::default();
        Word { launcher, rank, size, local_rank, job, restarts: Ok(None), place, is_mpi: false }
    }
}

/// Every launcher that has left its word, the innermost first: where one starts another, the latter's rank is that of the process.
pub(super) fn words(variables: &Variables<'_>) -> Result<Vec<Word>> {
    let all = [torchrun, open_mpi, pmix, pmi, slurm, kubernetes];
    let mut words = Vec::new();
    for of in all {
        words.extend(of(variables)?);
    }
    check_mpi(&words)?;
    Ok(words)
}

/// An MPI's own variables and those of the interface by which it was started are of the same processes.
fn check_mpi(words: &[Word]) -> Result<()> {
    let mut mpi = words.iter().filter(|word| word.is_mpi);
    let Some(first) = mpi.next() else { return Ok(()) };
    let differs = |a: &Option<Found<u32>>, b: &Option<Found<u32>>| matches!((a, b), (Some(a), Some(b)) if a.value != b.value);
    for other in mpi {
        if first.rank.value != other.rank.value {
            return Err(contradiction(&first.rank, &other.rank));
        }
        if let (Some(a), Some(b)) = (&first.size, &other.size)
            && differs(&first.size, &other.size)
        {
            return Err(contradiction(a, b));
        }
    }
    Ok(())
}

fn contradiction(a: &Found<u32>, b: &Found<u32>) -> crate::ExchangeError {
    let (a, b) = (&a.from, &b.from);
    invalid(format!(
        "{a} and {b} contradict each other: unset what is left from another start, or set FABRIC_RANK and FABRIC_SIZE"
    ))
}

/// PyTorch's elastic launcher. Other launchers of PyTorch set the first two as well, which are too common to count alone.
fn torchrun(variables: &Variables<'_>) -> Result<Option<Word>> {
    if !variables.is_set("RANK") || !variables.is_set("WORLD_SIZE") {
        return Ok(None);
    }
    let Some(rank) = variables.number("RANK", u32::MAX)? else { return Ok(None) };
    let mut word = Word::new("torchrun", rank);
    word.size = variables.number("WORLD_SIZE", u32::MAX)?;
    word.local_rank = variables.number("LOCAL_RANK", u32::MAX)?;
    // `none` is what it is without --rdzv-id: the name of every such job.
    word.job = variables.text("TORCHELASTIC_RUN_ID")?;
    let count = variables.number("TORCHELASTIC_RESTART_COUNT", u32::MAX)?;
    let allowed = variables.number("TORCHELASTIC_MAX_RESTARTS", u32::MAX)?;
    let here = variables.number("LOCAL_WORLD_SIZE", u32::MAX)?;
    let is_one_node = matches!((&here, &word.size), (Some(a), Some(b)) if a.value == b.value);
    let restarts = [&count, &allowed].into_iter().flatten().find(|found| found.value > 0);
    word.restarts = match restarts.cloned() {
        Some(restarts) if !is_one_node => Err(counts_of_nodes(&restarts, here.as_ref())),
        _ => Ok(count),
    };
    word.place = torchrun_place(variables)?;
    Ok(Some(word))
}

/// Each node's agent counts the restarts of its own processes, after their failures: the counts of a job's nodes differ.
fn counts_of_nodes(restarts: &Found<u32>, here: Option<&Found<u32>>) -> crate::ExchangeError {
    let here = here.map_or("LOCAL_WORLD_SIZE is not set", |here| &here.from);
    invalid(format!(
        "{}, and the ranks are not known to be of one node ({here}): torchrun counts the restarts of each node on its own, so its \
         count does not say which start of the job this is; set FABRIC_INCARNATION, to the same number in all ranks and to a higher \
         one at each start, or start torchrun with --max-restarts=0",
        restarts.from
    ))
}

/// MASTER_PORT is taken by PyTorch's own store, so the next port is meant.
fn torchrun_place(variables: &Variables<'_>) -> Result<Option<Found<String>>> {
    let Some(host) = variables.text("MASTER_ADDR")? else { return Ok(None) };
    let Some(port) = variables.number("MASTER_PORT", u16::MAX)? else { return Ok(None) };
    let Some(next) = port.value.checked_add(1) else {
        let from = port.from;
        return Err(invalid(format!(
            "{from} has no next port, where the rendezvous would be: set FABRIC_RENDEZVOUS"
        )));
    };
    // An IPv6 address is written in brackets before a port.
    let address = host.value.trim_start_matches('[').trim_end_matches(']');
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let from = format!("{} and the port after {}", host.from, port.from);
    Ok(Some(Found { value: format!("tcp://{address}:{next}"), from }))
}

/// Open MPI's mpirun, of every version since 1.3.
fn open_mpi(variables: &Variables<'_>) -> Result<Option<Word>> {
    let Some(rank) = variables.number("OMPI_COMM_WORLD_RANK", u32::MAX)? else { return Ok(None) };
    let mut word = Word::new("Open MPI", rank);
    word.size = variables.number("OMPI_COMM_WORLD_SIZE", u32::MAX)?;
    word.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", u32::MAX)?;
    word.is_mpi = true;
    Ok(Some(word))
}

/// Whatever starts processes by PMIx: Open MPI from version 4, PRRTE, `srun --mpi=pmix`. It has no variable for the size.
fn pmix(variables: &Variables<'_>) -> Result<Option<Word>> {
    let Some(rank) = variables.number("PMIX_RANK", u32::MAX)? else { return Ok(None) };
    let mut word = Word::new("PMIx", rank);
    // The name of the job is unique among the jobs of one server of PMIx; with `srun` it has Slurm's job and step.
    word.job = variables.text("PMIX_NAMESPACE")?;
    word.is_mpi = true;
    Ok(Some(word))
}

/// Whatever starts processes by PMI 1 or 2: Hydra of MPICH and Intel MPI, `srun --mpi=pmi2`.
fn pmi(variables: &Variables<'_>) -> Result<Option<Word>> {
    let Some(rank) = variables.number("PMI_RANK", u32::MAX)? else { return Ok(None) };
    let mut word = Word::new("PMI", rank);
    word.size = variables.number("PMI_SIZE", u32::MAX)?;
    // Of Hydra, in MPICH and Intel MPI.
    word.local_rank = variables.number("MPI_LOCALRANKID", u32::MAX)?;
    word.is_mpi = true;
    Ok(Some(word))
}

/// Slurm's `srun`. A batch script has SLURM_PROCID, too, and is rank 0 of nothing: only a step has processes with ranks.
fn slurm(variables: &Variables<'_>) -> Result<Option<Word>> {
    // The second one is the older name.
    let step = match variables.text("SLURM_STEP_ID")? {
        None => variables.text("SLURM_STEPID")?,
        step => step,
    };
    let Some(step) = step else { return Ok(None) };
    let Some(rank) = variables.number("SLURM_PROCID", u32::MAX)? else { return Ok(None) };
    let mut word = Word::new("Slurm", rank);
    // SLURM_NTASKS can be the job's, where the step has fewer.
    word.size = match variables.number("SLURM_STEP_NUM_TASKS", u32::MAX)? {
        None => variables.number("SLURM_NTASKS", u32::MAX)?,
        size => size,
    };
    word.local_rank = variables.number("SLURM_LOCALID", u32::MAX)?;
    if let Some(job) = variables.text("SLURM_JOB_ID")? {
        let from = format!("{} and {}", job.from, step.from);
        word.job = Some(Found { value: format!("slurm-{}.{}", job.value, step.value), from });
    }
    // Set only once the job was requeued.
    word.restarts = Ok(variables.number("SLURM_RESTART_COUNT", u32::MAX)?);
    Ok(Some(word))
}

/// A Kubernetes Job with `completionMode: Indexed`. It has variables for neither the size nor the name, nor for restarts.
fn kubernetes(variables: &Variables<'_>) -> Result<Option<Word>> {
    let rank = variables.number("JOB_COMPLETION_INDEX", u32::MAX)?;
    Ok(rank.map(|rank| Word::new("Kubernetes", rank)))
}
