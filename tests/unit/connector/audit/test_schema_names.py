"""The names of the schemas that records name, as the auditor finds them out."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from connector.audit import schema_names
from connector.audit.registries import Texts
from connector.audit.schema_names import Names

ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
ENUM = {"type": "enum", "name": "shop.Kind", "symbols": ["A"]}
SCHEMAS: dict[bytes, Texts | None] = {
    b"order": (json.dumps(ORDER),),
    b"of a reference": (json.dumps(ENUM), '"shop.Kind"'),
    b"union": ('["null", "long"]',),
    b"broken": ('{"type": "record"}',),
    b"nowhere": None,
}


class Registry:
    header = 5

    def of(self, header: bytes) -> Texts | None:
        return SCHEMAS[header]

    def versions(self, topic: str) -> list[Texts]:
        raise AssertionError(topic)


def test_a_schema_has_its_full_name_and_one_that_cannot_be_used_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_names, "headers", lambda *_: list(SCHEMAS))
    found = Names(Registry(), alone=True)._names(cast(Any, None))
    assert found == {b"order": "shop.Order", b"of a reference": "shop.Kind", b"union": ""}
