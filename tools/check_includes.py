#!/usr/bin/env python3
"""Fails on an #include that is no arrow in the design's picture of folders.

Reads the #include lines of every C and C++ file. Our own files are named in quotes, from the
repository's root, so that a line says which folder it reaches. Every header has `#pragma once`;
with --headers CXX every header of the engine is also compiled alone.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

BASE, PORTS, PLAN = "core/base", "core/ports", "core/plan"
ADAPTERS = ("core/sim", "tiers", "aio", "cuda", "comm", "optim")
PROGRAMS = ("bindings", "tools", "bench", "examples", "tests")

# Folder -> the folders that it may include. Adapters know the ports and never each other.
ARROWS = {
    BASE: {BASE},
    PORTS: {PORTS, BASE},
    PLAN: {PLAN, BASE},
    "core/engine": {"core/engine", PLAN, PORTS, BASE},
    **{adapter: {adapter, PORTS, BASE} for adapter in ADAPTERS},
}
# The composition root, the files of core/ outside its folders.
ROOT_NAMES = ("open", "open_storage", "measure_path", "path_settings")
ROOT_FILES = tuple(f"core/{name}.{suffix}" for name in ROOT_NAMES for suffix in ("h", "cc"))
FOLDERS = (*ARROWS, *PROGRAMS)

SUFFIXES = {".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu"}
HEADERS = {".h", ".hpp", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def sources(root):
    """Paths of C and C++ files below root, from the root, without builds and hidden folders."""
    for folder, folders, files in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not (here == Path() and name.startswith("build"))
        )
        yield from (here / name for name in sorted(files) if Path(name).suffix in SUFFIXES)


def folder_of(path):
    """The folder of the picture that a path lies in; None where the picture has none."""
    return next((folder for folder in FOLDERS if path.startswith(folder + "/")), None)


def fault(root, path, bracket, target):
    """What is wrong with one #include line of the file `path`; None if nothing is."""
    ours = target.split("/")[0] in {folder.split("/")[0] for folder in FOLDERS}
    if bracket == "<":
        return f'<{target}> is our own file: write "{target}"' if ours else None
    if not ours or ".." in Path(target).parts:
        if (root / Path(path).parent / target).exists():
            return f'"{target}" is our own file: write its path from the root of the repository'
        return None
    if not (root / target).exists():
        return f'"{target}" does not exist'

    here, there = folder_of(path), folder_of(target)
    if path in ROOT_FILES:
        allowed = there in ARROWS or target in ROOT_FILES
    else:
        allowed = here in PROGRAMS or there in ARROWS.get(here, ())
    if allowed:
        return None
    return f'"{target}": {here or path} must not include {there or target}'


def check(root):
    """All faults of a tree, as lines `file:line: what`, and the number of files read."""
    faults, count = [], 0
    for source in sources(root):
        path, count = source.as_posix(), count + 1
        if folder_of(path) is None and path not in ROOT_FILES:
            faults.append(f"{path}:1: the picture has no such place")
            continue
        text = (root / path).read_text(encoding="utf-8")
        if needs_pragma(source) and "#pragma once" not in text:
            faults.append(f"{path}:1: a header without #pragma once")
        for number, line in enumerate(text.splitlines(), start=1):
            if match := INCLUDE.match(line):
                if what := fault(root, path, *match.groups()):
                    faults.append(f"{path}:{number}: {what}")
    return faults, count


def needs_pragma(path):
    """Highway compiles an -inl.h once per instruction set, under a guard of its own."""
    return path.suffix in HEADERS and not path.name.endswith("-inl.h")


def compile_headers(root, compiler):
    """Faults of the headers that do not compile alone, each included twice."""
    headers = [
        path.as_posix()
        for path in sources(root)
        if needs_pragma(path) and path.suffix == ".h" and folder_of(path.as_posix()) != "bindings"
    ]

    def compile_one(header):
        command = [
            *compiler.split(),
            "-std=c++20",
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I.",
            "-x",
            "c++",
            "-",
        ]
        run = subprocess.run(
            command, cwd=root, input=f'#include "{header}"\n' * 2, text=True, capture_output=True
        )
        return f"{header}:1: does not compile alone\n{run.stderr}" if run.returncode else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [what for what in pool.map(compile_one, headers) if what], len(headers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--headers", metavar="CXX", help="also compile every header alone with CXX")
    arguments = parser.parse_args()

    faults, count = check(arguments.root)
    done = f"{count} files follow the picture"
    if arguments.headers and not faults:
        faults, count = compile_headers(arguments.root, arguments.headers)
        done += f", {count} headers compile alone"
    for what in faults:
        print(what)
    print(f"includes: {len(faults)} faults" if faults else f"includes: {done}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
