"""The audit of a whole pipeline: of each of its tables, by the way that fits them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connector.audit import Audit, audit
from connector.audit.claim import Logged
from connector.audit.routes import audit_routes, audit_sinks
from connector.audit.verdict import Verdict
from connector.config import DeltaPlace, PipelineConfig
from connector.display import Line, Page, Shown
from sinks.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ConfigurationError,
    LakelockError,
    RegistryUnreachable,
    TlsFailed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.audit")
_WORST_FIRST = (Verdict.NOT_EXACT, Verdict.UNKNOWN, Verdict.EXACT)
"""What is wrong counts more than what isn't known."""
_OF_ALL = (BrokerUnreachable, AuthenticationFailed, TlsFailed, RegistryUnreachable)
"""What is no table's own fault: the others are not asked for."""


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """What the audit of a pipeline found: one ``Audit`` per table."""

    tables: Sequence[Audit]
    not_audited: Sequence[str] = ()
    """The places of sinks that are no tables."""
    failed: Mapping[str, Exception] = field(default_factory=dict)
    """Of several tables, the places of those that couldn't be audited, and why not."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all tables. UNKNOWN if none was compared, or if one couldn't be."""
        found = {table.verdict for table in self.tables} | ({Verdict.UNKNOWN} if self.failed else set())
        return next((verdict for verdict in _WORST_FIRST if verdict in found), Verdict.UNKNOWN)

    @property
    def ok(self) -> bool:
        """Whether every table is exact."""
        return self.verdict is Verdict.EXACT

    @property
    def exit_code(self) -> int:
        """That of the command: what is wrong before what couldn't be audited, and that before what isn't known."""
        if self.failed and self.verdict is not Verdict.NOT_EXACT:
            return max(getattr(error, "exit_code", 1) for error in self.failed.values())
        return self.verdict.exit_code

    def page(self) -> Page:
        """The page of each table, those that couldn't be audited, and the sinks that aren't."""
        blocks = [block for table in self.tables for block in table.page().blocks]
        blocks += [Line("", f"{place} couldn't be audited: {_told(error)}") for place, error in self.failed.items()]
        if self.not_audited:
            blocks.append(Line("", f"not audited, because they are no tables: {', '.join(self.not_audited)}"))
        return Page(blocks)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``, of a pipeline with several sinks."""
        tables = [table.to_dict() for table in self.tables]
        failed = {"failed": {place: _told(error) for place, error in self.failed.items()}} if self.failed else {}
        return {"ok": self.ok, "tables": tables, "not_audited": list(self.not_audited), **failed}


def _told(error: Exception) -> str:
    """An error in words. Of one that isn't Lakelock's own, only the first line."""
    if isinstance(error, LakelockError):
        return error.message
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:500]


def verify(
    config: PipelineConfig,
    version: int | None = None,
    *,
    say: Callable[[str], None] = log.info,
    debug: bool = False,
    spark: SparkSession | None = None,
) -> Verification:
    """Audit every table of a pipeline. Changes nothing. ``version``: that of the only table; None: the newest.

    ``say`` is told what is being done. ``spark``: the session whose settings and catalogs count; None: the active one,
    or one of its own. Raises what ``audit`` raises, unless another table could be audited, and ConfigurationError
    if there is no table, or several and a version.
    """
    failed: dict[str, Exception] = {}

    def one(alone: PipelineConfig, upto: Logged | None = None) -> Audit | None:
        out = next((error for error in failed.values() if isinstance(error, _OF_ALL)), None)
        try:
            if out is not None:
                raise out  # each of many tables would wait for it
            return audit(alone, version, upto=upto, say=say, debug=debug, given=spark)
        except Exception as error:  # Spark has errors of its own, as for a file that is gone
            failed[alone.sinks[0].place] = error
            return None

    tables = [index for index, sink in enumerate(config.sinks) if isinstance(sink, DeltaPlace)]
    if version is not None and (len(tables) > 1 or config.route is not None):
        raise ConfigurationError("A version is for pipelines with one table: each table has versions of its own.")
    if not tables:
        raise ConfigurationError("The auditor compares Delta tables with Kafka; this pipeline has none.")
    if config.route is not None:
        audits = audit_routes(config, one, say=say, debug=debug, given=spark)
    elif config.two_phase and version is None:
        audits = audit_sinks(config, one, tables, debug=debug, given=spark)
    else:
        audits = [found for index in tables if (found := one(config.alone(index))) is not None]
    if failed and not audits:
        raise next(iter(failed.values()))
    return Verification(audits, [sink.place for sink in config.sinks if not isinstance(sink, DeltaPlace)], failed)
