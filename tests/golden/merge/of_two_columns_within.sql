-- statement
MERGE INTO target AS t
USING source AS s
ON t.`k` = s.`k` AND t.`a``b` = s.`a``b` AND t.k BETWEEN 'a' AND 'c'
WHEN MATCHED
  AND CASE
    WHEN s._topic IS NULL THEN false
    WHEN t._topic IS NULL
    OR t._partition IS NULL
    OR startswith(t._topic, '#')
    OR startswith(s._topic, '#')
    OR (t._topic = s._topic AND t._partition = s._partition)
      THEN coalesce(
        (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
          > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
        AND s._offset IS NOT NULL,
        false
      )
    ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`, 'a`b', s.`a``b`)), 'topic', s._topic, 'partition', s._partition, 'offset', s._offset, 'stored_topic', t._topic, 'stored_partition', t._partition)))) AS BOOLEAN)
  END
  THEN UPDATE SET
    `a``b` = s.`a``b`,
    `k` = s.`k`,
    `v` = s.`v`,
    `_topic` = s.`_topic`,
    `_partition` = s.`_partition`,
    `_offset` = s.`_offset`
WHEN NOT MATCHED
  THEN INSERT (`a``b`, `k`, `v`, `_topic`, `_partition`, `_offset`)
  VALUES (s.`a``b`, s.`k`, s.`v`, s.`_topic`, s.`_partition`, s.`_offset`)

-- insertion
INSERT INTO target (`a``b`, `k`, `v`, `_topic`, `_partition`, `_offset`)
SELECT s.`a``b`, s.`k`, s.`v`, s.`_topic`, s.`_partition`, s.`_offset`
FROM source AS s
LEFT JOIN (
  SELECT `k`, `a``b`, true AS _lakelock_there
  FROM target
) AS t
ON t.`k` = s.`k` AND t.`a``b` = s.`a``b` AND t.k BETWEEN 'a' AND 'c'
WHERE CASE
  WHEN t._lakelock_there
    THEN CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'not_new')))) AS BOOLEAN)
  ELSE true
END

-- query
SELECT t.`a``b`, t.`k`, t.`v`, t.`_topic`, t.`_partition`, t.`_offset`, t.`more`
FROM target AS t
LEFT ANTI JOIN (SELECT `k`, `a``b` FROM keys) AS s
ON t.`k` = s.`k` AND t.`a``b` = s.`a``b` AND t.k BETWEEN 'a' AND 'c'
UNION ALL
SELECT
  CASE _lakelock_case WHEN 0 THEN s.`a``b` WHEN 2 THEN s.`a``b` ELSE t.`a``b` END AS `a``b`,
  CASE _lakelock_case WHEN 0 THEN s.`k` WHEN 2 THEN s.`k` ELSE t.`k` END AS `k`,
  CASE _lakelock_case WHEN 0 THEN s.`v` WHEN 2 THEN s.`v` ELSE t.`v` END AS `v`,
  CASE _lakelock_case WHEN 0 THEN s.`_topic` WHEN 2 THEN s.`_topic` ELSE t.`_topic` END AS `_topic`,
  CASE _lakelock_case WHEN 0 THEN s.`_partition` WHEN 2 THEN s.`_partition` ELSE t.`_partition` END AS `_partition`,
  CASE _lakelock_case WHEN 0 THEN s.`_offset` WHEN 2 THEN s.`_offset` ELSE t.`_offset` END AS `_offset`,
  t.`more` AS `more`
FROM (
  SELECT
    struct(s.*) AS s,
    struct(t.*) AS t,
    CASE
      WHEN t._lakelock_there IS NULL THEN 0
      WHEN t._lakelock_there IS NULL THEN 1
      WHEN CASE
        WHEN s._topic IS NULL THEN false
        WHEN t._topic IS NULL
        OR t._partition IS NULL
        OR startswith(t._topic, '#')
        OR startswith(s._topic, '#')
        OR (t._topic = s._topic AND t._partition = s._partition)
          THEN coalesce(
            (CASE WHEN s._offset IS NOT NULL THEN named_struct('topic', s._topic, 'partition', s._partition, 'offset', s._offset) END)
              > named_struct('topic', t._topic, 'partition', t._partition, 'offset', t._offset)
            AND s._offset IS NOT NULL,
            false
          )
        ELSE CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', s.`k`, 'a`b', s.`a``b`)), 'topic', s._topic, 'partition', s._partition, 'offset', s._offset, 'stored_topic', t._topic, 'stored_partition', t._partition)))) AS BOOLEAN)
      END
        THEN 2
      ELSE 3
    END AS _lakelock_case
  FROM source AS s
  LEFT JOIN (
    SELECT t.*, true AS _lakelock_there
    FROM target AS t
    LEFT SEMI JOIN (SELECT `k`, `a``b` FROM keys) AS s
    ON t.`k` = s.`k` AND t.`a``b` = s.`a``b` AND t.k BETWEEN 'a' AND 'c'
  ) AS t
  ON t.`k` = s.`k` AND t.`a``b` = s.`a``b` AND t.k BETWEEN 'a' AND 'c'
)
WHERE _lakelock_case NOT IN (1)

-- query of what replaces
SELECT /*+ h */ t.`a``b`, t.`k`, t.`v`, t.`_topic`, t.`_partition`, t.`_offset`
FROM target AS t
LEFT ANTI JOIN (SELECT `k`, `a``b` FROM keys) AS s
ON t.`k` = s.`k` AND t.`a``b` = s.`a``b` AND t.k BETWEEN 'a' AND 'c'
UNION ALL
SELECT
  s.`a``b` AS `a``b`,
  s.`k` AS `k`,
  s.`v` AS `v`,
  s.`_topic` AS `_topic`,
  s.`_partition` AS `_partition`,
  s.`_offset` AS `_offset`
FROM source AS s
WHERE true
