"""A bucket, and a topic with flights: what docker/pipeline.yaml reads and writes."""

import os
from itertools import islice

import boto3
from kafka import KafkaAdminClient

from connector.lab.bench.data import flight_key, flight_value, flights, produce

BUCKET, TOPIC, PARTITIONS = "lake", "flights", 4
RECORDS = int(os.environ.get("RECORDS", "50000"))

s3 = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"])
if BUCKET not in [each["Name"] for each in s3.list_buckets()["Buckets"]]:
    s3.create_bucket(Bucket=BUCKET)

admin = KafkaAdminClient(bootstrap_servers=os.environ["KAFKA"])
if TOPIC not in admin.list_topics():
    admin.create_topics({TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    records = ((flight_key(each), flight_value(each)) for each in islice(flights(), RECORDS))
    print(f"{produce(os.environ['KAFKA'], TOPIC, records):,} flights sent")
admin.close()
