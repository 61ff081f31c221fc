-- statement
MERGE INTO target AS t
USING source AS s
ON t.`k` = s.`k`
WHEN MATCHED
  AND CASE
    WHEN coalesce(s._topic, s._deleted_by.topic) IS NULL THEN false
    WHEN coalesce(t._topic, t._deleted_by.topic) IS NULL
    OR coalesce(t._partition, t._deleted_by.`partition`) IS NULL
    OR startswith(coalesce(t._topic, t._deleted_by.topic), '#')
    OR startswith(coalesce(s._topic, s._deleted_by.topic), '#')
    OR (coalesce(t._topic, t._deleted_by.topic) = coalesce(s._topic, s._deleted_by.topic) AND coalesce(t._partition, t._deleted_by.`partition`) = coalesce(s._partition, s._deleted_by.`partition`))
      THEN coalesce(
        (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        OR s._deleted_by > t._deleted_by
        OR (s._deleted_by IS NOT NULL AND t._deleted_by IS NULL),
        false
      )
    ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`)), 'topic', coalesce(s._topic, s._deleted_by.topic), 'partition', coalesce(s._partition, s._deleted_by.`partition`), 'offset', coalesce(s._offset, s._deleted_by.offset), 'stored_topic', coalesce(t._topic, t._deleted_by.topic), 'stored_partition', coalesce(t._partition, t._deleted_by.`partition`))))) AS BOOLEAN)
  END
  THEN UPDATE SET
    `k` = CASE
      WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        THEN s.`k`
      ELSE t.`k`
    END,
    `v` = CASE
      WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        THEN s.`v`
      ELSE t.`v`
    END,
    `_topic` = CASE
      WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        THEN s.`_topic`
      ELSE t.`_topic`
    END,
    `_partition` = CASE
      WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        THEN s.`_partition`
      ELSE t.`_partition`
    END,
    `_offset` = CASE
      WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        THEN s.`_offset`
      ELSE t.`_offset`
    END,
    `_deleted_by` = greatest(s._deleted_by, t._deleted_by),
    `_deleted` = greatest(s._deleted_by, t._deleted_by) IS NOT NULL
    AND NOT coalesce(
      greatest(CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END, named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset))
        > (CASE WHEN greatest(s._deleted_by, t._deleted_by) IS NOT NULL THEN named_struct('topic', greatest(s._deleted_by, t._deleted_by).`topic`, 'partition', greatest(s._deleted_by, t._deleted_by).`partition`, 'offset', greatest(s._deleted_by, t._deleted_by).`offset`) END),
      false
    )
WHEN NOT MATCHED
  THEN INSERT (`k`, `v`, `_topic`, `_partition`, `_offset`, `_deleted_by`, `_deleted`)
  VALUES (
    s.`k`,
    s.`v`,
    s.`_topic`,
    s.`_partition`,
    s.`_offset`,
    s.`_deleted_by`,
    s._deleted_by IS NOT NULL
    AND NOT (
      s._offset IS NOT NULL
      AND (
        s._deleted_by IS NULL
        OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
      )
    )
  )

-- insertion
INSERT INTO target (`k`, `v`, `_topic`, `_partition`, `_offset`, `_deleted_by`, `_deleted`)
SELECT
  s.`k`,
  s.`v`,
  s.`_topic`,
  s.`_partition`,
  s.`_offset`,
  s.`_deleted_by`,
  s._deleted_by IS NOT NULL
  AND NOT (
    s._offset IS NOT NULL
    AND (
      s._deleted_by IS NULL
      OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
    )
  )
FROM source AS s
LEFT JOIN (
  SELECT `k`, true AS _lakelock_there
  FROM target
) AS t
ON t.`k` = s.`k`
WHERE CASE
  WHEN t._lakelock_there
    THEN CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'not_new')))) AS BOOLEAN)
  ELSE true
END

-- query
SELECT t.`k`, t.`v`, t.`_topic`, t.`_partition`, t.`_offset`, t.`_deleted_by`, t.`_deleted`, t.`more`
FROM target AS t
LEFT ANTI JOIN (SELECT `k` FROM keys) AS s
ON t.`k` = s.`k`
UNION ALL
SELECT
  CASE _lakelock_case
    WHEN 0 THEN s.`k`
    WHEN 2
      THEN CASE
        WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
          THEN s.`k`
        ELSE t.`k`
      END
    ELSE t.`k`
  END AS `k`,
  CASE _lakelock_case
    WHEN 0 THEN s.`v`
    WHEN 2
      THEN CASE
        WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
          THEN s.`v`
        ELSE t.`v`
      END
    ELSE t.`v`
  END AS `v`,
  CASE _lakelock_case
    WHEN 0 THEN s.`_topic`
    WHEN 2
      THEN CASE
        WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
          THEN s.`_topic`
        ELSE t.`_topic`
      END
    ELSE t.`_topic`
  END AS `_topic`,
  CASE _lakelock_case
    WHEN 0 THEN s.`_partition`
    WHEN 2
      THEN CASE
        WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
          THEN s.`_partition`
        ELSE t.`_partition`
      END
    ELSE t.`_partition`
  END AS `_partition`,
  CASE _lakelock_case
    WHEN 0 THEN s.`_offset`
    WHEN 2
      THEN CASE
        WHEN (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
          THEN s.`_offset`
        ELSE t.`_offset`
      END
    ELSE t.`_offset`
  END AS `_offset`,
  CASE _lakelock_case
    WHEN 0 THEN s.`_deleted_by`
    WHEN 2 THEN greatest(s._deleted_by, t._deleted_by)
    ELSE t.`_deleted_by`
  END AS `_deleted_by`,
  CASE _lakelock_case
    WHEN 0
      THEN s._deleted_by IS NOT NULL
      AND NOT (
        s._offset IS NOT NULL
        AND (
          s._deleted_by IS NULL
          OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
            > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
        )
      )
    WHEN 2
      THEN greatest(s._deleted_by, t._deleted_by) IS NOT NULL
      AND NOT coalesce(
        greatest(CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END, named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset))
          > (CASE WHEN greatest(s._deleted_by, t._deleted_by) IS NOT NULL THEN named_struct('topic', greatest(s._deleted_by, t._deleted_by).`topic`, 'partition', greatest(s._deleted_by, t._deleted_by).`partition`, 'offset', greatest(s._deleted_by, t._deleted_by).`offset`) END),
        false
      )
    ELSE t.`_deleted`
  END AS `_deleted`,
  t.`more` AS `more`
FROM (
  SELECT
    struct(s.*) AS s,
    struct(t.*) AS t,
    CASE
      WHEN t._lakelock_there IS NULL THEN 0
      WHEN t._lakelock_there IS NULL THEN 1
      WHEN CASE
        WHEN coalesce(s._topic, s._deleted_by.topic) IS NULL THEN false
        WHEN coalesce(t._topic, t._deleted_by.topic) IS NULL
        OR coalesce(t._partition, t._deleted_by.`partition`) IS NULL
        OR startswith(coalesce(t._topic, t._deleted_by.topic), '#')
        OR startswith(coalesce(s._topic, s._deleted_by.topic), '#')
        OR (coalesce(t._topic, t._deleted_by.topic) = coalesce(s._topic, s._deleted_by.topic) AND coalesce(t._partition, t._deleted_by.`partition`) = coalesce(s._partition, s._deleted_by.`partition`))
          THEN coalesce(
            (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
              > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
            OR s._deleted_by > t._deleted_by
            OR (s._deleted_by IS NOT NULL AND t._deleted_by IS NULL),
            false
          )
        ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`)), 'topic', coalesce(s._topic, s._deleted_by.topic), 'partition', coalesce(s._partition, s._deleted_by.`partition`), 'offset', coalesce(s._offset, s._deleted_by.offset), 'stored_topic', coalesce(t._topic, t._deleted_by.topic), 'stored_partition', coalesce(t._partition, t._deleted_by.`partition`))))) AS BOOLEAN)
      END
        THEN 2
      ELSE 3
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
WHERE _lakelock_case NOT IN (1)

-- query of what replaces
SELECT /*+ h */ t.`k`, t.`v`, t.`_topic`, t.`_partition`, t.`_offset`, t.`_deleted_by`, t.`_deleted`
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
  s.`_deleted_by` AS `_deleted_by`,
  s._deleted_by IS NOT NULL
  AND NOT (
    s._offset IS NOT NULL
    AND (
      s._deleted_by IS NULL
      OR (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
        > (CASE WHEN s._deleted_by IS NOT NULL THEN named_struct('topic', s._deleted_by.`topic`, 'partition', s._deleted_by.`partition`, 'offset', s._deleted_by.`offset`) END)
    )
  ) AS `_deleted`
FROM source AS s
WHERE true
