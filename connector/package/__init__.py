"""What a platform wants of a pipeline, as a folder: Kubernetes' objects, a bundle for Databricks, a job for EMR.

``needs`` finds out what the pipeline files take from the place where they run. A file for each platform makes its
folder of ``templates``, and says which steps are left. ``wheel`` is the connector for a cluster that has a Spark.
"""
