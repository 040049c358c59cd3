"""Predictions as JSON: natkal's own answers, and those of the inference protocol."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natkal.serve.rows import Refused
from natkal.tables.engine.batch import Predictions, TargetPrediction
from natkal.tables.learner.tasks import point_of
from natkal.tables.schema.infer import Schema, Target


def predictions(targets: Sequence[Target], told: Predictions) -> list[dict[str, Any]]:
    """One object for each row: of the only target, or one by name for each of several."""
    parts = [_of_target(target, outcome) for target, outcome in zip(targets, told.targets, strict=True)]
    if len(parts) == 1:
        return parts[0]
    names = [target.name for target in targets]
    return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]


def _of_target(target: Target, outcome: TargetPrediction) -> list[dict[str, Any]]:
    if target.classes:
        shown = outcome.probabilities[:, : len(target.classes)]
        names = target.classes[: shown.shape[1]]
        best = shown.argmax(axis=1).tolist()
        if len(names) == 2:
            no, yes = names
            return [
                {"prediction": names[number], "probabilities": {no: p, yes: q}}
                for number, (p, q) in zip(best, shown.tolist(), strict=True)
            ]
        return [
            {"prediction": names[number], "probabilities": dict(zip(names, row, strict=True))}
            for number, row in zip(best, shown.tolist(), strict=True)
        ]
    columns = (outcome.value.tolist(), outcome.low.tolist(), outcome.high.tolist())
    return [{"prediction": point, "low": low, "high": high} for point, low, high in zip(*columns, strict=True)]


# -- the inference protocol (v2) --------------------------------------------------------------------------------------


def rows_of_tensors(schema: Schema, body: Any, most: int) -> list[dict[str, Any]]:
    """The rows of an inference request: a tensor for each column, or one with all features in their order."""
    tensors = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(tensors, list) or not tensors or not all(isinstance(tensor, dict) for tensor in tensors):
        raise Refused(422, "inputs: a list of tensors with name, shape, datatype and data is needed")
    features = [feature.name for feature in schema.features]
    columns: dict[str, list[Any]] = {}
    for tensor in tensors:
        name, shape, data = tensor.get("name"), tensor.get("shape"), tensor.get("data")
        good = isinstance(shape, list) and all(type(size) is int and 0 <= size <= most * 10_000 for size in shape)
        if not isinstance(name, str) or not good or not isinstance(data, list) or not 1 <= len(shape) <= 2:
            raise Refused(422, f"inputs: tensor {name!r:.60} needs a name, a shape [rows] or [rows, columns], and data")
        flat = [cell for row in data for cell in row] if data and all(isinstance(row, list) for row in data) else data
        wide = shape[1] if len(shape) == 2 else 1
        if len(flat) != shape[0] * wide or not shape[0] * wide:
            raise Refused(422, f"inputs: tensor {name!r:.60} has {len(flat):,} values, its shape says {shape}")
        if wide == 1:
            columns[name] = flat
        elif wide == len(features) and len(tensors) == 1:
            columns = {feature: flat[at::wide] for at, feature in enumerate(features)}
        else:
            raise Refused(
                422, f"inputs: tensor {name!r:.60} has {wide} columns; the model has {len(features)} features"
            )
    counts = {len(column) for column in columns.values()}
    if len(counts) != 1:
        raise Refused(422, "inputs: the tensors have different numbers of rows")
    if max(counts) > most:
        raise Refused(413, f"{max(counts):,} rows in one request; at most {most:,} are taken")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def tensors_of(name: str, targets: Sequence[Target], told: Predictions, request_id: Any) -> dict[str, Any]:
    """The answer of the inference protocol."""
    outputs = []
    for target, outcome in zip(targets, told.targets, strict=True):
        prefix = f"{target.name}." if len(targets) > 1 else ""
        point = point_of(target.task, outcome)
        if target.classes:
            shown = outcome.probabilities[:, : len(target.classes)]
            labels = [target.classes[int(number)] for number in point]
            outputs.append(_tensor(f"{prefix}prediction", [len(labels)], "BYTES", labels))
            outputs.append(_tensor(f"{prefix}probabilities", list(shown.shape), "FP64", shown.ravel().tolist()))
        else:
            for part, values in (("prediction", point), ("low", outcome.low), ("high", outcome.high)):
                outputs.append(_tensor(prefix + part, [len(values)], "FP64", np.asarray(values).tolist()))
    answer: dict[str, Any] = {"model_name": name, "outputs": outputs}
    if isinstance(request_id, str):
        answer["id"] = request_id[:200]
    return answer


def _tensor(name: str, shape: list[int], datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def model_metadata(name: str, schema: Schema) -> dict[str, Any]:
    """What `/v2/models/{name}` says."""
    inputs = [
        {"name": feature.name, "datatype": "FP64" if feature.kind == "number" else "BYTES", "shape": [-1]}
        for feature in schema.features
    ]
    outputs = [
        {"name": "prediction", "datatype": "BYTES" if target.classes else "FP64", "shape": [-1]}
        for target in schema.targets
    ]
    return {"name": name, "platform": "natkal", "versions": [], "inputs": inputs, "outputs": outputs}
