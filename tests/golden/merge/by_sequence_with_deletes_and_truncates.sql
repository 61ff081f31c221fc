-- statement
MERGE INTO target AS t
USING source AS s
ON t.`k` = s.`k`
WHEN MATCHED
  AND coalesce(
    (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
      > named_struct('sequence', t._sequence, 'topic', t._topic, 'partition', t._partition, 'offset', t._offset)
    AND s._offset IS NOT NULL
    AND (
      s._deleted_by IS NULL
      OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
    ),
    false
  )
  THEN UPDATE SET
    `k` = s.`k`,
    `v` = s.`v`,
    `_topic` = s.`_topic`,
    `_partition` = s.`_partition`,
    `_offset` = s.`_offset`,
    `_sequence` = s.`_sequence`
WHEN MATCHED
  AND (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
    >= named_struct('sequence', t._sequence, 'topic', t._topic, 'partition', t._partition, 'offset', t._offset)
  THEN DELETE
WHEN NOT MATCHED
  AND s._offset IS NOT NULL
  AND (
    s._deleted_by IS NULL
    OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
      > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
  )
  THEN INSERT (`k`, `v`, `_topic`, `_partition`, `_offset`, `_sequence`)
  VALUES (s.`k`, s.`v`, s.`_topic`, s.`_partition`, s.`_offset`, s.`_sequence`)
WHEN NOT MATCHED BY SOURCE
  AND named_struct('sequence', t._sequence, 'topic', t._topic, 'partition', t._partition, 'offset', t._offset) <= named_struct('sequence', 9)
  THEN DELETE

-- insertion
INSERT INTO target (`k`, `v`, `_topic`, `_partition`, `_offset`, `_sequence`)
SELECT s.`k`, s.`v`, s.`_topic`, s.`_partition`, s.`_offset`, s.`_sequence`
FROM source AS s
LEFT JOIN (
  SELECT `k`, true AS _lakelock_there
  FROM target
) AS t
ON t.`k` = s.`k`
WHERE CASE
  WHEN t._lakelock_there
    THEN CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'not_new')))) AS BOOLEAN)
  ELSE s._offset IS NOT NULL
  AND (
    s._deleted_by IS NULL
    OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
      > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
  )
END

-- query
SELECT t.`k`, t.`v`, t.`_topic`, t.`_partition`, t.`_offset`, t.`_sequence`, t.`more`
FROM target AS t
LEFT ANTI JOIN (SELECT `k` FROM keys) AS s
ON t.`k` = s.`k`
UNION ALL
SELECT
  CASE _lakelock_case WHEN 0 THEN s.`k` WHEN 2 THEN s.`k` ELSE t.`k` END AS `k`,
  CASE _lakelock_case WHEN 0 THEN s.`v` WHEN 2 THEN s.`v` ELSE t.`v` END AS `v`,
  CASE _lakelock_case WHEN 0 THEN s.`_topic` WHEN 2 THEN s.`_topic` ELSE t.`_topic` END AS `_topic`,
  CASE _lakelock_case WHEN 0 THEN s.`_partition` WHEN 2 THEN s.`_partition` ELSE t.`_partition` END AS `_partition`,
  CASE _lakelock_case WHEN 0 THEN s.`_offset` WHEN 2 THEN s.`_offset` ELSE t.`_offset` END AS `_offset`,
  CASE _lakelock_case WHEN 0 THEN s.`_sequence` WHEN 2 THEN s.`_sequence` ELSE t.`_sequence` END AS `_sequence`,
  t.`more` AS `more`
FROM (
  SELECT
    struct(s.*) AS s,
    struct(t.*) AS t,
    CASE
      WHEN t._lakelock_there IS NULL
      AND s._offset IS NOT NULL
      AND (
        s._deleted_by IS NULL
        OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
      )
        THEN 0
      WHEN t._lakelock_there IS NULL THEN 1
      WHEN coalesce(
        (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('sequence', t._sequence, 'topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        AND s._offset IS NOT NULL
        AND (
          s._deleted_by IS NULL
          OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
            > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
        ),
        false
      )
        THEN 2
      WHEN (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
        >= named_struct('sequence', t._sequence, 'topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        THEN 3
      ELSE 4
    END AS _lakelock_case
  FROM source AS s
  LEFT JOIN (
    SELECT t.*, true AS _lakelock_there
    FROM target AS t
    LEFT SEMI JOIN (SELECT `k` FROM keys) AS s
    ON t.`k` = s.`k`
  ) AS t
  ON t.`k` = s.`k`
)
WHERE _lakelock_case NOT IN (1, 3)

-- query of what replaces
SELECT /*+ h */ t.`k`, t.`v`, t.`_topic`, t.`_partition`, t.`_offset`, t.`_sequence`
FROM target AS t
LEFT ANTI JOIN (SELECT `k` FROM keys) AS s
ON t.`k` = s.`k`
UNION ALL
SELECT
  s.`k` AS `k`,
  s.`v` AS `v`,
  s.`_topic` AS `_topic`,
  s.`_partition` AS `_partition`,
  s.`_offset` AS `_offset`,
  s.`_sequence` AS `_sequence`
FROM source AS s
WHERE s._offset IS NOT NULL
AND (
  s._deleted_by IS NULL
  OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('sequence', s._sequence, 'topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
    > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('sequence', s._deleted_by.`sequence`, 'topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
)
