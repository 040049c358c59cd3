"""Sizes of memory as people write and read them."""

import math


def parse_bytes(text: str | int) -> int | None:
    """Bytes from 500MB, 1.5 GB, 64kB, or a number of them; None where it is no size."""
    if not isinstance(text, str):
        return text if text > 0 else None
    units = {"GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}
    written = text.strip().upper()
    unit = next((unit for unit in units if written.endswith(unit)), None)
    try:
        size = float(written.removesuffix(unit)) * units[unit] if unit else math.nan
    except ValueError:
        return None
    return int(size) if 0 < size < math.inf else None


def readable(size: float | int) -> str:
    """Bytes as a person reads them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
