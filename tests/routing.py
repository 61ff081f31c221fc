"""A pipeline with a route, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from another_engine import query
from audits import counts
from conftest import Lake

from connector import Pipeline
from connector.audit import audit, audit_routes
from connector.config import parse
from sinks.contract import Committed, Epoch, Prepared
from sinks.delta.unstaged import Unstaged

SCHEMA = "kind STRING, k STRING, n INT"
Record = tuple[str | None, str, int]


class Killed(BaseException):
    """As if the process had died here: nothing catches it."""


@contextmanager
def dying_before_the_commit_of(name: str) -> Iterator[None]:
    """A process that dies after it has committed an epoch to the other tables of a route."""
    commit = Unstaged.commit

    def commit_or_die(self: Unstaged, epoch: Epoch, prepared: Prepared) -> Committed:
        if self.name == name:
            raise Killed
        return commit(self, epoch, prepared)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Unstaged, "commit", commit_or_die)
        with pytest.raises(Killed):
            yield


class Routed:
    """A pipeline whose records name their table in ``kind``."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.topic = lake.topic

    def options(self, *, sink: Any = None, route: Any = None, **changes: Any) -> dict[str, Any]:
        options = self.lake.options(**{"schema": SCHEMA, **changes})
        del options["sinks"]
        place = {"type": "delta_append", "path": f"{self.lake.folder}/{{kind}}", **(sink or {})}
        options["route"] = {"by": "kind", "sink": place, **(route or {})}
        return {"coordinator": {"path": str(self.lake.folder / "_log")}, **options}

    def run(self, **changes: Any) -> Any:
        observers = changes.pop("observers", ())
        return Pipeline.from_options(self.options(**changes)).run(observers=observers)

    def send(self, *records: Record, partition: int | None = 0) -> None:
        values = ({"kind": kind, "k": k, "n": n} if kind is not None else {"k": k, "n": n} for kind, k, n in records)
        self.topic.send(*((k, value) for (_, k, _), value in zip(records, values, strict=True)), partition=partition)

    def rows(self, kind: str) -> list[tuple[str, int]]:
        return sorted(query(self.lake.folder / kind, "SELECT k, n FROM t"))

    def epochs(self, kind: str) -> list[int]:
        return [each["epoch"] for each in self.lake.metadata(kind)]

    def send_named(self, *records: tuple[str, str, Any]) -> None:
        """(table, key, value): the header ``kind`` names the table. A value that isn't None is sent as JSON. A table
        ``\\udcff`` is the byte FF."""
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.topic.broker.bootstrap)
        for kind, key, value in records:
            sent = None if value is None else json.dumps(value).encode()
            headers = [("kind", kind.encode(errors="surrogateescape"))]
            producer.send(self.topic.name, sent, key.encode(), headers, partition=0)
        producer.flush()
        producer.close()

    def verified(self, **changes: Any) -> dict[str, dict[str, int]]:
        """By table, the counts of its audit that aren't zero."""
        audits = audit_routes(parse(self.options(**changes)), lambda one, upto: audit(one, upto=upto))
        return {Path(each.table).name: counts(each) for each in audits}
