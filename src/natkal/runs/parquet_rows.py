"""Predictions as a Parquet file, block by block."""

import io
from pathlib import Path
from typing import Any

from natkal.errors import StreamError
from natkal.reading.columnar import need_arrow
from natkal.runs.answers import PredictionFormat


class ParquetRows:
    """A Parquet file that takes the lines of a `PredictionFormat` of JSON lines; it needs pyarrow."""

    def __init__(self, path: Path, form: PredictionFormat):
        self.path = path
        pyarrow: Any = need_arrow(str(path))
        from pyarrow import json, parquet

        kinds = {name: pyarrow.string() if name in form.text_names else pyarrow.float64() for name in form.names}
        schema = pyarrow.schema({**kinds, "line": pyarrow.int64()})
        self._json: Any = json
        self._options: Any = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer: Any = parquet.ParquetWriter(path, schema)
        except OSError as error:
            raise StreamError(f"{path}: cannot be written: {error.strerror or error}") from error

    def cut(self) -> None:
        """Nothing to do: a Parquet file is written anew."""

    def write(self, text: str) -> None:
        """Append these lines as a group of rows."""
        if text:
            self._writer.write_table(self._json.read_json(io.BytesIO(text.encode()), parse_options=self._options))

    def flush(self, *, sync: bool = False) -> None:
        """Nothing to do: a Parquet file is whole once it is closed."""

    def close(self) -> None:
        """Write what closes the file."""
        self._writer.close()
