"""A table on disk that is larger than the memory one wants to give it: rows are read ahead while
others are worked on, and written back.

    python examples/tensor_file.py /mnt/nvme0
    python examples/tensor_file.py /mnt/nvme0 --rows 200000 --columns 1024

Every row is doubled, a tile of rows at a time: read tile i + 1 and write tile i - 1 while tile i is
computed. Three tiles of memory serve a file of any size.
"""

import argparse
import os
import time

import torch
from zoffload.aio import Handle, TensorFile


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="where the table is made, and removed at the end")
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--tile-rows", type=int, default=4096)
    return parser.parse_args()


def fill(file: TensorFile, tile_rows: int) -> None:
    """Row i holds i modulo 128, which bfloat16 has exactly."""
    rows, columns = file.shape
    for first in range(0, rows, tile_rows):
        numbers = torch.arange(first, min(first + tile_rows, rows)) % 128
        tile = numbers.to(torch.bfloat16)[:, None].expand(-1, columns).contiguous()
        file.write(tile, first * columns)
    file.flush()


def double(file: TensorFile, handle: Handle, tile_rows: int) -> None:
    """The three tiles take turns: one is being read, one computed, one written."""
    rows, columns = file.shape
    example = torch.empty(0, dtype=torch.bfloat16)
    tiles = [handle.new_cpu_locked_tensor(tile_rows * columns, example) for _ in range(3)]
    firsts = list(range(0, rows, tile_rows))
    reads, writes = {}, {}

    def start_reading(turn: int) -> None:
        if turn >= len(firsts):
            return
        if turn >= 3:
            writes.pop(turn - 3).wait()  # its tile is used again
        numel = min(tile_rows, rows - firsts[turn]) * columns
        reads[turn] = file.read_async(tiles[turn % 3][:numel], firsts[turn] * columns)

    start_reading(0)
    for turn, first in enumerate(firsts):
        start_reading(turn + 1)
        numel = reads.pop(turn).wait() // file.element_bytes
        tile = tiles[turn % 3][:numel].mul_(2)
        writes[turn] = file.write_async(tile, first * columns)
    file.flush()  # waits for the last writes


def check(file: TensorFile) -> None:
    rows, columns = file.shape
    row = torch.empty(columns, dtype=torch.bfloat16)
    for i in (0, 1, rows // 2, rows - 1):
        file.read(row, i * columns)
        assert (row == 2 * (i % 128)).all(), f"row {i}"


def main() -> None:
    arguments = parse_arguments()
    path = os.path.join(arguments.folder, "table.zot")
    shape = (arguments.rows, arguments.columns)
    with Handle(intra_op_parallelism=2) as handle:
        with TensorFile.create(path, shape, torch.bfloat16, handle=handle) as file:
            try:
                fill(file, arguments.tile_rows)
                start = time.perf_counter()
                double(file, handle, arguments.tile_rows)
                seconds = time.perf_counter() - start
                check(file)
            finally:
                os.unlink(path)
            gib = 2 * file.nbytes / (1 << 30)
            print(f"{file}: {gib:.2f} GiB read and written in {seconds:.2f} s")
            print(
                f"{gib / seconds:.2f} GiB/s through {handle.io_engine}; every row checked is right"
            )


if __name__ == "__main__":
    main()
