"""``steps:``, as the pipeline file has it: what is taken, and what is refused before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import PipelineConfig, parse
from connector.config.masked import without_secrets
from connector.config.steps import Step, names_before
from sinks.errors import ConfigurationError

SALT = "a salt of the tests"
MASK = {"mask": "email", "salt": "${env:MASK_SALT}"}
UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "id", "sequence_by": "seq"}


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SALT", SALT)


def config(*steps: Any, **changes: Any) -> PipelineConfig:
    options = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "id INT, email STRING, seq BIGINT"},
        **({} if "route" in changes else {"sinks": [UPSERT]}),
        **({"steps": list(steps)} if steps else {}),
    }
    return parse({**options, **changes})


def test_each_step_is_one_line() -> None:
    steps = [
        {"rename": {"oid": "id"}}, {"drop": ["a", "b"]}, MASK, {"flatten": "address"},
        {"cast": {"amount": "decimal(10, 2)", "n": "integer"}}, {"filter": "amount > 0"},
        {"header": {"trace": "x-trace"}}, {"add": {"region": "eu", "live": True, "version": 2, "share": 0.5}},
    ]  # fmt: skip
    made = config(*steps).steps
    assert [step.kind for step in made] == [next(iter(step)) for step in steps]
    assert made[4].option == {"amount": "DECIMAL(10,2)", "n": "INT"}
    assert [type(value) for value in made[7].option.values()] == [str, bool, int, float]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"rename": {"a": "b"}, "drop": "c"}, "this one has rename and drop"),
        ({"salt": "${env:MASK_SALT}"}, "this one has none"),
        ({"mask": "email"}, "mask needs salt beside it"),
        ({"drop": "a", "salt": "${env:MASK_SALT}"}, "mask needs salt beside it"),
        ({"mask": "email", "salt": SALT}, "a secret must not be written in a pipeline file"),
        ({"mask": "email", "salt": "${env:SHORT}"}, "shorter than 16 bytes"),
        ({"cast": {"a": "INTERVAL"}}, "not 'INTERVAL'"),
        ({"cast": {"a": "DECIMAL(39,2)"}}, "up to 38 digits"),
        ({"add": {"a": None}}, "a text in quotes"),
        ({"add": {"a": 2**63}}, "is no BIGINT"),
        ({"filter": "at > now()"}, "now may give another value each time"),
        ({"drop": []}, "is empty"),
        ({"drop": ["a", "A"]}, "names the column a twice"),
        ({"masked": "email"}, "unknown option"),
    ],
)
def test_a_wrong_step_is_refused_with_its_place(
    step: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "fifteen bytes..")
    with pytest.raises(ConfigurationError, match=r"steps\[1\]") as caught:
        config({"drop": "x"}, step)
    assert says in str(caught.value)
    assert SALT not in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([{"drop": "id"}], r"steps\[0\].drop: removes id, a column of sinks\[0\].key"),
        ([{"rename": {"id": "oid"}}], "rename: renames id, a column of"),
        ([{"rename": {"id": "a"}}, {"add": {"id": 1}}], "would be the same in every record"),
        ([{"add": {"a": 1}}, {"rename": {"a": "id", "id": "b"}}], "would be the same in every record"),
        ([{**MASK, "mask": "seq"}], "a hash has another order"),
        ([{"add": {"seq": 1}}], "orders nothing"),
        ([{"cast": {"seq": "STRING"}}], "10 comes before 9"),
        ([{"flatten": "seq"}], "this step replaces it"),
        ([{"cast": {"n": "STRING"}}, {"rename": {"n": "seq"}}], r"steps\[0\].cast.*10 comes before 9"),
        ([{**MASK, "mask": "SEQ"}], "a hash has another order"),
        ([{**MASK, "mask": "n"}, {"cast": {"n": "STRING"}}, {"rename": {"n": "Seq"}}], r"steps\[0\].mask: .* hash has"),
        ([{"add": {"seq": 1}}, {"cast": {"seq": "STRING"}}], "orders nothing"),
        (
            [{"add": {"ID": 1}}, {**MASK, "mask": "ID"}],
            r"steps\[0\].add: id is in .* would be the same in every record",
        ),
        ([{"add": {"a": 1}}, {"cast": {"a": "STRING"}}, {"rename": {"a": "id"}}], "would be the same in every record"),
    ],
)
def test_what_identifies_and_orders_rows_keeps_its_meaning(steps: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        config(*steps)


AGGREGATE = {"type": "delta_aggregate", "path": "lake/a", "group_by": "id"}


@pytest.mark.parametrize(
    ("aggregate", "step", "says"),
    [
        (
            "last(email, seq)",
            {"cast": {"seq": "STRING"}},
            r"steps\[0\].cast: sinks\[0\].aggregates.n .*10 comes before 9",
        ),
        ("first(email, struct(seq, id))", {**MASK, "mask": "seq"}, r"steps\[0\].mask: .* a hash has another order"),
        ("MAX_BY(email, Seq)", {"add": {"seq": 1}}, "orders nothing"),
        ("min_by(email, seq)", {"drop": "seq"}, "this step removes it"),
        ("max(email)", MASK, r"largest of email, and a hash has another order"),
        ("top_n(lower(email), 3)", MASK, "a hash has another order"),
        ("last(email, CAST(seq AS BIGINT))", {"cast": {"seq": "STRING"}}, None),
        ("last(email, seq)", MASK, None),
        ("last(email)", {**MASK, "mask": "seq"}, None),
        ("last(email, CASE WHEN email IS NOT NULL THEN _timestamp END)", MASK, None),
        ("last(seq, CASE WHEN seq IS NOT NULL THEN _timestamp END)", {"cast": {"seq": "STRING"}}, None),
        ("last(id, CASE WHEN email IS NOT NULL THEN email END)", MASK, "a hash has another order"),
        ("last(id, CASE WHEN email IS NOT NULL THEN seq END)", {"drop": "email"}, "this step removes it"),
        ("max(CASE WHEN email IS NOT NULL THEN seq END)", MASK, None),
        ("collect_set(email, 3)", MASK, None),
        ("max(seq)", {"cast": {"seq": "STRING"}}, None),
    ],
)
def test_what_orders_records_in_an_aggregate_keeps_its_meaning(
    aggregate: str, step: dict[str, Any], says: str | None
) -> None:
    sinks = [{**AGGREGATE, "aggregates": {"n": aggregate}}]
    if says is None:
        config(step, sinks=sinks)
        return
    with pytest.raises(ConfigurationError, match=says):
        config(step, sinks=sinks)
    own = aggregate.partition("(")[0]
    config(step, sinks=[{**sinks[0], "states": {own: "states:Own"}}])  # nobody knows what it does


@pytest.mark.parametrize(
    ("transform", "taken"),
    [
        ("SELECT *, 1 AS one FROM records", False),
        ("SELECT id, Email, seq FROM records WHERE seq > 0", False),
        ("SELECT r.* FROM records r", False),
        ("SELECT `records`.* FROM records", False),
        ("SELECT DISTINCT email, r.id, r.seq FROM records AS r", False),
        ("SELECT r.id, r.email AS email, r.seq FROM records AS r", False),
        ("SELECT id, ((r.email)) AS email, seq FROM records r", False),
        ("SELECT id, email, seq FROM records WHERE id = email ORDER BY email", False),
        ("SELECT r.*, change.x FROM records r LATERAL VIEW explode(r.changes) AS change", False),
        ("SELECT *, change.* FROM records LATERAL VIEW explode(changes) AS change", False),
        ("SELECT t.id, t.email, t.seq FROM (SELECT r.* FROM records r WHERE id > 0) AS t", False),
        ("SELECT id, seq, email FROM records LATERAL VIEW explode(emails) AS email WHERE id > email", True),
        ("SELECT r.id, r.seq, change.* FROM records r LATERAL VIEW explode(changes) AS change", True),
        ("SELECT r.id, r.seq, r.change.email FROM records r", True),
        ("SELECT id, seq, lower(line) email FROM records", True),
        ("SELECT id, change.email, seq FROM records LATERAL VIEW explode(changes) AS change", True),
        ("SELECT id, seq, change.* FROM records LATERAL VIEW explode(changes) AS change", True),
        ("SELECT id, seq, from_json(line, 'a INT').a AS `email` FROM records", True),
    ],
)
def test_a_column_that_a_transform_makes_anew_is_not_what_a_step_has_left(transform: str, *, taken: bool) -> None:
    sinks = {
        "of it": [{**AGGREGATE, "aggregates": {"n": "last(seq, email)"}}],
        "largest of email": [{**AGGREGATE, "aggregates": {"n": "max(email)"}}],
        "apply_as_deletes": [{**UPSERT, "apply_as_deletes": "email = 'gone'"}],
    }
    for says, sink in sinks.items():
        if taken:
            config(MASK, sinks=sink, transform=transform)
        else:
            with pytest.raises(ConfigurationError, match=says.replace("of it", "orders records by email")):
                config(MASK, sinks=sink, transform=transform)


@pytest.mark.parametrize(
    ("condition", "steps", "taken"),
    [
        ("email = 'gone'", [MASK], False),
        ("Email LIKE 'x%'", [{**MASK, "mask": "n"}, {"rename": {"n": "email"}}], False),
        ("email IS NULL", [MASK], True),
        ("`email` is not null AND id = 1", [MASK], True),
        ("isnull(Email) OR NOT isNotNull( `email` )", [MASK], True),
        ("isnull(lower(email))", [MASK], False),
        ("isnull(email) OR email = ''", [MASK], False),
        ("email IS NULL OR email = ''", [MASK], False),
        ("email = 'gone'", [{**MASK, "mask": "n"}], True),
    ],
)
def test_a_condition_on_what_a_mask_has_replaced_is_refused(
    condition: str, steps: list[dict[str, Any]], *, taken: bool
) -> None:
    for option in ("apply_as_deletes", "apply_as_truncates"):
        sinks = [{**UPSERT, option: condition}]
        if taken:
            config(*steps, sinks=sinks)
        else:
            with pytest.raises(ConfigurationError, match=rf"sinks\[0\].{option}: steps\[0\].mask leaves a hash of"):
                config(*steps, sinks=sinks)
    config({"filter": condition}, *steps)
    if taken:
        config(*steps, {"filter": condition})
    else:
        with pytest.raises(ConfigurationError, match=r"filter: steps\[0\].mask leaves a hash of .* Filter before the"):
            config(*steps, {"filter": condition})


@pytest.mark.parametrize(
    "steps",
    [
        [{**MASK, "mask": "id"}],
        [{"cast": {"id": "STRING", "seq": "DECIMAL(20,0)"}}],
        [{"rename": {"id": "seq", "seq": "id"}}],
        [{"drop": "id"}, {"rename": {"oid": "id"}}],
        [{"drop": "seq"}, {"header": {"seq": "x-seq"}}],
        [{"cast": {"seq": "STRING"}}, {"cast": {"seq": "BIGINT"}}],
        [{"rename": {"n": "a"}}, {**MASK, "mask": "a"}, {"rename": {"a": "n"}}],
        [{"rename": {"seq": "x"}}, {"flatten": "s"}, {"rename": {"s_eq": "seq"}}],
        [{"rename": {"seq": "s_eq"}}, {"rename": {"s_eq": "x"}}, {"flatten": "s"}, {"rename": {"s_eq": "seq"}}],
    ],
)
def test_what_keeps_rows_apart_and_in_order_is_taken(steps: list[dict[str, Any]]) -> None:
    assert len(config(*steps).steps) == len(steps)


@pytest.mark.parametrize(
    ("sequence", "taken"),
    [
        ("seq", False),
        ("SEQ", False),
        ("struct(at, `seq`)", False),
        ("coalesce(seq, '0')", False),
        ("(seq)", False),
        ("CASE WHEN at > 0 THEN seq END", False),
        ("CAST(seq AS BIGINT)", True),
        ("struct(at, CAST(seq AS BIGINT))", True),
        ("seq::bigint", True),
        ("to_timestamp(seq, 'yyyyMMdd')", True),
        ("struct(at, 'seq')", True),
    ],
)
def test_a_number_as_text_orders_nothing_unless_a_function_makes_it_a_value_again(sequence: str, taken: bool) -> None:
    sinks = [{**UPSERT, "sequence_by": sequence}]
    if taken:
        config({"cast": {"seq": "STRING"}}, sinks=sinks)
        return
    with pytest.raises(ConfigurationError, match="10 comes before 9"):
        config({"cast": {"seq": "STRING"}}, sinks=sinks)


@pytest.mark.parametrize(
    ("sequence", "column"),
    [
        ("CAST(ts AS TIMESTAMP)", "timestamp"),
        ("try_cast(ts as timestamp)", "timestamp"),
        ("struct(ts :: DATE, seq)", "date"),
        ("struct(DATE (ts), seq)", "Date"),
        ("coalesce(ts, TIMESTAMP '1970-01-01 00:00:00')", "timestamp"),
        ("ts + INTERVAL 1 DAY 2 HOURS", "hours"),
        ("ts - interval '1' /* one */ day", "day"),
        ("struct(EXTRACT(YEAR FROM ts), seq)", "year"),
        ("CASE WHEN op = 'd' THEN ts END", "end"),
        ("struct(ts AS date)", "date"),
    ],
)
def test_a_word_of_sql_in_an_order_is_no_column_of_that_name(sequence: str, column: str) -> None:
    sinks = [{**UPSERT, "sequence_by": sequence}]
    assert config({"drop": column}, sinks=sinks).steps


@pytest.mark.parametrize(
    "sequence",
    [
        "date",
        "struct(DATE(ts), Date)",
        "CAST(date AS DATE)",
        "date::DATE",
        "DATE(`Date`)",
        "CASE WHEN date = '1' THEN ts END",
        "CASE WHEN ts > 1 THEN 1 ELSE date END",
        "EXTRACT(DAY FROM date)",
        "INTERVAL 1 DAY + date",
        "named_struct('a', date)",
        "struct(`it's`, date, `it's`)",
    ],
)
def test_a_column_with_the_name_of_a_word_of_sql_still_orders(sequence: str) -> None:
    with pytest.raises(ConfigurationError, match="this step removes it"):
        config({"drop": "DATE"}, sinks=[{**UPSERT, "sequence_by": sequence}])


def test_a_case_has_an_end_and_may_have_the_column() -> None:
    sinks = [{**UPSERT, "sequence_by": "CASE WHEN end IS NULL THEN ts END"}]
    with pytest.raises(ConfigurationError, match="orders records by end, and this step removes it"):
        config({"drop": "end"}, sinks=sinks)


def test_what_steps_do_not_go_with_is_refused() -> None:
    debezium = {"format": "debezium", "schema": "id INT, email STRING, seq BIGINT", "unavailable": "keep"}
    with pytest.raises(ConfigurationError, match=r"steps don't work with value\.unavailable: keep"):
        config(MASK, value=debezium)
    route = {
        "by": "email",
        "sink": {"type": "delta_append", "path": "lake/{route}"},
        "overrides": {"a": {"value": {"schema": "id INT"}}},
    }
    with pytest.raises(ConfigurationError, match="steps don't work with a schema of its own"):
        config(MASK, route=route, coordinator={"path": "lake/log"})


@pytest.mark.parametrize(
    ("step", "sink", "says"),
    [
        ({"add": {"m": 1}}, {"key": "m"}, r"m is in route.overrides.a.sink.key, and would be the same"),
        ({**MASK, "mask": "seq"}, {"sequence_by": "seq"}, r"route.overrides.a.sink.sequence_by orders records by seq"),
    ],
)
def test_the_tables_of_single_values_keep_their_meaning(step: Any, sink: dict[str, Any], says: str) -> None:
    usual = {"type": "delta_upsert", "path": "lake/{route}", "key": "id"}
    route = {"by": "email", "sink": usual, "overrides": {"a": {"sink": sink}}}
    with pytest.raises(ConfigurationError, match=says):
        config(step, route=route, coordinator={"path": "lake/log"})


def test_a_tombstone_has_the_names_before_the_steps() -> None:
    steps = [Step(rename={"a": "b", "b": "a"}), Step(drop=("x",)), Step(rename={"b": "c"})]
    assert names_before(steps, ["c", "a", "k"]) == ("a", "b", "k")


def test_another_salt_is_another_shape_and_no_steps_are_the_shape_of_earlier_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without, first = config(), config(MASK)
    monkeypatch.setenv("MASK_SALT", SALT[::-1])
    assert len({without.shape, first.shape, config(MASK).shape, config({"drop": "email"}).shape}) == 4
    assert without.shape == "2460e7536842eb73"
    assert config().shape == without.shape


def test_a_salt_is_shown_nowhere() -> None:
    made = config(MASK)
    assert SALT not in f"{made!r} {made.model_dump_json()} {made.document}"
    assert "${env:MASK_SALT}" in without_secrets(made.document)
    assert SALT not in without_secrets({"steps": [{**MASK, "salt": SALT}]})
