"""The options of a pipeline as Python values.

>>> from lakelock import Pipeline
>>> from lakelock.options import Json, Kafka, Upsert
>>> orders = Pipeline(
...     name="orders",
...     source=Kafka(topics=("orders",), kafka={"bootstrap.servers": "127.0.0.1:9092"}),
...     value=Json(schema="order_id BIGINT, amount DOUBLE"),
...     sinks=[Upsert(path="lake/orders", key=("order_id",))],
... )
>>> print(orders.to_yaml())  # doctest: +SKIP
"""

from connector.config.options import *  # noqa: F403
from connector.config.options import __all__ as __all__
