"""What is released: the wheel and the sdist, built, checked, installed into an empty environment, and used."""

import os
import subprocess
import sys
import venv
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


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".whl", ".tar.gz"])
def test_the_commands_of_the_readme_run_in_an_empty_environment(dist, tmp_path, ending):
    package = next(file for file in dist.iterdir() if file.name.endswith(ending))
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", package, cwd=tmp_path)
    (tmp_path / "data.csv").write_text(ROWS)
    (tmp_path / "new.csv").write_text("a,b\n3,1\n")
    run(scripts / "natkal", "learn", "data.csv", "--target", "price", "--learner", "single", cwd=tmp_path)
    answer = run(scripts / "natkal", "predict", "natkal-run", "new.csv", cwd=tmp_path)
    assert answer.splitlines()[0] == "line,observed,predicted,low_90,high_90"
    assert (tmp_path / "natkal-run" / "report.html").is_file()
    code = "import natkal as nk; run = nk.load_run('natkal-run'); print(run.rows['learned'], nk.__version__)"
    assert run(scripts / "python", "-c", code, cwd=tmp_path).split()[0] == "200"
