"""Values of sensitive columns stand in the table, and nowhere that people read who may not see it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from audits import verify
from conftest import Lake, Topic
from protobuf_bytes import SHOP, compiled, field

from connector.operations.newest_rows import newest_rows
from sinks.errors import BadRecord, ConfigurationError

pytestmark = pytest.mark.compiled

SECRET = "ann.o.nymous"
OPTIONS: dict[str, Any] = {"schema": "k STRING, email STRING, n INT", "sensitive": "email"}


def test_sensitive_values_stand_in_no_error_log_reason_or_preview_and_letters_can_be_retried(
    lake: Lake, topic: Topic, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "lakelock")
    topic.send(("a", {"k": "a", "email": f"{SECRET}@x", "n": 1}), partition=0)
    lake.pipeline("upsert", **OPTIONS).run()
    topic.send(("b", {"k": "b", "email": f"{SECRET}@y", "n": SECRET}), ("c", {"k": "c", "n": 3}), partition=0)
    with pytest.raises(BadRecord) as caught:
        lake.pipeline("upsert", **OPTIONS).run()
    assert "offset 1" in str(caught.value)

    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    with pytest.raises(ConfigurationError, match="Write sensitive: allow") as refused:
        lake.pipeline("upsert", **OPTIONS, **letters)
    allowed = {**letters, "dead_letters": {**letters["dead_letters"], "sensitive": "allow"}}  # type: ignore[dict-item]
    pipeline = lake.pipeline("upsert", **OPTIONS, **allowed)
    previewed = f"{pipeline.preview(start='earliest')}"
    assert "(sensitive)" in previewed
    pipeline.run()
    assert str(verify(lake, "upsert", **OPTIONS, **allowed)).startswith("exact:")
    reasons = lake.sql("SELECT reason, detail FROM {t}", "letters")
    assert [reason for reason, _ in reasons] == ["value"]
    assert lake.spark is not None
    page = newest_rows(pipeline.config, lake.spark, pipeline.history())
    assert [row.rows[0].count("(sensitive)") for row in page] == [1, 1], "the column, and the letter's record"
    said = (caught.value, caught.value.hint, refused.value, previewed, reasons, pipeline.dead_letters(), page)
    shown = capfd.readouterr()
    for text in (*map(str, said), caplog.text, shown.out, shown.err):
        assert SECRET not in text

    mended = {**OPTIONS, **allowed, "schema": "k STRING, email STRING"}
    assert lake.pipeline("upsert", **mended).retry_dead_letters().through == 1
    found = lake.sql("SELECT k, email FROM {t} ORDER BY k", "upsert")
    assert found == [("a", f"{SECRET}@x"), ("b", f"{SECRET}@y"), ("c", None)]


@pytest.mark.breadth
def test_the_audit_names_a_delete_of_somebody_else_without_its_sensitive_condition(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "email": f"{SECRET}@x", "n": 1}), partition=0)
    lake.pipeline("upsert", **OPTIONS).run()
    lake.sql(f"DELETE FROM {{t}} WHERE email = '{SECRET}@x'", "upsert")
    lacks = verify(lake, "upsert", **OPTIONS)
    assert any("is somebody else's DELETE" in note and ": 1 row deleted." in note for note in lacks.notes)
    assert SECRET not in f"{lacks}{json.dumps(lacks.to_dict())}"


@pytest.mark.breadth
def test_a_sensitive_column_that_no_record_has_is_refused(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a"}), partition=0)
    with pytest.raises(ConfigurationError, match="sensitive: emial isn't a column of the records; did you mean email"):
        lake.pipeline("upsert", **{**OPTIONS, "sensitive": "emial"}).run()
    assert not lake.path("upsert").exists()


@pytest.mark.breadth
def test_no_number_of_a_message_is_quoted(lake: Lake, topic: Topic) -> None:
    """Protobuf's problem is of the number itself: one of 64 bits, where the column is an INT."""
    number = 5_123_456_789
    lake.folder.joinpath("shop.desc").write_bytes(compiled(SHOP))
    topic.send((None, field(1, number)), partition=0)
    value = {"format": "protobuf", "descriptor_file": str(lake.folder / "shop.desc"), "message": "shop.Order"}
    options: dict[str, Any] = {"value": {**value, "schema": "id INT"}, "sensitive": "id"}
    with pytest.raises(BadRecord, match="its value: field id: isn't right") as caught:
        lake.pipeline(**options).run()
    assert str(number) not in f"{caught.value} {caught.value.hint}"
