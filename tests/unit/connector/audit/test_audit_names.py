"""The auditor spells JSON's names as the schema does, and changes nothing else."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from connector.audit import names
from connector.audit.names import spelled_as

CITY = StructType([StructField("city", StringType())])
KIND = StructType(
    [
        StructField("k", StringType()),
        StructField("n", IntegerType()),
        StructField("at", CITY),
        StructField("stops", ArrayType(CITY)),
        StructField("by_name", MapType(StringType(), CITY)),
    ]
)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ('{"N": 5, "k":"n"}', '{"n": 5, "k":"n"}'),
        ('{"\\u004e": 1e400}', '{"n": 1e400}'),
        ('{"N": 1, "n": null}', '{"N": 1, "n": null}'),
        ('{"N": 1, "N": 2}', '{"n": 1, "n": 2}'),
        ('{"At": {"City": "x", "CITY ": 1}}', '{"at": {"city": "x", "CITY ": 1}}'),
        ('{"At": {"City": 1}, "at": {"CITY": 2}}', '{"At": {"city": 1}, "at": {"city": 2}}'),
        ('{"stops": [{"CITY": 1}, {"City": [{"City": 2}]}]}', '{"stops": [{"city": 1}, {"city": [{"City": 2}]}]}'),
        ('{"by_name": {"City": {"City": 1}}}', '{"by_name": {"City": {"city": 1}}}'),
        ('{"other": {"K": 1, "at": {"City": 1}}}', '{"other": {"K": 1, "at": {"City": 1}}}'),
        ('{"x": "\\"K\\":", "K": "b{"}', '{"x": "\\"K\\":", "k": "b{"}'),
        ("{'At': {City: /* \"City\": */ 'Zug'}}", '{"at": {"city": /* "City": */ \'Zug\'}}'),
        ('{"K": "a"} {"K": "b"}', '{"k": "a"} {"K": "b"}'),
    ],
)
def test_names_that_count_are_spelled_as_in_the_schema(text: str, spelled: str) -> None:
    assert spelled_as(KIND, text) == spelled


@pytest.mark.parametrize("text", ['{"N": 1, "Ñ": 2}', '{"k": ', "}", '{"K" "a"}', "[[{]", "{: 1}", '"K": 1', "", "\\"])
def test_what_is_no_json_stays_so(text: str) -> None:
    assert spelled_as(KIND, text) == text.replace('"N"', '"n"')


def test_two_spellings_without_the_schemas_own_are_no_json() -> None:
    assert spelled_as(KIND, '{"k": "a", "At": {"City": 1, "CITY": 2}}') == "!"


def test_an_executor_without_the_package_can_spell_names(tmp_path: Path) -> None:
    """A cluster's executors have PySpark, and not this package."""
    cloudpickle.register_pickle_by_value(names)  # as ``respelled`` does
    (tmp_path / "function").write_bytes(cloudpickle.dumps(partial(spelled_as, KIND)))
    code = "import pickle, sys; print(pickle.load(open('function', 'rb'))('{\"N\": 1}'), 'connector' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == '{"n": 1} False'
