"""What a check says of the places that it has looked at."""

from pathlib import Path

import pytest

from connector.operations.checked import Checked, CheckedSink, Sample
from sinks.offsets import Offsets


def said(place: str) -> str:
    sink = CheckedSink("table", place, exists=False, columns=("n",))
    return repr(Checked("p", [sink], None, "earliest", None, Offsets(), 0, Sample()))


def test_a_table_in_the_working_directory_is_named_as_it_is_reached_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "ok: lake/orders will be made" in said(f"{tmp_path}/here/lake/orders")
    for elsewhere in (f"{tmp_path}/hereafter/orders", "s3a://lake/orders", "main.shop.orders", "kafka:orders"):
        assert f"ok: {elsewhere} will be made" in said(elsewhere)
