"""MPI over the provider: messages of every protocol's size, collectives, and one-sided windows. By mpirun."""

import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size

# Around a ring: injected, in one piece, and by rendezvous.
for size in (0, 1, 100, 5_000, 20_000, 100_000, 1 << 20, 8 << 20):
    given = bytearray([rank % 251]) * size
    taken = bytearray(size)
    world.Sendrecv(given, (rank + 1) % ranks, 5, taken, (rank - 1) % ranks, 5)
    assert taken == bytearray([(rank - 1) % ranks % 251]) * size, size

# Many at a time, taken in the other order.
requests = [world.isend((rank, number), (rank + 1) % ranks, number) for number in range(200)]
for number in reversed(range(200)):
    assert world.recv(source=(rank - 1) % ranks, tag=number) == ((rank - 1) % ranks, number)
MPI.Request.waitall(requests)

for _ in range(50):
    assert world.allreduce(rank) == ranks * (ranks - 1) // 2
assert world.allgather({"rank": rank}) == [{"rank": other} for other in range(ranks)]
assert world.alltoall([(rank, to) for to in range(ranks)]) == [(other, rank) for other in range(ranks)]

window = MPI.Win.Allocate(8 * ranks, 8, comm=world)
window.Fence()
for to in range(ranks):
    window.Put(array.array("q", [rank + 1]), to, target=rank)
window.Fence()
assert memoryview(window).cast("q").tolist() == list(range(1, ranks + 1))

# Additions of all ranks to one place: each finds another value, and none is lost. A swap of one rank comes once.
memoryview(window).cast("q")[0] = 0
window.Fence()
one, old, seen = array.array("q", [1]), array.array("q", [0]), []
window.Lock_all()
for _ in range(50):
    window.Fetch_and_op(one, old, 0, 0, MPI.SUM)
    window.Flush(0)
    seen.append(old[0])
    window.Accumulate(one, ranks - 1, 1 if ranks > 1 else 0, MPI.SUM)
window.Unlock_all()
window.Fence()
assert sorted(sum(world.allgather(seen), [])) == list(range(50 * ranks))
assert memoryview(window).cast("q")[1] == 2 + (50 * ranks if rank == ranks - 1 else 0)
window.Fence()
window.Lock_all()
window.Compare_and_swap(array.array("q", [-rank - 1]), array.array("q", [50 * ranks]), old, 0, 0)
window.Unlock_all()
window.Fence()
assert sum(world.allgather(old[0] == 50 * ranks)) == 1
window.Free()
world.Barrier()
