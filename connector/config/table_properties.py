"""Properties of a new Delta table: what Delta would refuse, and what would break the pipeline, with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from connector.config.nearest import did_you_mean
from sinks.delta.detail import interval

_FLAGS = frozenset((
    "appendOnly", "autoOptimize", "autoOptimize.optimizeWrite", "castIcebergTimeType", "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct", "enableChangeDataFeed", "enableDeletionVectors", "enableExpiredLogCleanup",
    "enableFullRetentionRollback", "enableIcebergCompatV1", "enableIcebergCompatV2", "enableIcebergCompatV3",
    "enableInCommitTimestamps", "enableRowTracking", "enableTypeWidening", "enableVariantShredding",
    "ignoreIcebergBucketPartition", "ignoreProtocolDefaults", "randomizeFilePrefixes", "tuneFileSizesForRewrites",
    "writePartitionColumnsToParquet",
))  # fmt: skip
_LEAST: Mapping[str, int] = {
    "checkpointInterval": 1, "dataSkippingNumIndexedCols": -1, "dataSkippingStringPrefixLength": 0,
    "minReaderVersion": 1, "minWriterVersion": 1, "randomPrefixLength": 1,
}  # fmt: skip
"""Properties that are whole numbers -> the least one."""
_INTERVALS = frozenset((
    "checkpointRetentionDuration", "deletedFileRetentionDuration", "dropFeatureTruncateHistory.retentionDuration",
    "logRetentionDuration", "sampleRetentionDuration",
))  # fmt: skip
_WORDS: Mapping[str, tuple[str, ...]] = {
    "checkpointPolicy": ("classic", "v2"),
    "columnMapping.mode": ("none", "name", "id"),
    "isolationLevel": ("Serializable", "WriteSerializable"),
}
_TEXTS = frozenset((
    "autoOptimize.autoCompact", "dataSkippingStatsColumns", "parquet.compression.codec", "parquet.format.version",
    "targetFileSize", "universalFormat.enabledFormats",
))  # fmt: skip
_KNOWN: Mapping[str, str] = {
    f"delta.{name}".lower(): f"delta.{name}" for name in (*_FLAGS, *_LEAST, *_INTERVALS, *_WORDS, *_TEXTS)
}
"""Delta's properties that a table can be made with. Delta takes their names in any case."""
_OF_FAMILIES = ("delta.feature.", "delta.universalformat.config.")
_REFUSED: Mapping[str, str] = {
    r"lakelock\..*": "Lakelock keeps its own notes under such names. Give it another name",
    r"delta\.settransactionretentionduration": (
        "Delta would forget the pipeline's last epoch after that time, and a run that was replaced could commit it "
        "again. Remove it"
    ),
    r"delta\.coordinatedcommits\..*|delta\.feature\.(catalogmanaged|catalogowned|coordinatedcommits)\b.*": (
        "another service would hold the newest commits, and Lakelock looks for them in the table's log. Remove it"
    ),
    r"delta\.feature\.clustering": "Delta clusters a table by its columns only. Write cluster_by: ...",
    r"delta\.constraints\..*": (
        "Delta checks a constraint only when ALTER TABLE adds it. Remove it, and once the table is made write ALTER "
        "TABLE ... ADD CONSTRAINT"
    ),
    r"delta\.(columnmapping\.maxcolumnid|rowtrackingsuspended|incommittimestampenablement.*|redirect.*"
    r"|requirecheckpointprotectionbeforeversion|lastupdateversion|lastcommittimestamp)": (
        "Delta sets it itself. Remove it"
    ),
    r"comment": "the table's comment has an option of its own. Write comment: ...",
    r"provider|location|owner|external|is_managed_location": "Spark keeps this name to itself. Give it another name",
}
"""Names, in lower case, that a new table can't have -> why, and what to do."""
_FILES_AT_LEAST, _LOG_AT_LEAST = timedelta(hours=1), timedelta(days=1)


def checked(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Check the properties of a new table. Raises ValueError for the first one that is wrong.

    Returns them with Delta's own spelling of its names.
    """
    lower = [name.lower() for name in properties]
    for name, value in properties.items():
        if not name or lower.count(name.lower()) > 1:
            raise ValueError(f"{name or 'a name'}: is {'there twice' if name else 'empty'}")
        _check_name(name)
        _check_value(name, value)
    _check_retention(properties)
    return {_KNOWN.get(name.lower(), name): value for name, value in properties.items()}


def value_of(properties: Mapping[str, str], name: str) -> str | None:
    """The value of one of Delta's properties, whatever the case of its name. None: it isn't there."""
    return next((value for given, value in properties.items() if given.lower() == name.lower()), None)


def _check_name(name: str) -> None:
    for pattern, why in _REFUSED.items():
        if re.fullmatch(pattern, name.lower()):
            raise ValueError(f"{name}: {why}")
    lower = name.lower()
    if not lower.startswith("delta.") or lower in _KNOWN or lower.startswith(_OF_FAMILIES):
        return
    instead = did_you_mean(name, _KNOWN.values()) or "; names of your own can't begin with delta."
    raise ValueError(f"{name}: is no property of Delta's that a table can be made with{instead}")


def _check_value(name: str, value: str) -> None:
    own = _KNOWN.get(name.lower(), "").removeprefix("delta.")
    if own in _FLAGS and value.lower() not in ("true", "false"):
        raise ValueError(f"{name}: is true or false, not {value!r}")
    if own in _LEAST and (re.fullmatch(r"-?\d+", value) is None or int(value) < _LEAST[own]):
        raise ValueError(f"{name}: is a whole number from {_LEAST[own]}, not {value!r}")
    if own in _INTERVALS and interval(value) is None:
        raise ValueError(f"{name}: is a number and a unit up to weeks, as in 30 days, not {value!r}")
    if own in _WORDS and value not in _WORDS[own]:
        raise ValueError(f"{name}: is one of {', '.join(_WORDS[own])}, not {value!r}")


def _check_retention(properties: Mapping[str, str]) -> None:
    files, log = (
        interval(value_of(properties, f"delta.{name}") or default) or timedelta(0)
        for name, default in (("deletedFileRetentionDuration", "7 days"), ("logRetentionDuration", "30 days"))
    )
    if files < _FILES_AT_LEAST:
        raise ValueError(
            "delta.deletedFileRetentionDuration: is shorter than 1 hour: VACUUM could remove files that a run is about "
            "to commit. Write 1 hour or more"
        )
    if log < _LOG_AT_LEAST:
        raise ValueError(
            "delta.logRetentionDuration: is shorter than 1 day: the pipeline's position is in the log, and a run "
            "writes it again only every half of that time. Write 1 day or more"
        )
    if log < files:
        raise ValueError(
            "delta.logRetentionDuration: is shorter than delta.deletedFileRetentionDuration (7 days by default), and "
            "Delta makes no such table. Raise the first, or lower the second"
        )
