-- statement
MERGE INTO target AS t
USING source AS s
ON t.`g` <=> s.`g` AND t.`window_start` <=> s.`window_start`
WHEN MATCHED
  AND s._gone
  THEN DELETE
WHEN MATCHED
  THEN UPDATE SET
    `total` = round(s._state.`total`, 2),
    `n` = round(s._state.`n`, 2),
    `_state` = named_struct('total', s._state.`total`, 'n', s._state.`n`),
    `_applied` = transform_values(s._offsets, (_k, _v) -> _v.last),
    `window_closed` = s.window_closed,
    `window_end` = s.window_end
WHEN NOT MATCHED
  AND NOT s._gone
  THEN INSERT (`g`, `window_start`, `window_end`, `total`, `n`, `_state`, `_applied`, `window_closed`)
  VALUES (
    s.`g`,
    s.`window_start`,
    s.window_end,
    round(s._state.`total`, 2),
    round(s._state.`n`, 2),
    s._state,
    transform_values(s._offsets, (_k, _v) -> _v.last),
    s.window_closed
  )

-- insertion
INSERT INTO target (`g`, `window_start`, `window_end`, `total`, `n`, `_state`, `_applied`, `window_closed`)
SELECT
  s.`g`,
  s.`window_start`,
  s.window_end,
  round(s._state.`total`, 2),
  round(s._state.`n`, 2),
  s._state,
  transform_values(s._offsets, (_k, _v) -> _v.last),
  s.window_closed
FROM source AS s
LEFT JOIN (
  SELECT `g`, `window_start`, true AS _lakelock_there
  FROM target
) AS t
ON t.`g` <=> s.`g` AND t.`window_start` <=> s.`window_start`
WHERE CASE
  WHEN t._lakelock_there
    THEN CAST(raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'not_new')))) AS BOOLEAN)
  ELSE NOT s._gone
END

-- query
SELECT
  t.`g`,
  t.`window_start`,
  t.`window_end`,
  t.`total`,
  t.`n`,
  t.`_state`,
  t.`_applied`,
  t.`window_closed`,
  t.`more`
FROM target AS t
LEFT ANTI JOIN (SELECT `g`, `window_start` FROM keys) AS s
ON t.`g` <=> s.`g` AND t.`window_start` <=> s.`window_start`
UNION ALL
SELECT
  CASE _lakelock_case WHEN 0 THEN s.`g` ELSE t.`g` END AS `g`,
  CASE _lakelock_case WHEN 0 THEN s.`window_start` ELSE t.`window_start` END AS `window_start`,
  CASE _lakelock_case WHEN 0 THEN s.window_end WHEN 3 THEN s.window_end ELSE t.`window_end` END AS `window_end`,
  CASE _lakelock_case
    WHEN 0 THEN round(s._state.`total`, 2)
    WHEN 3 THEN round(s._state.`total`, 2)
    ELSE t.`total`
  END AS `total`,
  CASE _lakelock_case
    WHEN 0 THEN round(s._state.`n`, 2)
    WHEN 3 THEN round(s._state.`n`, 2)
    ELSE t.`n`
  END AS `n`,
  CASE _lakelock_case
    WHEN 0 THEN s._state
    WHEN 3 THEN named_struct('total', s._state.`total`, 'n', s._state.`n`)
    ELSE t.`_state`
  END AS `_state`,
  CASE _lakelock_case
    WHEN 0 THEN transform_values(s._offsets, (_k, _v) -> _v.last)
    WHEN 3 THEN transform_values(s._offsets, (_k, _v) -> _v.last)
    ELSE t.`_applied`
  END AS `_applied`,
  CASE _lakelock_case
    WHEN 0 THEN s.window_closed
    WHEN 3 THEN s.window_closed
    ELSE t.`window_closed`
  END AS `window_closed`,
  t.`more` AS `more`
FROM (
  SELECT
    struct(s.*) AS s,
    struct(t.*) AS t,
    CASE
      WHEN t._lakelock_there IS NULL AND NOT s._gone THEN 0
      WHEN t._lakelock_there IS NULL THEN 1
      WHEN s._gone THEN 2
      WHEN true THEN 3
      ELSE 4
    END AS _lakelock_case
  FROM source AS s
  LEFT JOIN (
    SELECT t.*, true AS _lakelock_there
    FROM target AS t
    LEFT SEMI JOIN (SELECT `g`, `window_start` FROM keys) AS s
    ON t.`g` <=> s.`g` AND t.`window_start` <=> s.`window_start`
  ) AS t
  ON t.`g` <=> s.`g` AND t.`window_start` <=> s.`window_start`
)
WHERE _lakelock_case NOT IN (1, 2)

-- query of what replaces
SELECT /*+ h */
  t.`g`,
  t.`window_start`,
  t.`window_end`,
  t.`total`,
  t.`n`,
  t.`_state`,
  t.`_applied`,
  t.`window_closed`
FROM target AS t
LEFT ANTI JOIN (SELECT `g`, `window_start` FROM keys) AS s
ON t.`g` <=> s.`g` AND t.`window_start` <=> s.`window_start`
UNION ALL
SELECT
  s.`g` AS `g`,
  s.`window_start` AS `window_start`,
  s.window_end AS `window_end`,
  round(s._state.`total`, 2) AS `total`,
  round(s._state.`n`, 2) AS `n`,
  s._state AS `_state`,
  transform_values(s._offsets, (_k, _v) -> _v.last) AS `_applied`,
  s.window_closed AS `window_closed`
FROM source AS s
WHERE NOT s._gone
