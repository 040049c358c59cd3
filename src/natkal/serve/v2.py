"""The inference protocol (v2): tensors as rows, and predictions as tensors."""

from collections.abc import Mapping
from typing import Any

from natkal.runs.answers import names_of
from natkal.serve.rows import Refused
from natkal.tables.schema.infer import Schema


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


def tensors_of(name: str, columns: Mapping[str, Any], request_id: Any) -> dict[str, Any]:
    """The answer: a tensor for each column of the predictions."""
    outputs = [
        {
            "name": column,
            "shape": [len(values)],
            "datatype": "BYTES" if isinstance(values, list) else "FP64",
            "data": values if isinstance(values, list) else values.tolist(),
        }
        for column, values in columns.items()
    ]
    answer: dict[str, Any] = {"model_name": name, "outputs": outputs}
    if isinstance(request_id, str):
        answer["id"] = request_id[:200]
    return answer


def model_metadata(name: str, schema: Schema, level: float) -> dict[str, Any]:
    """What `/v2/models/{name}` says."""
    inputs = [
        {"name": feature.name, "datatype": "FP64" if feature.kind == "number" else "BYTES", "shape": [-1]}
        for feature in schema.features
    ]
    outputs = []
    for target in schema.targets:
        first, *others = names_of(target, target.classes, len(schema.targets) > 1, level)
        outputs.append({"name": first, "datatype": "BYTES" if target.classes else "FP64", "shape": [-1]})
        outputs += [{"name": other, "datatype": "FP64", "shape": [-1]} for other in others]
    return {"name": name, "platform": "natkal", "versions": [], "inputs": inputs, "outputs": outputs}
