"""`python -m benchmarks`: names, parts, options and exit codes."""

import json
import subprocess
import sys
from importlib import import_module

import pytest
from benchmarks.process import TIMED_OUT, measured

from benchmarks import BENCHMARKS, figures


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_every_benchmark_has_its_three_parts(name) -> None:
    module = import_module(BENCHMARKS[name])
    assert module.PARTS
    assert callable(module.run_part)
    assert callable(module.tables)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["nothing"], "invalid choice: 'nothing'"), (["recurrent", "nothing"], "recurrent has no part 'nothing'")],
)
def test_bad_arguments_are_usage_errors(arguments, complaint) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_results_are_read_from_json_lines(tmp_path) -> None:
    """A later line replaces an earlier one of the same part; text goes between its marks."""
    lines = [{"name": "dense", "part": "growth", "rows": [number]} for number in (1, 2)]
    lines.append({"name": "other", "part": "growth", "rows": [3]})
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert figures.read(str(tmp_path / "r.jsonl"), "dense") == {"growth": lines[1]}
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- here -->\nold\n<!-- end of here -->\nafter\n")
    figures.between_marks(page, "here", figures.markdown(["a"], [["1"]]))
    assert page.read_text() == "before\n<!-- here -->\n| a |\n| --- |\n| 1 |\n<!-- end of here -->\nafter\n"


def test_a_process_is_measured_and_ended_at_its_limit() -> None:
    done = measured([sys.executable, "-c", "import sys; print('out'); sys.exit('a complaint')"])
    assert (done.code, done.output.strip(), done.complaint) == (1, "out", "a complaint")
    hung = measured([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=0.5)
    assert (hung.code, hung.complaint) == (TIMED_OUT, "killed after its time limit")
    assert hung.seconds < 30


@pytest.mark.slow
def test_every_part_that_has_a_small_size_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "all", "--smoke"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_benchmark_without_a_small_size_says_so() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "kills", "--smoke"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "kills has no small size; these have: dead, fleet" in done.stderr
