"""What Delta says of a row that it refuses becomes an error that names the rule and the table."""

from __future__ import annotations

import pytest

from sinks.delta.moved import about_moved_keys
from sinks.delta.refusals import about_refused_rows, refused
from sinks.errors import BadRecord, KeyMoved, SchemaMismatch

OF_A_JOB = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:\norg.apache.spark.sql.delta.schema."


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint small (n < 100) violated by row with values:\n"
            " - n : 1000",
            "it breaks the table's constraint small: n < 100",
        ),
        (
            "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint Generated Column (day <=> CAST(at AS DATE)) "
            "violated by row with values:\n - at : 1",
            "a generated column would hold another value than what the table generates: day <=> CAST(at AS DATE)",
        ),
        (
            "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: op.\n\tat org",
            "its op is null, and NOT NULL in the table",
        ),
        (
            '[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] Value "abcd" exceeds char/varchar type length limitation. Failed check: '
            "((v IS NULL) OR (length(v) <= 3)).",
            "a text is longer than its column allows: ((v IS NULL) OR (length(v) <= 3))",
        ),
        (
            "[EXCEED_LIMIT_LENGTH] Exceeds char/varchar type length limitation: 3. SQLSTATE: 54006",
            "a text is longer than the 3 characters that its column allows",
        ),
    ],
)
def test_a_row_that_delta_refuses_names_the_rule_and_the_table(said: str, told: str) -> None:
    with pytest.raises(BadRecord) as caught, about_refused_rows("lake/t"):
        raise RuntimeError(f"{OF_A_JOB}DeltaInvariantViolationException: {said}")
    assert (
        str(caught.value) == f"A row would be refused by the table 'lake/t': {told}. Nothing of this epoch was written."
    )
    assert "DROP CONSTRAINT" in caught.value.hint


def test_a_table_that_only_takes_appends_is_named_with_its_property() -> None:
    error = refused(
        RuntimeError("[DELTA_CANNOT_MODIFY_APPEND_ONLY] This table is configured to only allow appends."), "t"
    )
    assert isinstance(error, SchemaMismatch)
    assert "'t' has delta.appendOnly = true" in str(error)


def test_other_errors_stay_as_they_are() -> None:
    assert refused(RuntimeError("[DIVIDE_BY_ZERO] Division by zero."), "t") is None
    with pytest.raises(RuntimeError, match="disk"), about_refused_rows("t"):
        raise RuntimeError("No space left on the disk")
    with pytest.raises(KeyMoved), about_refused_rows("t"):
        raise KeyMoved("CHECK constraint a (b) violated by row with values")


def test_a_key_in_two_partitions_is_told_with_its_usual_cause_and_the_fix() -> None:
    with pytest.raises(KeyMoved) as caught, about_moved_keys("lake/t"):
        raise RuntimeError(
            'LAKELOCK>{"kind": "key_moved", "key": "{}", "topic": "t", "partition": 1, "offset": 7, '
            '"stored_topic": "t", '
            '"stored_partition": 0}'
        )
    assert caught.value.hint.startswith("The usual cause: the sink's key isn't Kafka's message key")
    assert "sequence_by: _timestamp" in caught.value.hint
