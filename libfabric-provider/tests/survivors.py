"""The last rank is killed amid traffic with each of the others, which its launcher leaves alone: each hears of it by an error of its
own call, and by errors of calls that it begins then, says so, and ends. One of them exchanges messages with it, the next receives only, the third sends only."""

import os
import signal
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
victim = ranks - 1
buffers = [bytearray(size) for size in (8, 100_000)]
world.Barrier()


def exchange(peer, role, turn):
    """One message of the pair: `role` is what the survivor does."""
    out, into = buffers[turn % 2], bytearray(len(buffers[turn % 2]))
    is_survivor = rank != victim
    if role == 0:
        world.Sendrecv(out, peer, 5, into, peer, 5)
    elif (role == 1) == is_survivor:
        world.Recv(into, peer, 6)
    else:
        world.Send(out, peer, 6)


def heard(role, turn):
    """Whether a call failed, after how long, and how."""
    last = time.monotonic()
    try:
        exchange(victim, role, turn)
    except MPI.Exception as error:
        return f"after {time.monotonic() - last:.1f} s {error.Get_error_string().splitlines()[0]}"


for turn in range(1_000_000):
    if rank == victim:
        if turn == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        for survivor in range(victim):
            exchange(survivor, survivor % 3, turn)
    elif first := heard(rank % 3, turn):
        later = [heard(role, turn) for role in range(3) for turn in range(2)]
        if all(later):
            print(f"survivor {rank}: {first}; then {later}", flush=True)
        # What finalizes would wait for the dead one.
        os._exit(0)
sys.exit(1)
