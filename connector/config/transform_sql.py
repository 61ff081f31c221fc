"""The user's SQL, as far as it can be checked without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)

_NO_COLUMN = re.compile(
    r"\bINTERVAL\b(?:\s*[-+]?(?:''|\d+)\s*\w+)+"  # with its units
    r"|(?:\bAS\s|::|\bEXTRACT\s*\()\s*\w+"  # a type, a new name, a part of a time
    r"|\b\w+(?=\s*(?:\(|''))",  # a function, or the type of a text: DATE '2026-11-01'
    re.IGNORECASE,
)
_TABLE = re.compile(r"\b(?:from|join)\s+(\w+)(?:\s+(?:as\s+)?(\w+))?")
_ONE_OF = ("coalesce", "nvl", "ifnull", "greatest", "least")
_NUMBER_OF = ("unix_micros", "unix_millis", "unix_seconds")
_AS_IT_IS = (",", "(", "select", "distinct", "except", "struct", "named_struct", *_ONE_OF, *_NUMBER_OF)
"""What stands before the bracket around values that are the same in every time zone."""
_ENDS = (",", ")", "as", "from")
"""What follows a value that is taken as it is."""
_LISTS = ("select", "lateral")
_AFTER_TABLES = ("where", "group", "having", "order", "sort", "union", "limit")


def column_words(sql: str) -> set[str]:
    """The words of SQL that may be columns."""
    return {*re.findall(r"\w+", _plain(sql)), *_in_backquotes(sql)}


def columns_in(expression: str) -> set[str]:
    """The words of an expression that may be columns. A word isn't, where only SQL's own can stand."""
    plain = _NO_COLUMN.sub(" ", _plain(expression))
    words = re.findall(r"\w+", plain)
    small = [word.lower() for word in words]
    if small.count("end") == small.count("case"):  # each END is that of a CASE
        words = [word for word in words if word.lower() != "end"]
    return {*words, *_in_backquotes(expression)}


def first_column(expression: str) -> str | None:
    """The column that an expression names first, in small letters."""
    words = {word.lower() for word in columns_in(expression) if not word.isdigit()}
    places = {word: re.search(rf"\b{re.escape(word)}\b", _plain_with_names(expression)) for word in words}
    found = {word: place.start() for word, place in places.items() if place is not None}
    return min(found, key=lambda word: found[word], default=None)


def made_of(sql: str, column: str) -> set[str]:
    """The columns that a SELECT makes of a column, also by way of others, in small letters. The column isn't in it.

    It takes no SQL apart: what it finds in one item of a list counts as made of all that is in the item.
    """
    return _by_way_of_others(column, [(item[-1], {*item[:-1]}) for item in _named(sql)])


def computes_with(sql: str, columns: Set[str]) -> bool:
    """Whether SQL does more with one of the columns than any time zone does alike. ``columns``: in small letters."""
    tokens = [*_tokens(sql), ","]
    within, before = [_Bracket(",")], ","
    for token, after in pairwise(tokens):
        if token == "(":
            within.append(_Bracket(before))
        elif token == ")" and len(within) > 1:
            inner = within.pop()
            if inner.mixed or (inner.instant and inner.before not in _NUMBER_OF and after not in _ENDS):
                return True
            within[-1].instant |= inner.instant and inner.before not in _NUMBER_OF
            within[-1].text |= inner.text
        elif token in columns and before != "as":
            alone = before in (",", "(", ".", "select", "distinct") and after in _ENDS
            if not alone or not all(each.before in _AS_IT_IS for each in within):
                return True
            within[-1].instant = True
        elif token in ("''", "date", "timestamp"):
            within[-1].text = True
        before = token
    return False


@dataclass
class _Bracket:
    """A part of SQL in brackets. ``before``: what stands before it."""

    before: str
    instant: bool = False
    """Whether a time is in it, as it is."""
    text: bool = False

    @property
    def mixed(self) -> bool:
        """Whether a text, or a date, becomes a time beside another one, or the other way round: by the zone."""
        return self.instant and self.text and self.before in _ONE_OF


def begun_with(sql: str, column: str) -> set[str]:
    """The columns of a SELECT whose expression names a column first, also by way of others, in small letters."""
    return _by_way_of_others(column, [(item[-1], {first_column(_unqualified(item[:-1]))}) for item in _named(sql)])


def _by_way_of_others(column: str, made: Sequence[tuple[str, Set[str | None]]]) -> set[str]:
    """The names that are made of a column, or of one that is. ``made``: names, and of which columns each is made."""
    found = {column}
    while more := {name for name, columns in made if found & columns} - found:
        found |= more
    return found - {column}


def _named(sql: str) -> Iterator[list[str]]:
    """The items of lists that have a name. It stands at the end, after AS or what it is the name of."""
    return (item for item in _items(sql) if len(item) > 1 and re.fullmatch(r"\w+|\)|\]", item[-2]))


def _unqualified(words: Sequence[str]) -> str:
    """An expression without the names of tables before a dot."""
    return re.sub(r"\w+ \. (?=\w)", "", " ".join(words))


def passes(sql: str, column: str) -> bool:
    """Whether a column of a SELECT's rows may be that of the records. ``column``: in small letters."""
    items, tables = [*_selected(sql)], _tables(sql)
    names = [[column], *([table, ".", column] for table in tables)]
    as_it_is = [[*name, *more] for name in names for more in ([], ["as", column], [column])]
    named = [item for item in items if item[-1] == column]
    if named:
        return all([word for word in item if word not in "()"] in as_it_is for item in named)
    every = [["*"], *([table, ".", "*"] for table in tables)]
    return any(item in every for item in items) or not any(item[-2:] == [".", "*"] for item in items)


def _tables(sql: str) -> set[str]:
    """The words of a SELECT that may be names of its tables, and not of columns."""
    plain, found, more = _plain_with_names(sql).replace("`", ""), set[str](), 1
    while more:
        found |= {name for names in _TABLE.findall(plain) for name in names}
        plain, more = re.subn(r"\([^()]*\)", " _ ", plain)
    return found


def _selected(sql: str) -> Iterator[list[str]]:
    """The items of each SELECT, also of those in brackets, and what a LATERAL VIEW makes. As words and signs."""
    tokens = [*_tokens(sql), "from"]
    outer, of, start = list[tuple[str, int]](), "", 0
    for at, token in enumerate(tokens):
        if token == "(":
            outer.append((of, start))
            of, start = "", at + 1
        elif token in (",", ")", "from", *_LISTS) or (token in _AFTER_TABLES and of != "select"):
            if of and start < at:
                yield tokens[start:at]
            if token == ")" and outer:
                of, start = outer.pop()
            else:
                of, start = token if token in _LISTS else of if token == "," else "", at + 1
        elif token in ("all", "distinct") and start == at:
            start += 1


def _tokens(sql: str) -> list[str]:
    return [token.strip("`") for token in re.findall(r"`[^`]+`|\w+|''|\S", _plain_with_names(sql))]


def _items(sql: str) -> Iterator[list[str]]:
    """The items of all lists in a SELECT, also of those in brackets, as words in small letters and signs."""
    outer, words, item = list[tuple[list[str], list[str]]](), list[str](), list[str]()
    for token in (*_tokens(sql), ","):
        if token in (",", "select", "from", ")"):
            if item:
                yield item
            item = []
        if token == "(":
            outer.append((words, item))
            words, item = [], []
        elif token == ")" and outer:
            within = ["(", *words, ")"]
            words, item = outer.pop()
            words, item = [*words, *within], [*item, *within]
        elif token == ",":
            words = [*words, token]
        elif token not in ("select", "from"):
            words, item = [*words, token], [*item, token]


def _plain(sql: str) -> str:
    """Without what is quoted, and without comments: '' is a text."""
    return QUOTED.sub(lambda found: " '' " if found[0][0] in "'\"" else " ` " if found[0][0] == "`" else " ", sql)


def _plain_with_names(sql: str) -> str:
    """In small letters, without texts and comments: '' is a text."""
    named = QUOTED.sub(lambda found: found[0] if found[0][0] == "`" else " '' " if found[0][0] in "'\"" else " ", sql)
    return named.lower()


def _in_backquotes(sql: str) -> list[str]:
    return [found[1:-1].replace("``", "`") for found in QUOTED.findall(sql) if found[0] == "`"]


def call_in(aggregate: str) -> tuple[str, Sequence[str]]:
    """The name of a function in small letters, and its arguments. Of what is no call: as much as can be told."""
    plain = QUOTED.sub(lambda found: re.sub(r"[(),\[\]]", "_", found[0]), aggregate)
    name, _, _ = plain.partition("(")
    ends, depth = [len(name)], 0
    for at, sign in enumerate(plain):
        depth += (sign in "([") - (sign in ")]")
        if (sign == "," and depth == 1) or (sign in ")]" and not depth):
            ends.append(at)
    arguments = [aggregate[start + 1 : end].strip() for start, end in pairwise(ends)]
    return name.strip().lower(), arguments


def condition_names(sql: str, column: str, value: str | None = None) -> bool:
    """Whether a SELECT has a condition, WHERE, that names a column, and a text beside it."""
    plain = QUOTED.sub(lambda found: " " if found[0].startswith(("--", "/*")) else found[0], sql)
    where = re.search(r"\bWHERE\b", QUOTED.sub(lambda found: " " * len(found[0]), plain), re.IGNORECASE)
    condition = plain[where.end() :] if where is not None else ""
    texts = [found[1:-1] for found in QUOTED.findall(condition) if found[0] in "'\""]
    return column in {word.lower() for word in column_words(condition)} and (value is None or value in texts)
