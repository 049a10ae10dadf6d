//! A work queue over reliable datagram endpoints: workers ask for tasks, and answer, by tags; no task makes a connection.
//!
//! ```sh
//! cargo run -q -p anyfabric-async --features rdm --example async_work_queue -- --workers 4 --tasks 100
//! ```
//! All are in one process here, and ship their addresses in memory; nothing else would change if they were not.

use std::error::Error;

use clap::Parser;
use fabric_async::Node;
use fabric_async::rdm::Endpoint;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, RdmAttr};

/// Sums of squares, by workers.
#[derive(Parser)]
struct Args {
    /// How many work.
    #[arg(long, default_value_t = 4)]
    workers: u64,
    /// How many tasks there are.
    #[arg(long, default_value_t = 100)]
    tasks: u64,
}

/// What tags mean.
const ASK: u64 = 1;
const TASK: u64 = 2;
const ANSWER: u64 = 3;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Asks for tasks, and answers, until there is none: that is an empty message.
async fn work(node: Node, queue: Address) -> Outcome<()> {
    let endpoint = Endpoint::new(&node, &RdmAttr::default())?;
    let queue = endpoint.insert(&queue)?;
    loop {
        endpoint.inject(queue, b"").tag(ASK).await?;
        let (task, _) = endpoint.recv_alloc(Pattern::tagged(TASK).from(queue)).await?;
        if task.is_empty() {
            return Ok(endpoint.close().await?);
        }
        let number = *task.view::<u64>()?;
        endpoint.inject(queue, &(number * number).to_ne_bytes()).tag(ANSWER).await?;
    }
}

/// Gives out tasks to those who ask, and adds up their answers.
async fn serve(endpoint: Endpoint, args: &Args) -> Outcome<u64> {
    let give = async {
        for task in 0..args.tasks + args.workers {
            let asked = endpoint.claim(Pattern::tagged(ASK)).await?;
            let bytes = task.to_ne_bytes();
            let bytes = if task < args.tasks { &bytes[..] } else { &[] };
            endpoint.inject(asked.peer(), bytes).tag(TASK).await?;
        }
        Ok::<_, fabric_async::Error>(())
    };
    let add = async {
        let mut sum = 0;
        for _ in 0..args.tasks {
            let (answer, _) = endpoint.recv_alloc(Pattern::tagged(ANSWER)).await?;
            sum += *answer.view::<u64>()?;
        }
        Ok(sum)
    };
    let ((), sum) = tokio::try_join!(give, add)?;
    endpoint.flush().await?;
    Ok(sum)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let args = Args::parse();
    let node = Node::shared()?;
    let mut attr = RdmAttr::default();
    // Workers come without having been inserted.
    attr.max_strangers = u32::try_from(args.workers)?;
    let queue = Endpoint::new(&node, &attr)?;
    let work = |_| tokio::spawn(work(node.clone(), queue.address().clone()));
    let workers: Vec<_> = (0..args.workers).map(work).collect();
    let sum = serve(queue.clone(), &args).await?;
    for worker in workers {
        worker.await??;
    }
    println!("the squares below {} add up to {sum}", args.tasks);
    Ok(())
}
