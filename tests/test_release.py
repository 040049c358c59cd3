"""What is released: the wheel and the sdist, built, checked, installed into an empty environment, and used."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = "a,b,price\n" + "".join(f"{i % 7},{i % 5},{2 * (i % 7) - i % 5 + 10}.5\n" for i in range(200))


def run(*command: str | Path, cwd: Path) -> str:
    # nothing of this checkout may be found by accident
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    answer = subprocess.run([str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True)
    assert answer.returncode == 0, f"{command}\n{answer.stdout[-2000:]}\n{answer.stderr[-4000:]}"
    return answer.stdout


def readme_commands() -> list[list[str]]:
    """The commands of README's first block, without their comments."""
    block = (ROOT / "README.md").read_text().split("```")[1]
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    return [words for words in lines if words[:1] == ["natkal"]]


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.mark.slow
def test_the_package_index_would_show_it(dist):
    pytest.importorskip("twine")
    files = sorted(dist.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"] or [file.suffix for file in files] == [".gz", ".whl"]
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist)
    wheel = next(file for file in files if file.suffix == ".whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(name).decode()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links), "a package index has no files beside the page"


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".whl", ".tar.gz"])
def test_the_commands_of_the_readme_run_in_an_empty_environment(dist, tmp_path, ending):
    package = next(file for file in dist.iterdir() if file.name.endswith(ending))
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", package, cwd=tmp_path)
    (tmp_path / "data.csv").write_text(ROWS)
    (tmp_path / "new.csv").write_text("a,b\n3,1\n")
    answers = {}
    for command in readme_commands():
        if command[1] != "serve":  # which does not end
            quick = ["--learner", "single"] if command[1] == "learn" else []
            answers[command[1]] = run(scripts / command[0], *command[1:], *quick, cwd=tmp_path)
    assert answers["predict"].splitlines()[0] == "line,observed,predicted,low_90,high_90"
    assert len(answers["forecast"].splitlines()) == 1 + 48
    assert (tmp_path / "natkal-run" / "report.html").is_file()
    code = "import natkal as nk; run = nk.load_run('natkal-run'); print(run.rows['learned'], nk.__version__)"
    assert run(scripts / "python", "-c", code, cwd=tmp_path).split()[0] == "200"
