"""The last rank is killed amid traffic. The launcher ends the others, or an error of theirs ends them, as MPI's default is."""

import os
import signal

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
victim = ranks - 1
world.Set_errhandler(MPI.ERRORS_ARE_FATAL)
world.Barrier()
for turn in range(1_000_000):
    if rank == victim and turn == 100:
        os.kill(os.getpid(), signal.SIGKILL)
    size = (8, 100_000)[turn % 2]
    world.Sendrecv(bytearray(size), (rank + 1) % ranks, 5, bytearray(size), (rank - 1) % ranks, 5)
