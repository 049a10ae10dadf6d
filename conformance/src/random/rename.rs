//! Leaving out what no step names, and numbering the rest anew.

use super::program::{GrantSpec, Local, OpSpec, Part, Program, Step, What};

/// Old numbers and new ones.
#[derive(Debug)]
struct Names(Vec<Option<usize>>);

impl Names {
    fn new(used: &[bool]) -> Self {
        let mut next = 0..;
        Names(used.iter().map(|used| if *used { next.next() } else { None }).collect())
    }

    fn rename(&self, name: &mut usize) {
        if let Some(Some(new)) = self.0.get(*name) {
            *name = *new;
        }
    }

    /// As of connections, an end of one.
    fn rename_end(&self, end: &mut usize) {
        let mut connection = *end / 2;
        self.rename(&mut connection);
        *end = 2 * connection + *end % 2;
    }

    fn keep<T>(&self, list: &mut Vec<T>) {
        let mut kept = self.0.iter();
        list.retain(|_| kept.next().is_some_and(Option::is_some));
    }
}

impl Program {
    /// Leaves out memories, regions and connections that no step names.
    pub(super) fn leave_out_unused(&mut self) {
        let mut memories = vec![false; self.memories.len()];
        let mut regions = vec![false; self.regions.len()];
        let mut connections = vec![false; self.connections.len()];
        let mut shared = vec![false; self.shared.len()];
        for step in &mut self.steps {
            // To register it is no use.
            if !matches!(step, Step::Register(_)) {
                visit(step, &mut |what, name| match what {
                    Name::Memory => memories[*name] = true,
                    Name::Region => regions[*name] = true,
                    Name::End => connections[*name / 2] = true,
                    Name::Connection => connections[*name] = true,
                    Name::Shared => shared[*name] = true,
                });
            }
        }
        for at in (0..regions.len()).filter(|at| regions[*at]).collect::<Vec<_>>() {
            if let Some(GrantSpec { region, end }) = self.regions[at].grant {
                regions[region] = true;
                connections[end / 2] = true;
            }
        }
        for end in (0..2 * connections.len()).filter(|end| connections[end / 2]) {
            self.shared_by(end).into_iter().for_each(|queue| shared[queue] = true);
        }
        for (region, used) in self.regions.iter().zip(&regions) {
            memories[region.memory] |= used;
        }
        let [memories, regions, connections, shared] =
            [memories, regions, connections, shared].map(|u| Names::new(&u));
        self.steps.retain(|step| match step {
            Step::Register(region) => regions.0[*region].is_some(),
            _ => true,
        });
        for step in &mut self.steps {
            visit(step, &mut |what, name| match what {
                Name::Memory => memories.rename(name),
                Name::Region => regions.rename(name),
                Name::Connection => connections.rename(name),
                Name::End => connections.rename_end(name),
                Name::Shared => shared.rename(name),
            });
        }
        regions.keep(&mut self.regions);
        for grant in self.regions.iter_mut().filter_map(|spec| spec.grant.as_mut()) {
            regions.rename(&mut grant.region);
            connections.rename_end(&mut grant.end);
        }
        self.regions.iter_mut().for_each(|region| memories.rename(&mut region.memory));
        memories.keep(&mut self.memories);
        connections.keep(&mut self.connections);
        let ends = self.connections.iter_mut().flatten();
        ends.filter_map(|end| end.shared.as_mut()).for_each(|queue| shared.rename(queue));
        shared.keep(&mut self.shared);
    }
}

#[derive(Clone, Copy)]
enum Name {
    Memory,
    Region,
    End,
    Connection,
    Shared,
}

/// Shows every name in a step.
fn visit(step: &mut Step, see: &mut dyn FnMut(Name, &mut usize)) {
    fn parts(list: &mut [Part], see: &mut dyn FnMut(Name, &mut usize)) {
        list.iter_mut().for_each(|part| see(Name::Region, &mut part.region));
    }
    match step {
        Step::Connect(connection) => see(Name::Connection, connection),
        Step::Register(region)
        | Step::Close(region)
        | Step::Free(region)
        | Step::Forget(region) => {
            see(Name::Region, region);
        }
        Step::Probe { end, region } => {
            see(Name::End, end);
            see(Name::Region, region);
        }
        Step::Store { memory, .. } | Step::Look(memory) => see(Name::Memory, memory),
        Step::Post { end, ops } => {
            see(Name::End, end);
            for OpSpec { what, local, .. } in ops {
                if let Local::Parts(list) = local {
                    parts(list, see);
                }
                if let What::Write(to) | What::Read(to) | What::Atomic { to, .. } = what {
                    see(Name::Region, &mut to.region);
                }
            }
        }
        Step::Receive { end, recvs } => {
            see(Name::End, end);
            recvs.iter_mut().for_each(|list| parts(list, see));
        }
        Step::Share { queue, recvs } => {
            see(Name::Shared, queue);
            recvs.iter_mut().for_each(|list| parts(list, see));
        }
        Step::DropShared(queue) => see(Name::Shared, queue),
        Step::Poll { end, .. } | Step::Wait(end) | Step::Disconnect(end) | Step::Drop(end) => {
            see(Name::End, end);
        }
    }
}
