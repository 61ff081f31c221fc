"""Which name was meant."""

import pytest

from connector.config.nearest import by_a_slip


@pytest.mark.parametrize(
    ("name", "other", "slip"),
    [
        ("refnd", "refund", True),
        ("refund", "refunds", True),
        ("ordres", "orders", True),
        ("ordars", "orders", True),
        ("Order-Lines", "order_lines", True),
        ("orders", "orders", False),
        ("orders_2025", "orders_2026", False),
        ("orders", "orders2", False),
        ("DE", "DK", False),
        ("order_created", "order_updated", False),
        ("orders_eu", "orders_us", False),
        ("", "a", False),
    ],
)
def test_a_slip_is_one_letter_and_no_number(name: str, other: str, slip: bool) -> None:
    assert by_a_slip(name, [other]) == (other if slip else None)
    assert by_a_slip(other, [name]) == (name if slip else None)
    assert by_a_slip(name, ["elsewhere", other]) == (other if slip else None)
