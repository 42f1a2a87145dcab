"""Config files from the command line: ``python -m zoffload.config explain ds.json``."""

import argparse
import sys
from pathlib import Path

from . import _core
from .errors import Error


def explain(path: str, world_size: int = 1) -> str:
    """A table of every key of the file and every effective one: value, treatment, meaning.

    Raises zoffload.errors.InvalidArgument or Unsupported with every mistake in the file.
    """
    return _core.explain_config(Path(path).read_text(), world_size)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m zoffload.config", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("explain", help="print the resolved table of keys")
    command.add_argument("file")
    command.add_argument("--world-size", type=int, default=1, help="number of ranks (default 1)")
    options = parser.parse_args(arguments)
    try:
        print(explain(options.file, options.world_size))
    except (OSError, Error) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
