#!/usr/bin/env python3
"""Fails on long lines, tabs, blanks at line ends and notes left behind.

C++, CUDA and shell; ruff reads the Python files.
"""

import re
import subprocess
import sys
from pathlib import Path

COLUMNS_MAX = 100
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".sh"}
NOTE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def is_checked(path):
    if path.suffix in SUFFIXES:
        return True
    return path.suffix == "" and path.read_bytes().startswith(b"#!/usr/bin/env bash")


def faults(path):
    """Yields (line number, what is wrong) of one file."""
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns; at most {COLUMNS_MAX}"
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if NOTE.search(line):
            yield number, "a note left behind: do it now or say it in the commit"
    if text and not text.endswith("\n"):
        yield number, "no newline at the end of the file"


def main():
    root = Path(__file__).resolve().parent.parent
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        text=True,
        capture_output=True,
    ).stdout
    paths = [path for name in listed.splitlines() if (path := root / name).is_file()]
    checked = [path for path in paths if is_checked(path)]
    found = [
        f"{path.relative_to(root)}:{number}: {what}"
        for path in checked
        for number, what in faults(path)
    ]
    for line in found:
        print(line)
    print(f"style: {len(found)} faults in {len(checked)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
