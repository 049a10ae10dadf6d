//! What parent and child say to each other.

use fabric::{Region, RemoteRegion};
use fabric_rdm::{Address, Endpoint};

/// Where a child is, and memory that others may write to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: Address,
    pub(crate) memory: RemoteRegion,
}

impl Place {
    pub(crate) fn of(endpoint: &Endpoint, memory: &Region) -> Self {
        Place { address: endpoint.address().clone(), memory: memory.remote() }
    }

    pub(crate) fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let address = words.next().unwrap().parse().unwrap();
        let memory = words.next().unwrap();
        let digits = (0..memory.len()).step_by(2);
        let bytes: Vec<_> =
            digits.map(|at| u8::from_str_radix(&memory[at..at + 2], 16).unwrap()).collect();
        Place { address, memory: RemoteRegion::from_bytes(&bytes).unwrap() }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.address)?;
        self.memory.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An order to a member of the soak.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// There is another one. `Steady`: it is never killed.
    Peer {
        id: u32,
        steady: bool,
        place: Place,
    },
    /// One was killed.
    Dead(u32),
    /// One removed this member, and inserted it again.
    Cut(u32),
    /// Post nothing more, and end what is outstanding.
    Drain,
    /// So many messages of this one ended well.
    Sent(u32, u64),
    /// A last message to all.
    Exchange,
    /// End everything.
    Settle,
    /// Print the endpoint's dump: another one has failed.
    Dump,
    End,
}

impl Order {
    pub(crate) fn parse(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().unwrap();
        match word {
            "peer" => {
                let (id, steady) = (next() as u32, next() == 1);
                let place = rest.splitn(3, ' ').nth(2).unwrap();
                Order::Peer { id, steady, place: Place::parse(place) }
            }
            "dead" => Order::Dead(next() as u32),
            "cut" => Order::Cut(next() as u32),
            "drain" => Order::Drain,
            "sent" => Order::Sent(next() as u32, next()),
            "exchange" => Order::Exchange,
            "settle" => Order::Settle,
            "dump" => Order::Dump,
            "end" => Order::End,
            _ => panic!("no order: {line}"),
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Order::Peer { id, steady, place } => {
                write!(f, "peer {id} {} {place}", u8::from(*steady))
            }
            Order::Dead(id) => write!(f, "dead {id}"),
            Order::Cut(id) => write!(f, "cut {id}"),
            Order::Drain => f.write_str("drain"),
            Order::Sent(id, count) => write!(f, "sent {id} {count}"),
            Order::Exchange => f.write_str("exchange"),
            Order::Settle => f.write_str("settle"),
            Order::Dump => f.write_str("dump"),
            Order::End => f.write_str("end"),
        }
    }
}
