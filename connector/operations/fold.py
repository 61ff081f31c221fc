"""Folds change logs into their tables at once, between or during runs."""

from __future__ import annotations

from connector.config import PipelineConfig
from connector.config.route import sinks_of
from connector.config.sinks import MergedSink
from connector.engine.assembly import Assembly
from connector.protocol.steps import Observer
from sinks.contract import Committed
from sinks.delta.standing import no_longer_counts
from sinks.errors import ConfigurationError


def refuse_no_change_log(config: PipelineConfig) -> None:
    """Raises ConfigurationError for a pipeline without a table that is merged on read."""
    if config.merges_on_read:
        return
    if not any(isinstance(sink, MergedSink) for sink in sinks_of(config)):
        raise ConfigurationError(
            f"Pipeline {config.name!r} has nothing to fold: its sinks have no change log.",
            hint="With `merge: on_read`, a delta_upsert or delta_aggregate sink appends epochs to a change log, and "
            "folds them later.",
        )
    # Whether epochs are left of a file that said otherwise only the change log tells.
    together = config.two_phase
    raise ConfigurationError(
        f"Pipeline {config.name!r} has nothing to fold by its file, which says `merge: on_write`: each epoch is merged "
        "into the table.",
        hint="What was appended before the file said so "
        + ("is folded with the file as it was before." if together else "is folded by the next `lakelock run FILE`."),
    )


def fold_now(assembly: Assembly, observe: Observer) -> Committed | None:
    """See ``Pipeline.fold``. Of a route, the commit of one of the folded tables."""
    if assembly.routes is None:
        assembly.make_ready()
        position, log = assembly.table.derivation.sink.position(), assembly.table.derivation.log
        if log is not None and log.given_up:
            raise no_longer_counts(
                assembly.table.label,
                log.given_up,
                done="folded",
                hint="`lakelock run FILE` reads their records again, and starts the change log anew.",
            )
        folding = assembly.folding(observe)
        return folding.now(position) if position is not None and folding is not None else None
    assert assembly.log is not None
    decided = assembly.log.read().decided if assembly.log.exists() else None
    for sink in assembly.routes.sinks(decided.prepared if decided is not None else ()).values():
        sink.position()
    folded = assembly.routes.fold(observe, now=True)
    return next(iter(folded.values()), None)
