"""Which options of a pipeline file hold secrets, by their path in the file."""

from __future__ import annotations

from connector.config.flows import FLOWS
from connector.config.marks import Path
from sinks.kafka import SECRET

REFERENCED = ("username", "password", "token")
"""Options of services that log in."""
WEBHOOK = ("notify", "url")
"""Who has this URL can write there."""
OF_CUSTOM_SINK = ("sinks", "options")
"""Without the number of the sink."""
STEPS, SALT = "steps", "salt"
"""Who has the salt of a step can find out masked values by trying."""
_TABLES, _SINK = "tables", "sink"


def in_pipeline(path: Path) -> Path:
    """Where an option of ``tables`` is in the pipeline of a topic: an override has the options of a pipeline file."""
    if path[:1] != (_TABLES,):
        return path
    own = path[3:] if path[1:2] == ("overrides",) else path[1:]
    return ("sinks", 0, *own[1:]) if own[:1] == (_SINK,) else own or path


def holds_secret(path: Path) -> bool:
    """Whether a value that comes from the environment or a file stays wrapped as a secret here."""
    path = in_pipeline(path)
    of_service = ("registry" in path or path[:2] == ("metrics", "push")) and path[-1] in REFERENCED
    of_own_class = (*path[:1], *path[2:3]) == OF_CUSTOM_SINK
    of_step = (path[:1] == (STEPS,) or (path[:1] == (FLOWS,) and path[2:3] == (STEPS,))) and path[-1] == SALT
    usual = path[:2] == ("source", "kafka") or path[:1] == ("spark",) or path == WEBHOOK
    return usual or of_service or of_own_class or of_step


def may_hold_secret(path: Path) -> bool:
    """Whether an error may not show the value here: also where a secret stands in a wrong place."""
    beside = in_pipeline(path) == WEBHOOK[:1] or bool({"registry", "push", "options"} & set(path))
    return holds_secret(path) or beside or any(isinstance(part, str) and SECRET.search(part) for part in path)
