"""A SELECT between decoding and the table."""

import pytest
from conftest import Lake, Topic

from sinks.errors import ConfigurationError

pytestmark = pytest.mark.compiled


def test_several_rows_of_a_record_keep_its_coordinates(lake: Lake, topic: Topic) -> None:
    topic.send(*((None, {"line": line}) for line in ("to be or", "not to be", "")), partition=1)
    lake.pipeline(
        schema="line STRING", transform="SELECT explode(split(line, ' ')) AS word FROM records WHERE line <> ''"
    ).run()
    assert lake.frame().columns == ["word", "_topic", "_partition", "_offset", "_timestamp"]
    rows = lake.sql("SELECT word, _partition, _offset FROM {t} ORDER BY _offset, word")
    assert rows == [("be", 1, 0), ("or", 1, 0), ("to", 1, 0), ("be", 1, 1), ("not", 1, 1), ("to", 1, 1)]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT * FROM records", ["k", "n"]),
        ("-- SELECT it\n select /*+ COALESCE(1) */ n + _partition AS n2, * FROM records", ["n2", "k", "n"]),
        ("SELECT r.k, 'LIMIT' AS `group` FROM (SELECT * FROM records) AS r", ["k", "group"]),
    ],
)
def test_columns_of_a_transform(sql: str, columns: list[str], lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)], partition=1)
    lake.pipeline(transform=sql).run()
    assert lake.frame().columns == [*columns, "_topic", "_partition", "_offset", "_timestamp"]
    assert lake.sql("SELECT _partition, _offset FROM {t}") == [(1, 0)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT k, count(*) FROM records GROUP BY k", "GROUP can't be used"),
        ("SELECT k FROM records LIMIT 5", "LIMIT can't be used"),
        ("SELECT sum(n) OVER (ORDER BY k) AS s FROM records", "OVER can't be used"),
        ("SELECT max(n) AS n FROM records", "Spark doesn't take it"),
        ("SELECT nn FROM records", "nn"),
        ("SELECT k FROM record", "write one SELECT ... FROM records"),
        ("SELECT k FROM (SELECT k FROM records)", "added automatically"),
        ("DROP TABLE records", "write one SELECT"),
        ("SELECT k, n AS K FROM records", "there twice"),
    ],
)
def test_what_does_not_work_row_by_row_is_refused(sql: str, said: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)])
    with pytest.raises(ConfigurationError) as caught:
        lake.pipeline(transform=sql).run()
    assert said in f"{caught.value} {caught.value.hint}"
    assert not lake.path().exists()
