-- updates
SELECT count_if(
  CASE
    WHEN s._topic IS NULL THEN false
    WHEN t._topic IS NULL
    OR t._partition IS NULL
    OR startswith(t._topic, '#')
    OR startswith(s._topic, '#')
    OR (t._topic = s._topic AND t._partition = s._partition)
      THEN true
    ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`)), 'topic', s._topic, 'partition', s._partition, 'offset', s._offset, 'stored_topic', t._topic, 'stored_partition', t._partition)))) AS BOOLEAN)
  END
)
FROM lakelock_epoch AS s
JOIN target AS t
ON t.`k` = s.`k`

-- deletes
SELECT count_if(
  CASE
    WHEN coalesce(s._topic, s._deleted_by.topic) IS NULL THEN false
    WHEN t._topic IS NULL
    OR t._partition IS NULL
    OR startswith(t._topic, '#')
    OR startswith(coalesce(s._topic, s._deleted_by.topic), '#')
    OR (t._topic = coalesce(s._topic, s._deleted_by.topic) AND t._partition = coalesce(s._partition, s._deleted_by.`partition`))
      THEN true
    ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`)), 'topic', coalesce(s._topic, s._deleted_by.topic), 'partition', coalesce(s._partition, s._deleted_by.`partition`), 'offset', coalesce(s._offset, s._deleted_by.offset), 'stored_topic', t._topic, 'stored_partition', t._partition)))) AS BOOLEAN)
  END
)
FROM lakelock_epoch AS s
JOIN target AS t
ON t.`k` = s.`k`

-- rows that stay
SELECT count_if(
  CASE
    WHEN coalesce(s._topic, s._deleted_by.topic) IS NULL THEN false
    WHEN coalesce(t._topic, t._deleted_by.topic) IS NULL
    OR coalesce(t._partition, t._deleted_by.`partition`) IS NULL
    OR startswith(coalesce(t._topic, t._deleted_by.topic), '#')
    OR startswith(coalesce(s._topic, s._deleted_by.topic), '#')
    OR (coalesce(t._topic, t._deleted_by.topic) = coalesce(s._topic, s._deleted_by.topic) AND coalesce(t._partition, t._deleted_by.`partition`) = coalesce(s._partition, s._deleted_by.`partition`))
      THEN true
    ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`)), 'topic', coalesce(s._topic, s._deleted_by.topic), 'partition', coalesce(s._partition, s._deleted_by.`partition`), 'offset', coalesce(s._offset, s._deleted_by.offset), 'stored_topic', coalesce(t._topic, t._deleted_by.topic), 'stored_partition', coalesce(t._partition, t._deleted_by.`partition`))))) AS BOOLEAN)
  END
)
FROM lakelock_epoch AS s
JOIN target AS t
ON t.`k` = s.`k`

-- tombstones
SELECT count(_deleted_by)
FROM (
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
  FROM lakelock_epoch AS r
  LEFT JOIN (
    SELECT `k`, max(named_struct('topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp)) AS mark
    FROM tombstones
    GROUP BY `k`
  ) AS n
  ON r.`k` = n.`k`
)
