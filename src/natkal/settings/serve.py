"""How a run is served; none of it decides what is learned."""

import dataclasses
from pathlib import Path

from natkal.settings.fields import option

DURABILITIES = ("none", "group", "each")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a client may ask for; more is refused."""

    body_bytes: int = option(8 << 20, None, "Bytes of a request.", name="max_body", least=1024)
    rows: int = option(10_000, None, "Rows of a request.", name="max_rows", least=1)
    waiting_rows: int = option(50_000, None, "Rows that may wait to be learned.", name="max_waiting", least=1)
    ids: int = option(100_000, None, "Rows that may wait for their label.", name="max_ids", least=1)
    keys: int = 100_000
    connections: int = option(1024, None, "Connections at once.", name="max_connections", least=1)
    seconds: float = option(30.0, None, "Seconds a request may take.", name="timeout", least=0.1)


@dataclasses.dataclass(frozen=True)
class HowToServe:
    """The address, who may ask, and what is on disk when."""

    schema: Path | None = option(None, None, "From nothing: a file whose first rows show the columns.", after="target")
    host: str = option("127.0.0.1", None, "Address to listen on.")
    port: int = option(8000, None, "Port to listen on; 0 takes a free one.", least=0, most=65535)
    token_file: Path | None = option(None, None, "File with the bearer token that requests need.")
    no_auth: bool = option(False, None, "Let anyone in who can reach the address.", spelling=("--no-auth",))
    durability: str = option(
        "group",
        None,
        "Sync the log for each group of requests, for each one, or leave it to the system.",
        choices=DURABILITIES,
    )
    checkpoint_every: float = option(30.0, None, "Seconds between checkpoints.", least=0.1)
    keep: int = option(5, None, "How many checkpoints to keep.", least=2)
    as_json: bool = option(
        False, None, "Print one JSON object once ready, and nothing else.", spelling=("--json",), after="timeout"
    )
