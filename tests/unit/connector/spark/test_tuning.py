"""Settings for small epochs, on a session that only keeps settings."""

from __future__ import annotations

from typing import Any

import pytest

from connector.spark.tuning import TUNING, tuned

WHOLE_STAGE, FACTORY = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"


class Settings(dict[str, str]):
    def unset(self, name: str) -> None:
        self.pop(name, None)

    def set(self, name: str, value: str) -> None:
        self[name] = value


class Session:
    def __init__(self, **settings: str) -> None:
        self.conf: Any = Settings(settings)


def test_a_small_append_is_interpreted_and_all_is_as_before_after_it() -> None:
    spark: Any = Session(**{TUNING: "true", FACTORY: "FALLBACK"})
    before = dict(spark.conf)
    with tuned(spark, {}, appended=1_000):
        assert spark.conf[WHOLE_STAGE] == "false"
        assert spark.conf[FACTORY] == "NO_CODEGEN"
    assert dict(spark.conf) == before


@pytest.mark.parametrize(
    ("settings", "appended"),
    [({TUNING: "true"}, 1_000_000), ({TUNING: "true"}, None), ({}, 1_000), ({TUNING: "false"}, 1_000)],
    ids=["large", "merged", "a user's own session", "not wanted"],
)
def test_nothing_else_is_touched(settings: dict[str, str], appended: int | None) -> None:
    spark: Any = Session(**settings)
    with tuned(spark, {}, appended=appended):
        assert dict(spark.conf) == settings


def test_what_the_user_has_chosen_stays() -> None:
    spark: Any = Session(**{TUNING: "true", WHOLE_STAGE: "true"})
    with tuned(spark, {WHOLE_STAGE: "true"}, appended=1):
        assert spark.conf[WHOLE_STAGE] == "true"
        assert spark.conf[FACTORY] == "NO_CODEGEN"
