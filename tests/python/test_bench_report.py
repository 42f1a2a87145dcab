"""zoffload-bench report: one page that stands alone. Its contents are tested in C++."""

import json
import re
import subprocess
from html.parser import HTMLParser

import pytest
from bench_tool import find_bench

NEVER_CLOSED = {"meta", "br"}


def document(label, evil=""):
    results = [
        {
            "name": name,
            "params": {"block_size_bytes": block, "queue_depth": depth, "path": "/mnt/" + evil},
            "seconds": 3.0,
            "bandwidth_bytes_per_s": {"samples": [1e9, 1.1e9, 1.2e9]},
            "latency_ns": {"min": 1, "p50": 10, "p90": 20, "p99": 30, "p99_9": 40, "max": 50},
            "series": [[0.1, 1e9], [0.2, 1.1e9]],
            "details": {"stall_seconds": {"load": 1.0}},
        }
        for name in ("read", "write")
        for depth in (1, 8)
        for block in (1 << 18, 1 << 20)
    ]
    return {"schema": "zoffload-bench/1", "label": label, "host": {"x": evil}, "results": results}


class Nesting(HTMLParser):
    """Follows the open elements; `faults` are those that end where another is open."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.faults = []
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in NEVER_CLOSED:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@pytest.fixture
def report(tmp_path):
    """Runs report on documents and returns the process and the page."""
    program = find_bench()

    def run(*documents, out="out.html"):
        files = []
        for number, content in enumerate(documents):
            files.append(tmp_path / f"run{number}.json")
            files[-1].write_text(json.dumps(content))
        page = tmp_path / out
        arguments = [program, "report", *map(str, files), "--html", str(page)]
        done = subprocess.run(arguments, capture_output=True, text=True)
        return done, page

    return run


def test_page_is_well_formed_and_alone(report):
    """Goal: every element closes where it should, whatever the file says, and nothing is fetched.
    Method: texts with markup; a parser that follows the nesting."""
    done, page = report(document("a", evil="</td></svg><script>alert(1)</script>"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    text = page.read_text(encoding="utf-8")
    nesting = Nesting()
    nesting.feed(text)
    assert nesting.faults == []
    assert nesting.open == []
    assert {"svg", "table", "polyline"} <= nesting.seen
    assert not {"script", "img", "link", "iframe"} & nesting.seen
    assert not re.search(r"https?://|url\(|@import", text)


def test_overlay_tells_runs_apart(report):
    """Goal: two runs of one label can be told apart. Method: the same document twice."""
    done, page = report(document("same"), document("same"))
    assert done.returncode == 0, done.stderr
    assert "same (2), queue depth 8" in page.read_text(encoding="utf-8")


def test_never_overwrites_an_input(report):
    """Goal: a slip of the hand costs no results. Method: the input as output."""
    done, page = report(document("a"), out="run0.json")
    assert done.returncode == 2
    assert json.loads(page.read_text())["label"] == "a"


def test_errors(report):
    """Goal: what cannot be drawn or written is exit code 2 and leaves no page. Method: a document
    of another schema, a folder that is not there."""
    done, page = report({"schema": "zoffload-bench/2", "results": []})
    assert done.returncode == 2
    assert "zoffload-bench/2" in done.stderr
    assert not page.exists()
    done, _ = report(document("a"), out="none/out.html")
    assert done.returncode == 2
