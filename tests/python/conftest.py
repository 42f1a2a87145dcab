"""What the Python tests share."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import hypothesis
import pytest
from bench_tool import finish, start

# The same examples on every run: a failure is one that anybody can repeat. Wall-clock deadlines
# would fail on a busy machine.
hypothesis.settings.register_profile("zoffload", deadline=None, derandomize=True)
hypothesis.settings.load_profile("zoffload")

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def repository():
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def load_script(repository):
    """Imports a script of the repository by its path, as a module."""

    def load(path):
        spec = importlib.util.spec_from_file_location(Path(path).stem, repository / path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def open_engine(tmp_path):
    """Makes engines, and destroys them at the end: see toys.opened_engines()."""
    from toys import opened_engines  # needs torch

    with opened_engines(tmp_path) as open_:
        yield open_


@pytest.fixture(scope="session")
def cxx():
    """The C++ compiler of the environment; a test that needs one is skipped where there is none."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        pytest.skip("no C++ compiler here")
    return compiler


@pytest.fixture(scope="session")
def bench():
    """bench("io", "--path", folder) -> code, stdout, stderr."""

    def run(*arguments, **options):
        return finish(start(*arguments, **options))

    return run


@pytest.fixture(scope="session")
def check_document(repository):
    """Parses a document, holds it against the schema, and returns it."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((repository / "bench" / "zoffload-bench-1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def check(text):
        document = json.loads(text)
        validator.validate(document)
        return document

    return check


@pytest.fixture
def drive(tmp_path):
    """A folder for test files, which is empty again at the end."""
    folder = tmp_path / "drive"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
