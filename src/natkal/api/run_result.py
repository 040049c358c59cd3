"""What a table was learned to: predictions for other rows, figures, relevance of the columns, the report, a folder."""

import os
import shutil
import warnings
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from natkal.api.answers import Answers, as_table
from natkal.api.calls import TemporaryFolder, table_call
from natkal.reading.go_on import START
from natkal.reading.memory import open_data
from natkal.report import report_text
from natkal.report.facts import calibration, metrics_path, read_metrics, relevance
from natkal.runs import checkpoint
from natkal.runs.pace import progress_line
from natkal.runs.predict_rows import predictions
from natkal.runs.session import Session

FILES = (checkpoint.CURRENT, checkpoint.PREVIOUS, "metrics.csv", "rejects.jsonl", "forecasts.csv", "report.html")


class Page:
    """An HTML page that a notebook shows; `html` is its text."""

    def __init__(self, html: str):
        self.html = html

    def _repr_html_(self) -> str:
        frame = 'style="width:100%;height:720px;border:0"'
        return f'<iframe srcdoc="{escape(self.html)}" {frame}></iframe>'

    def __repr__(self) -> str:
        return f"<report, {len(self.html):,} characters of HTML; a notebook shows it>"


class Run:
    """What `nk.learn` and `nk.load_run` give.

    A prediction never changes the run; `learn` does.
    """

    def __init__(
        self,
        session: Session,
        *,
        temporary: TemporaryFolder | None = None,
        seconds: float | None = None,
        kind: str = "rows",
    ):
        self._session = session
        self._temporary = temporary
        self._seconds = seconds
        self._kind = kind

    # -- figures -------------------------------------------------------------------------------------------------------

    @property
    def targets(self) -> dict[str, str]:
        """The task of each target."""
        return {target.name: target.task for target in self._session.schema.targets}

    @property
    def features(self) -> dict[str, str]:
        """The columns in use, and what kind of feature each is."""
        return {feature.name: feature.kind for feature in self._session.schema.features}

    @property
    def ignored(self) -> dict[str, str]:
        """The columns not in use, and why."""
        return dict(self._session.schema.ignored)

    @property
    def rows(self) -> dict[str, int]:
        """How many rows were read, learned, rejected and skipped: read = learned + rejected + skipped."""
        return dict(vars(self._session.counts))

    @property
    def rejected(self) -> dict[str, int]:
        """Why rows were rejected, and how many for each reason."""
        return dict(self._session.reasons)

    @property
    def metrics(self) -> dict[str, Any]:
        """Figures over all rows, each predicted before it was learned from, beside two baselines.

        `baseline_...`: class frequencies or the mean so far; `last_...`: the same as last time. Of several targets, one
        such dict for each.
        """
        parts = {part.target.name: part.summary() for part in self._session.metrics.parts}
        return next(iter(parts.values())) if len(parts) == 1 else parts

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The same figures window by window; `row` is the last row of each, `time` its time where the data has one."""
        found = read_metrics(metrics_path(self._session))
        if "time" in found:
            found["time"] = np.array([1e3 * value for value in found["time"]]).astype("datetime64[ms]")
        return found

    @property
    def calibration(self) -> dict[str, np.ndarray]:
        """Of the first target. Classes: rows, mean probability and share of hits in each tenth of the probability.

        Numbers: the share of rows in each tenth of their predicted law, flat if all is right.
        """
        return calibration(self._session.metrics.parts[0])

    @cached_property
    def relevance(self) -> dict[str, float]:
        """How much log loss, in nats a row, the last rows lose when a column is shuffled; the most relevant first."""
        with table_call():
            return relevance(self._session)

    # -- answers -------------------------------------------------------------------------------------------------------

    def predict(self, data: Any, *, level: float = 0.9, missing_columns: str = "error") -> Any:
        """Predictions for rows like those that were learned, labels not needed; one answer for each row.

        Columns: `predicted`; of numbers the limits of the interval that holds `level` of them, of classes the
        probability of each; of several targets all of it once for each, with its name in front. The answer is a frame
        of the kind that was given, otherwise a list of dicts. With `missing_columns="impute"` a column that is not
        there counts as its mean.
        """
        if not 0 < level < 1:
            raise ValueError(f"level: must lie between 0 and 1, got {level!r}")
        if missing_columns not in ("error", "impute"):
            raise ValueError(f"missing_columns: must be error or impute, got {missing_columns!r}")
        session = self._session
        answers = Answers(session.schema.targets, level)
        with table_call():
            source = open_data(data, [target.name for target in session.schema.targets], session.settings.encoding)
            for block in predictions(session, source, impute=missing_columns == "impute", level=level):
                answers.add(block)
        if answers.rejects:
            first = answers.rejects[0]
            warnings.warn(
                f"{len(answers.rejects):,} rows cannot be predicted and are missing in the answer; "
                f"row {first.line:,}: {first.reason}",
                stacklevel=2,
            )
        return answers.like(data)

    def forecast(self, horizon: int, future: Any = None, *, level: float = 0.9, key: str | None = None) -> Any:
        """The next `horizon` rows of each target: median, interval that holds `level` of them, quantiles q05 .. q95.

        `future` has columns of the rows to come that are known (dates, prices), as a table of any kind; dates and
        running numbers go on by themselves. Of classes, the probability of each. With keys, the rows of all of them,
        or of one. The answer is a table of the kind that was learned.
        """
        from natkal.api.ahead import forecast_rows

        if not 0 < level < 1:
            raise ValueError(f"level: must lie between 0 and 1, got {level!r}")
        if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer):
            raise ValueError(f"horizon: must be a whole number of rows, got {horizon!r}")
        with table_call():
            rows = forecast_rows(self._session, int(horizon), future, level, key)
        names = list(dict.fromkeys(name for row in rows for name in row))
        return as_table({name: [row.get(name) for row in rows] for name in names}, self._kind)

    def learn(self, data: Any, *, progress: bool | None = None) -> "Run":
        """Learn more rows, as if they had followed the others; the run's folder goes on with them."""
        with table_call():
            old = self._session
            source = open_data(data, old.settings.targets, old.settings.encoding)
            session, _ = Session.resume(old.folder, model=old.settings.model)
            session.files, session.position = source.names, START
            read, learned = session.counts.read, session.counts.learned
            with progress_line(source, shown=progress, rows_before=session.counts.read) as report:
                session.run(source, [], checkpoint_seconds=None, report=report)
        self._session = session
        self.__dict__.pop("relevance", None)
        if session.counts.learned == learned and session.counts.read > read:
            names = ", ".join(self.targets)
            warnings.warn(
                f"none of the {session.counts.read - read:,} rows has a target ({names}): nothing was learned",
                stacklevel=2,
            )
        return self

    # -- pages and folders ---------------------------------------------------------------------------------------------

    def report(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The report: a page that shows itself in a notebook; or, with a path, one HTML file there."""
        with table_call():
            text = report_text(self._session, seconds=self._seconds)
        if path is None:
            return Page(text)
        where = Path(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text, encoding="utf-8")
        return where

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Copy the run into a folder; `nk.load_run` loads it, and every command that takes a run takes it."""
        where, folder = Path(path), self._session.folder
        if where.exists() and not where.is_dir():
            raise ValueError(f"{where}: is a file; a run is saved into a folder")
        if checkpoint.exists(where) and not overwrite and where.resolve() != folder.resolve():
            raise ValueError(f"{where}: holds a run; overwrite=True replaces it")
        if where.resolve() != folder.resolve():
            where.mkdir(parents=True, exist_ok=True)
            checkpoint.remove(where)
            for name in FILES:
                if (folder / name).is_file():
                    shutil.copyfile(folder / name, where / name)
        return where

    def __repr__(self) -> str:
        counts = self._session.counts
        columns = f"{len(self.features)} column{'s' * (len(self.features) != 1)}"
        lines = [f"Run: {counts.learned:,} of {counts.read:,} rows learned, {columns}"]
        for part in self._session.metrics.parts[:3]:
            found = part.summary()
            name = "accuracy" if part.classes else "mean_absolute_error"
            shown = [
                f"{key.replace('_', ' ')} {found[key]:.4g} (baseline {found['baseline_' + key]:.4g})"
                for key in ("log_loss", name)
                if key in found
            ]
            lines.append(f"{part.target.name} ({part.target.task}): {', '.join(shown)}")
        return "\n".join(lines)
