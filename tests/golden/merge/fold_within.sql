-- both columns have ends
(t.`k` IS NULL OR t.`k` BETWEEN CAST(CAST(X'31' AS STRING) AS bigint) AND CAST(CAST(X'39' AS STRING) AS bigint)) AND (t.`name` IS NULL OR t.`name` BETWEEN CAST(CAST(X'6127' AS STRING) AS string) AND CAST(CAST(X'7a' AS STRING) AS string))

-- one has none
(t.`k` IS NULL OR t.`k` BETWEEN CAST(CAST(X'31' AS STRING) AS bigint) AND CAST(CAST(X'39' AS STRING) AS bigint))
