"""The description of the routes, for `/openapi.json`."""

from collections.abc import Mapping
from typing import Any

import natkal
from natkal.serve.requests import KINDS

ROW = {"type": "object", "description": "A row: a value for each column. `id` is optional."}
ROUTES: tuple[tuple[str, str, str, bool], ...] = (
    ("post", "/predict", "Predict rows. With an id, the features are kept until the label comes.", True),
    ("post", "/learn", "Learn rows: features and target, or id and target.", True),
    ("post", "/predict_learn", "Predict rows, then learn them.", True),
    (
        "post",
        "/decide",
        "Choose an arm for each row, where the run is a bandit; `arms` limits the choice.",
        True,
    ),
    (
        "post",
        "/reward",
        "Learn the rewards of decisions, by their ids; null will never be known.",
        True,
    ),
    ("post", "/rollback", 'Go back to a checkpoint: {"checkpoint": 3}.', True),
    ("post", "/checkpoint", "Write a checkpoint now.", False),
    ("get", "/state", "Rows, scores, parameters, weights, memory, checkpoints, traffic.", False),
    ("get", "/events", "The same as server-sent events, every second.", False),
    ("get", "/metrics", "Prometheus text.", False),
    ("get", "/healthz", "Whether the process answers.", False),
    ("get", "/readyz", "Whether rows can be learned.", False),
    ("get", "/openapi.json", "This description.", False),
    ("get", "/", "The live page.", False),
    ("get", "/v2/health/live", "As /healthz.", False),
    ("get", "/v2/health/ready", "As /readyz.", False),
    ("get", "/v2/models/{name}", "The model's inputs and outputs.", False),
    ("get", "/v2/models/{name}/ready", "As /readyz.", False),
    ("post", "/v2/models/{name}/infer", "Predict, by the inference protocol.", True),
)


def document(properties: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.1, with the columns of the run where it is loaded."""
    row: dict[str, Any] = {**ROW, "properties": dict(properties)} if properties else dict(ROW)
    rows = {"oneOf": [row, {"type": "array", "items": row}]}
    error = {"content": {"application/json": {"schema": {"properties": {"error": {"type": "string"}}}}}}
    answers = {
        "200": {"description": "The answer."},
        "4XX": {"description": "What is wrong with the request.", **error},
        "429": {"description": "Too much waits; try again after Retry-After seconds.", **error},
    }
    paths: dict[str, Any] = {}
    for method, path, words, has_body in ROUTES:
        operation: dict[str, Any] = {"summary": words, "responses": answers}
        if "{name}" in path:
            operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
        if has_body:
            plain = {"schema": rows if path.removeprefix("/") in KINDS else {"type": "object"}}
            content = {"application/json": plain}
            if plain["schema"] is rows:
                content["application/x-ndjson"] = {"schema": row}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "natkal serve", "version": natkal.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
