-- no tombstones
SELECT * FROM net AS r

-- by offset, with tombstones
SELECT
  r.`k`,
  r.`v`,
  r.`_topic`,
  r.`_partition`,
  r.`_offset`,
  greatest(
    r._deleted_by,
    CASE
      WHEN n.mark IS NULL
      OR startswith(n.mark.topic, '#')
      OR startswith(coalesce(r._topic, r._deleted_by.`topic`), '#')
      OR (n.mark.topic = coalesce(r._topic, r._deleted_by.`topic`) AND n.mark.`partition` = coalesce(r._partition, r._deleted_by.`partition`))
        THEN n.mark
      ELSE raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', r.`k`)), 'topic', coalesce(r._topic, r._deleted_by.`topic`), 'partition', coalesce(r._partition, r._deleted_by.`partition`), 'offset', coalesce(r._offset, r._deleted_by.`offset`), 'stored_topic', n.mark.topic, 'stored_partition', n.mark.`partition`))))
    END
  ) AS _deleted_by
FROM net AS r
LEFT JOIN (
  SELECT `k`, max(named_struct('topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp)) AS mark
  FROM tombstones
  GROUP BY `k`
) AS n
ON r.`k` = n.`k`

-- by sequence, with tombstones and a truncate
SELECT
  r.`k`,
  r.`v`,
  r.`_topic`,
  r.`_partition`,
  r.`_offset`,
  r.`_sequence`,
  greatest(r._deleted_by, n.mark, named_struct('sequence', 9)) AS _deleted_by
FROM net AS r
LEFT JOIN (
  SELECT `k`, max(named_struct('sequence', _sequence, 'topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp)) AS mark
  FROM tombstones
  GROUP BY `k`
) AS n
ON r.`k` = n.`k`

-- by sequence, ignoring nulls
SELECT
  `k`,
  CASE
    WHEN _deleted_by IS NULL OR _columns.`v` > (CASE WHEN _deleted_by IS NOT NULL THEN named_struct('sequence', _deleted_by.`sequence`, 'topic', _deleted_by.`topic`, 'partition', _deleted_by.`partition`, 'offset', _deleted_by.`offset`) END)
      THEN `v`
  END AS `v`,
  `_topic`,
  `_partition`,
  `_offset`,
  `_sequence`,
  `_deleted_by`,
  named_struct(
    'v', CASE
      WHEN _deleted_by IS NULL OR _columns.`v` > (CASE WHEN _deleted_by IS NOT NULL THEN named_struct('sequence', _deleted_by.`sequence`, 'topic', _deleted_by.`topic`, 'partition', _deleted_by.`partition`, 'offset', _deleted_by.`offset`) END)
        THEN _columns.`v`
    END
  ) AS _columns
FROM (
  SELECT
    r.`k`,
    r.`v`,
    r.`_topic`,
    r.`_partition`,
    r.`_offset`,
    r.`_sequence`,
    greatest(r._deleted_by, n.mark) AS _deleted_by,
    r.`_columns`
  FROM net AS r
  LEFT JOIN (
    SELECT `k`, max(named_struct('sequence', _sequence, 'topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp)) AS mark
    FROM tombstones
    GROUP BY `k`
  ) AS n
  ON r.`k` = n.`k`
)
