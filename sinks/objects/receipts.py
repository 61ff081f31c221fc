"""What a prepare call stores for the commit, in an object of its own. The coordinator log stores that object's key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sinks.errors import SinkError, UnsupportedFormat
from sinks.objects.manifest import FORMAT
from sinks.objects.upload import Receipt


@dataclass(frozen=True)
class Receipts:
    """The uploads of one prepare call."""

    epoch: int
    attempt: int
    uploads: Sequence[Receipt]
    zone: str | None = None
    """The time zone of the timestamps in folders' names. None: an earlier version took that of its session."""

    def to_json(self) -> bytes:
        """The receipts as JSON in UTF-8."""
        fields = {
            "lakelock": FORMAT,
            "epoch": self.epoch,
            "attempt": self.attempt,
            "uploads": [each._asdict() for each in self.uploads],
        }
        if self.zone is not None:
            fields["zone"] = self.zone
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes, *, key: str) -> Receipts:
        """Read receipts. Raises UnsupportedFormat, or SinkError if ``body`` is something else."""
        try:
            fields = json.loads(body)
            if fields["lakelock"] > FORMAT:
                raise UnsupportedFormat(
                    f"{key} was prepared in format {fields['lakelock']}; this version reads up to format {FORMAT}.",
                    hint="Upgrade lakelock to the version that wrote it, or a later one.",
                )
            uploads = [Receipt(*(each[name] for name in Receipt._fields)) for each in fields["uploads"]]
            return cls(int(fields["epoch"]), int(fields["attempt"]), uploads, fields.get("zone"))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{key} isn't a list of prepared uploads ({error!r}).",
                hint="Only Lakelock may write under _lakelock/.",
            ) from error
