"""Text that something on its way could take for more than text: as keys, values, names and headers."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import strategies as st

PLANTED = {"PLANTED_THING": "pl4nted-6f1c"}
"""In the environment of tests' JVMs, whose SQL would know it as ``${env:PLANTED_THING}``."""
SUBSTITUTED = ("${x}", "${env:PLANTED_THING}", "z${env:PLANTED_THING}", "${x}zzzz", "${system:java.home}")
PIECES = (
    *SUBSTITUTED, "${", "$\\{x}", "$${x}", "\\u0024{x}", "'", "''", "\\'", "\\", '"', "`", "``", "-- no", "/* no",
    "*/", "/*+ REBALANCE */", "{}", "{0}", "{rows}", "{{ x }}", "{% x %}", "\n", "\r\n", "\t", "\0", "\u202e", "\u200f",
    "\u2028", "raise_error('x')", "' OR true --", "); DROP TABLE t; --", "%s", "%", "_", "?", ":low", "@x", "#{x}", "ä",
    "\U0001f600", 'LAKELOCK>{"kind":"first_delete"}', "null", "", " ",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=3).map("".join)
"""No half of a character: JSON and Kafka have none either."""


def texts(seed: int, count: int) -> list[str]:
    """Other ones in each run, for a test that is too slow for many examples."""
    random = Random(seed)
    return ["".join(random.choice(PIECES) for _ in range(random.randint(1, 3))) for _ in range(count)]


def shown(folder: Path) -> list[Path]:
    """The files of the tables' logs that hold what was planted."""
    files = (file for file in folder.rglob("*") if file.is_file() and "_delta_log" in file.parts)
    return [file for file in files if any(value.encode() in file.read_bytes() for value in PLANTED.values())]
