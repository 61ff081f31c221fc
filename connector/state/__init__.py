"""State types of aggregates: monoids, written as Spark SQL.

>>> from connector.state import aggregate
>>> aggregate("last(tail, time_hour)").plus("t.tail", "s.tail")  # doctest: +SKIP
"""

from connector.state.aggregates import NAMES, aggregate
from connector.state.laws import check_laws
from connector.state.monoid import Monoid, bound

__all__ = ["NAMES", "Monoid", "aggregate", "bound", "check_laws"]
