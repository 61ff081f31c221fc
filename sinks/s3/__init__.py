"""Clients for S3: boto3's and Hadoop's."""
