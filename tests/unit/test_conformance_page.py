"""docs/conformance.md and what other pages say of it are what the cases are."""

from __future__ import annotations

import re

import avro_cases
import compatibility_cases
import compatibility_json
import compatibility_protobuf
import debezium_cases
import protobuf_cases
import pytest
from conformance_page import FREE_KINDS, all_of, flows_apart, in_short, is_taken, kind_of, page
from json_texts import ACCEPTED, FREE, REFUSED
from pages import ROOT


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    assert text_of("docs/conformance.md") == page(), "make docs"


def test_other_pages_have_its_results() -> None:
    assert in_short() in " ".join(text_of("README.md").split())
    assert flows_apart() in text_of("docs/comparison.md")


def test_every_case_is_there_once() -> None:
    texts = [*all_of(ACCEPTED), *all_of(REFUSED), *all_of(FREE)]
    assert len(texts) == len({*texts}) == 316
    of_protobuf = [suite.cases() for suite in protobuf_cases.SUITES]
    of_changes = [compatibility_cases.PAIRS, compatibility_json.CHANGES, compatibility_protobuf.CHANGES]
    for cases in (avro_cases.FORMS, avro_cases.CONTENTS, debezium_cases.ALL, *of_protobuf, *of_changes):
        assert len({case.about for case in cases}) == len(cases)


@pytest.mark.parametrize("kind", FREE_KINDS)
def test_texts_of_one_kind_are_all_taken_or_all_refused(kind: str) -> None:
    assert len({is_taken(text) for text in all_of(FREE) if kind_of(text) == kind}) == 1


def test_the_options_that_stand_for_clauses_of_auto_cdc_are_there() -> None:
    options = {name for line in text_of("docs/options.md").splitlines() for name in re.findall(r"^\| `(\w+)`", line)}
    rows = re.findall(r"^\| `.*? \| (.*) \|$", text_of("docs/recipes.md"), flags=re.M)
    named = {name for row in rows for name in re.findall(r"`(\w+):", row)}
    assert {"key", "sequence_by", "track_history_except_column_list"} <= named <= options
