"""The fence: what an epoch's commit carries, so that a run that was replaced can't commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.contract import Epoch, Folded, Position
from sinks.delta.metadata import CommitMetadata, of_batch
from sinks.delta.table import DeltaTable
from sinks.errors import Fenced
from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CONF = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": USER_METADATA,
}


def options(table: DeltaTable, epoch: Epoch, folded: Folded | None = None) -> dict[str, str]:
    """Options that make a Delta write the commit of an epoch: its number (the fence) and metadata (the position).

    ``folded``: of a change log, what it says of its table.

    This is the rule "fence": a run that was replaced can't commit. The number is Delta's ``txn`` of the pipeline. Of
    two writers that take the same number at the same time, Delta lets one through, and the other's commit fails. A
    write that starts after the other has ended is skipped without an error; then no commit has this run's owner id, and
    the proof fails. A crash before or after the write leaves what ``sinks.delta.proof.Proof`` says. Test:
    ``test_of_two_runs_one_wins_and_the_other_is_told_who`` in tests/integration/test_recovery.py.
    """
    return {
        "txnAppId": epoch.pipeline,
        "txnVersion": str(epoch.number),
        "userMetadata": CommitMetadata.of(epoch, table.id, folded, keeps_order=table.keeps_order).to_json(),
    }


def merge_epoch(table: DeltaTable, epoch: Epoch, rows: DataFrame, view: str, merge: str) -> None:
    """Run a MERGE as the commit of an epoch. ``merge``: SQL that reads ``rows`` as the temporary view ``view``.

    A MERGE takes no options, so Delta reads them from the session, which must be the sink's own. They must not outlive
    the statement: later commits of the session would carry this epoch's number and offsets. Nor may those of a user's
    batch function be lost, by which its own statements are skipped when the batch is repeated.
    """
    rows.createOrReplaceTempView(view)
    with with_settings(table.spark, {_CONF[name]: value for name, value in options(table, epoch).items()}):
        table.spark.sql(merge).collect()


def merge_batch(table: DeltaTable, pipeline: str, merge: str) -> Row | None:
    """Run a MERGE as the commit of a consumer group's batch, and return what it counts. Nothing fences it: the commit
    only says that it is a pipeline's. See ``merge_epoch`` for the session."""
    with with_settings(table.spark, {USER_METADATA: of_batch(pipeline)}):
        return table.spark.sql(merge).first()


def refuse_replaced_by(stands: Position | None, epoch: Epoch, label: str) -> None:
    """Raises Fenced if another run has taken the number of an epoch, or a later one. ``stands``: the position now."""
    if stands is not None and stands.epoch >= epoch.number and stands.owner != epoch.owner:
        raise fenced(epoch, label, owner=stands.owner, number=stands.epoch)


def fenced(epoch: Epoch, label: str, *, owner: str, number: int) -> Fenced:
    """The error of a run that was replaced: run ``owner`` has committed epoch ``number`` to the table ``label``."""
    return Fenced(
        f"Pipeline {epoch.pipeline!r} was replaced: run {owner} has committed epoch {number} to {label!r}; this run "
        f"({epoch.owner}) has stopped, and wrote nothing of epoch {epoch.number}.",
        owner=owner,
        epoch=number,
        hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on from the same offsets.",
    )
