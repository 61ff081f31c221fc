"""A table that another pipeline has written, and that this one has taken over: its commits say where it stands.

With ``together: atomic`` one pipeline writes all sinks. With ``eventual`` each sink has a pipeline of its own. The new
one takes over the newest commit of the former one: its offsets, and also where it began, what was lost, the
topic ids and the clock. Rows alone wouldn't tell that: a record may have left no row, or somebody may have erased it.
The numbers of epochs go on. The first run commits an epoch without records, if there are none, so that the table names
its new pipeline.

====================  ==================================================================================================
crash                 what is left
====================  ==================================================================================================
before the epoch      The former pipeline's commit. The next run takes it over.
after the epoch       The new pipeline's own commit, which says all that the former one's did.
====================  ==================================================================================================
"""

from __future__ import annotations

from sinks.delta.metadata import CommitMetadata
from sinks.errors import ConfigurationError


def cleaned_away(label: str, pipeline: str, former: str) -> ConfigurationError:
    """The error of a table whose history has no commit of the former pipeline any more, although it has written it."""
    return ConfigurationError(
        f"{label!r} was written by pipeline {former!r}, and the table's history doesn't say any more how far. By its "
        f"rows alone, pipeline {pipeline!r} could miss records, or write some twice. Nothing was written.",
        hint="Run the file with `together: atomic` until it has committed an epoch, which says so. Then write "
        "`together: eventual` again.",
    )


def refuse_gone_back(label: str, newest: CommitMetadata, highest: int, pipeline: str) -> None:
    """Raises ConfigurationError if the former pipeline has committed after this one had begun.

    ``newest``: the former one's commit, which is the table's newest; ``highest``: this one's highest epoch.
    """
    if highest:
        raise ConfigurationError(
            f"{label!r} was written by pipeline {pipeline!r} up to epoch {highest}, and then by {newest.pipeline!r} "
            "again. The two don't know each other's records. Nothing was written.",
            hint="Don't run the file with `together: atomic` any more. To go on here, RESTORE the table to the newest "
            f"version of {pipeline!r} (DESCRIBE HISTORY has it).",
        )
