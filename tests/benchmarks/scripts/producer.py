"""Sends records at a steady rate, as an application does. Each has the time at which it was sent.

``producer.py BOOTSTRAP TOPIC PARTITIONS KEYS RATE SECONDS``. Fails if the broker or this process can't keep up.
"""

import json
import sys
import time

from kafka import KafkaProducer

PER_SECOND = 100
"""Bursts per second: sending records one by one on time would keep a core busy."""


def main(bootstrap: str, topic: str, partitions: int, keys: int, rate: int, seconds: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    begun, sent = time.time(), 0
    for burst in range(seconds * PER_SECOND):
        time.sleep(max(0.0, begun + burst / PER_SECOND - time.time()))
        for number in range(sent, (burst + 1) * rate // PER_SECOND):
            # In an order that looks random.
            key = number * 2_654_435_761 % 4_294_967_291 % keys
            name = f"key-{key:08}"
            row = {"key": name, "number": number, "amount": key / 7, "at": stamp(begun), "note": f"{number:08x}"}
            producer.send(topic, json.dumps(row).encode(), name.encode(), partition=key % partitions)
        sent = (burst + 1) * rate // PER_SECOND
    producer.flush()
    late = time.time() - begun - seconds
    producer.close()
    if late > 1 + seconds / 20:
        sys.exit(f"{sent} records took {late:.1f} seconds longer than {seconds}")


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


if __name__ == "__main__":
    to, name, *numbers = sys.argv[1:]
    main(to, name, *map(int, numbers))
