//! Every launcher's variables, alone, in each other, and wrong.

use super::*;
use crate::ExchangeError;

fn launch(variables: &[(&str, &str)]) -> Result<Launch> {
    let find = |name: &str| variables.iter().find(|(of, _)| *of == name);
    Launch::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
}

/// Rank, size, local rank, job and incarnation.
fn chosen(variables: &[(&str, &str)]) -> (u32, u32, Option<u32>, String, u64) {
    let launch = launch(variables).unwrap();
    let job = launch.membership().job();
    let (rank, local) = (launch.membership().rank(), launch.local_rank());
    (rank, job.size(), local, job.name().to_owned(), job.incarnation())
}

/// The error, which names all these.
fn refused(variables: &[(&str, &str)], names: &[&str]) {
    let error = launch(variables).unwrap_err();
    assert!(matches!(error, ExchangeError::Invalid(_)), "{error:?}");
    let text = error.to_string();
    for name in names {
        assert!(text.contains(name), "{text}: {name}");
    }
}

const OWN: [(&str, &str); 3] = [("FABRIC_RANK", "1"), ("FABRIC_SIZE", "4"), ("FABRIC_JOB", "mine")];
const SLURM: [(&str, &str); 6] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_RESTART_COUNT", "5"),
];
const TORCHRUN: [(&str, &str); 8] = [
    ("RANK", "6"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "6"),
    ("MASTER_ADDR", "node1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "run"),
    ("TORCHELASTIC_RESTART_COUNT", "1"),
    ("LOCAL_WORLD_SIZE", "8"),
];

#[test]
fn our_own_variables_suffice() {
    assert_eq!(chosen(&OWN), (1, 4, None, "mine".into(), 0));
    let more = [&OWN[..], &[("FABRIC_INCARNATION", "9"), ("FABRIC_LOCAL_RANK", "0")]].concat();
    assert_eq!(chosen(&more), (1, 4, Some(0), "mine".into(), 9));
    let launch = launch(&OWN).unwrap();
    assert_eq!(launch.rendezvous(), None);
    let text = launch.join(&JoinOptions::default()).unwrap_err().to_string();
    assert!(text.contains("FABRIC_RENDEZVOUS") && text.contains("fabric rendezvous"), "{text}");
}

#[test]
fn each_launcher_is_known() {
    let job = ("FABRIC_JOB", "mine");
    assert_eq!(chosen(&SLURM), (3, 8, Some(1), "slurm-77.2".into(), 5));
    let step = [&SLURM[..], &[("SLURM_STEP_NUM_TASKS", "4")]].concat();
    assert_eq!(chosen(&step).1, 4, "the step's size goes before the job's");
    assert_eq!(chosen(&TORCHRUN), (6, 8, Some(6), "run".into(), 1));
    let hydra = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), job];
    assert_eq!(chosen(&hydra), (1, 2, Some(1), "mine".into(), 0));
    let open_mpi = [
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "3"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ("PMIX_RANK", "2"),
        ("PMIX_NAMESPACE", "prterun-node1-42@1"),
    ];
    assert_eq!(chosen(&open_mpi), (2, 3, Some(0), "prterun-node1-42@1".into(), 0));
    let kubernetes = [("JOB_COMPLETION_INDEX", "2"), ("FABRIC_SIZE", "3"), job];
    assert_eq!(chosen(&kubernetes), (2, 3, None, "mine".into(), 0));
}

#[test]
fn torchrun_says_where_to_meet() {
    let there =
        |variables: &[(&str, &str)]| launch(variables).unwrap().rendezvous().unwrap().to_string();
    assert_eq!(there(&TORCHRUN), "tcp://node1:29501");
    let mut over_v6 = TORCHRUN;
    over_v6[3].1 = "fe80::1";
    assert_eq!(there(&over_v6), "tcp://[fe80::1]:29501");
    let own = [&TORCHRUN[..], &[("FABRIC_RENDEZVOUS", "dir:///scratch")]].concat();
    assert_eq!(there(&own), "dir:///scratch");
    let mut last = TORCHRUN;
    last[4].1 = "65535";
    refused(&last, &["MASTER_PORT=65535", "FABRIC_RENDEZVOUS"]);
}

/// Each node has a count of its own: after a failure on one the others' ranks would be in the incarnation before.
#[test]
fn torchrun_counts_no_restarts_of_several_nodes() {
    let mut nodes = TORCHRUN;
    nodes[7].1 = "4";
    let own = ["FABRIC_INCARNATION", "--max-restarts=0"];
    refused(&nodes, &[&own[..], &["TORCHELASTIC_RESTART_COUNT=1", "LOCAL_WORLD_SIZE=4"]].concat());
    // From the first start on: it would be too late after one more.
    nodes[6].1 = "0";
    let more = [&nodes[..], &[("TORCHELASTIC_MAX_RESTARTS", "3")]].concat();
    refused(&more, &[&own[..], &["TORCHELASTIC_MAX_RESTARTS=3"]].concat());
    assert_eq!(chosen(&[&more[..], &[("FABRIC_INCARNATION", "7")]].concat()).4, 7);
    assert_eq!(chosen(&nodes).4, 0, "it never starts again");
    refused(&TORCHRUN[..7], &["LOCAL_WORLD_SIZE is not set"]);
    let one = [&TORCHRUN[..], &[("TORCHELASTIC_MAX_RESTARTS", "3")]].concat();
    assert_eq!(chosen(&one).4, 1);
}

#[test]
fn the_innermost_launcher_counts() {
    let nested = [&SLURM[..], &TORCHRUN[..]].concat();
    assert_eq!(chosen(&nested), (6, 8, Some(6), "run".into(), 5 << 32 | 1));
    // mpirun in an allocation: Slurm's task is the one that started the daemon of the host.
    let mpi = [("OMPI_COMM_WORLD_RANK", "9"), ("OMPI_COMM_WORLD_SIZE", "16")];
    assert_eq!(chosen(&[&SLURM[..], &mpi].concat()), (9, 16, None, "slurm-77.2".into(), 5));
    // `srun --mpi=pmix`: the size is Slurm's, as the rank is the same.
    let pmix = [&SLURM[..], &[("PMIX_RANK", "3"), ("PMIX_NAMESPACE", "slurm.pmix.77.2")]].concat();
    assert_eq!(chosen(&pmix), (3, 8, Some(1), "slurm.pmix.77.2".into(), 5));
    let other = [&SLURM[..], &[("PMIX_RANK", "4")]].concat();
    refused(&other, &["PMIX_RANK=4", "FABRIC_SIZE", "Slurm", "SLURM_PROCID=3"]);
}

#[test]
fn our_own_rank_goes_before_and_takes_no_others_size() {
    let same = [&SLURM[..], &[("FABRIC_RANK", "3")]].concat();
    assert_eq!(chosen(&same).1, 8);
    let other = [&SLURM[..], &[("FABRIC_RANK", "4")]].concat();
    refused(&other, &["FABRIC_RANK=4", "FABRIC_SIZE"]);
    let whole = [&SLURM[..], &OWN].concat();
    assert_eq!(chosen(&whole), (1, 4, None, "mine".into(), 5));
}

#[test]
fn what_is_missing_is_named() {
    refused(&[], &["srun", "FABRIC_RANK", "FABRIC_SIZE", "FABRIC_JOB"]);
    refused(&SLURM[..4], &["SLURM_PROCID", "SLURM_STEP_ID", "srun"]);
    refused(&OWN[..1], &["FABRIC_RANK=1", "FABRIC_SIZE"]);
    refused(&OWN[..2], &["FABRIC_RANK=1", "FABRIC_JOB"]);
    refused(&[("PMIX_RANK", "0")], &["PMIX_RANK=0", "FABRIC_SIZE"]);
    refused(&[("RANK", "0")], &["FABRIC_RANK"]);
}

#[test]
fn what_is_malformed_or_contradictory_is_named() {
    let with = |name: &'static str, value: &'static str| [&OWN[..], &[(name, value)]].concat();
    refused(&[("FABRIC_RANK", "one")], &["FABRIC_RANK=\"one\"", "whole number"]);
    refused(&[("FABRIC_RANK", "")], &["FABRIC_RANK", "empty"]);
    refused(&with("FABRIC_INCARNATION", "-1"), &["FABRIC_INCARNATION=\"-1\""]);
    refused(
        &with("FABRIC_RENDEZVOUS", "node1"),
        &["FABRIC_RENDEZVOUS=\"node1\"", "tcp://HOST:PORT"],
    );
    refused(&with("FABRIC_LOCAL_RANK", "4"), &["FABRIC_LOCAL_RANK=4", "FABRIC_SIZE=4"]);
    refused(&with("SLURM_STEP_ID", " "), &["SLURM_STEP_ID"]);
    let large = [("FABRIC_RANK", "4"), ("FABRIC_SIZE", "4"), ("FABRIC_JOB", "mine")];
    refused(&large, &["FABRIC_RANK=4", "FABRIC_SIZE=4", "less than"]);
    let control = [("FABRIC_RANK", "0"), ("FABRIC_SIZE", "1"), ("FABRIC_JOB", "a\u{7}")];
    refused(&control, &["FABRIC_JOB", "control character"]);
    let ranks = [("OMPI_COMM_WORLD_RANK", "1"), ("PMIX_RANK", "2")];
    refused(&ranks, &["OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=2", "contradict"]);
    let sizes = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "5"),
    ];
    refused(&sizes, &["OMPI_COMM_WORLD_SIZE=4", "PMI_SIZE=5", "contradict"]);
}

#[test]
fn what_was_chosen_and_why_is_shown() {
    let variables = [&SLURM[..], &[("FABRIC_RENDEZVOUS", "tcp://a:1")]].concat();
    let expected = "rank: 3 (SLURM_PROCID=3, of Slurm)\n\
                    size: 8 (SLURM_NTASKS=8)\n\
                    local rank: 1 (SLURM_LOCALID=1)\n\
                    job: \"slurm-77.2\" (SLURM_JOB_ID=\"77\" and SLURM_STEP_ID=\"2\")\n\
                    incarnation: 5 (SLURM_RESTART_COUNT=5)\n\
                    rendezvous: tcp://a:1 (FABRIC_RENDEZVOUS=\"tcp://a:1\")";
    assert_eq!(launch(&variables).unwrap().to_string(), expected);
}
