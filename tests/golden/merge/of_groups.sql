-- statement
MERGE INTO target AS t
USING source AS s
ON t.`k` <=> s.`k`
WHEN MATCHED
  AND t.n < s.n
  THEN UPDATE SET
    `n` = s.n
WHEN MATCHED
  THEN DELETE
WHEN NOT MATCHED
  THEN INSERT (`k`, `n`)
  VALUES (s.k, s.n)

-- insertion
INSERT INTO target (`k`, `n`)
SELECT s.k, s.n
FROM source AS s
LEFT JOIN (
  SELECT `k`, true AS _lakelock_there
  FROM target
) AS t
ON t.`k` <=> s.`k`
WHERE CASE
  WHEN t._lakelock_there
    THEN CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'not_new')))) AS BOOLEAN)
  ELSE true
END

-- query
SELECT t.`k`, t.`n`, t.`more`
FROM target AS t
LEFT ANTI JOIN (SELECT `k` FROM keys) AS s
ON t.`k` <=> s.`k`
UNION ALL
SELECT
  CASE _lakelock_case WHEN 0 THEN s.k ELSE t.`k` END AS `k`,
  CASE _lakelock_case WHEN 0 THEN s.n WHEN 2 THEN s.n ELSE t.`n` END AS `n`,
  t.`more` AS `more`
FROM (
  SELECT
    struct(s.*) AS s,
    struct(t.*) AS t,
    CASE
      WHEN t._lakelock_there IS NULL THEN 0
      WHEN t._lakelock_there IS NULL THEN 1
      WHEN t.n < s.n THEN 2
      WHEN true THEN 3
      ELSE 4
    END AS _lakelock_case
  FROM source AS s
  LEFT JOIN (
    SELECT t.*, true AS _lakelock_there
    FROM target AS t
    LEFT SEMI JOIN (SELECT `k` FROM keys) AS s
    ON t.`k` <=> s.`k`
  ) AS t
  ON t.`k` <=> s.`k`
)
WHERE _lakelock_case NOT IN (1, 3)

-- query of what replaces
SELECT /*+ h */ t.`k`, t.`n`
FROM target AS t
LEFT ANTI JOIN (SELECT `k` FROM keys) AS s
ON t.`k` <=> s.`k`
UNION ALL
SELECT s.k AS `k`, s.n AS `n`
FROM source AS s
WHERE true
