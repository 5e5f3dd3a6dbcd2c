"""Units of bytes: memory sizes use the binary family (MiB, GiB), bandwidths the decimal one (GB)."""

from servelab.checks import require_name

KIB = 1024
MIB = 1024**2
GIB = 1024**3
GB = 10**9

_UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "GB": GB}


def format_bytes(num_bytes: int, unit: str, digits: int = 0) -> str:
    """`num_bytes` in `unit` ("KiB", "MiB", "GiB" or "GB") with `digits` decimals, thousands separated."""
    require_name("unit", unit, _UNITS)
    return f"{num_bytes / _UNITS[unit]:,.{digits}f} {unit}"
