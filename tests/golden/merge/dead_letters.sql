-- added
MERGE INTO target AS t
USING lakelock_dead_letters AS s
ON t.pipeline <=> s.pipeline AND t.sink <=> s.sink AND t.reason <=> s.reason AND t.window_start <=> s.window_start AND t.window_end <=> s.window_end AND t._topic <=> s._topic AND t._partition <=> s._partition AND t._offset <=> s._offset AND (t._retried_epoch IS NULL OR t._retry IS NULL) AND coalesce(t._table IN ('', 'the log', 'the table'), true)
WHEN MATCHED AND (t.epoch <> s.epoch OR t._retried_epoch IS NOT NULL OR t._retry IS NOT NULL)
  THEN UPDATE SET epoch = s.epoch, _retry = NULL, _retried_epoch = NULL, _retried_at = NULL,
    _table = CASE WHEN t._retried_epoch IS NULL THEN t._table ELSE s._table END
WHEN NOT MATCHED
  THEN INSERT (pipeline, sink, epoch, reason, detail, key, value, headers, window_start, window_end, _topic, _partition, _offset, _timestamp, _noted_at, _retry, _retried_epoch, _retried_at, _table)
  VALUES (s.pipeline, s.sink, s.epoch, s.reason, s.detail, s.key, s.value, s.headers, s.window_start, s.window_end, s._topic, s._partition, s._offset, s._timestamp, s._noted_at, s._retry, s._retried_epoch, s._retried_at, s._table)

-- added by who doesn't know its table
MERGE INTO target AS t
USING lakelock_dead_letters AS s
ON t.pipeline <=> s.pipeline AND t.sink <=> s.sink AND t.reason <=> s.reason AND t.window_start <=> s.window_start AND t.window_end <=> s.window_end AND t._topic <=> s._topic AND t._partition <=> s._partition AND t._offset <=> s._offset AND (t._retried_epoch IS NULL OR t._retry IS NULL)
WHEN MATCHED AND (t.epoch <> s.epoch OR t._retried_epoch IS NOT NULL OR t._retry IS NOT NULL)
  THEN UPDATE SET epoch = s.epoch, _retry = NULL, _retried_epoch = NULL, _retried_at = NULL,
    _table = CASE WHEN t._retried_epoch IS NULL THEN t._table ELSE s._table END
WHEN NOT MATCHED
  THEN INSERT (pipeline, sink, epoch, reason, detail, key, value, headers, window_start, window_end, _topic, _partition, _offset, _timestamp, _noted_at, _retry, _retried_epoch, _retried_at, _table)
  VALUES (s.pipeline, s.sink, s.epoch, s.reason, s.detail, s.key, s.value, s.headers, s.window_start, s.window_end, s._topic, s._partition, s._offset, s._timestamp, s._noted_at, s._retry, s._retried_epoch, s._retried_at, s._table)

-- kept open after a retry
MERGE INTO target AS t
USING (
  SELECT steps.step, coalesce(bad.sink, there.sink) AS sink, coalesce(bad.reason, there.reason) AS reason, coalesce(bad.window_start, there.window_start) AS window_start, coalesce(bad.window_end, there.window_end) AS window_end, coalesce(bad._topic, there._topic) AS _topic, coalesce(bad._partition, there._partition) AS _partition, coalesce(bad._offset, there._offset) AS _offset, bad.detail, bad.key, bad.value, bad.headers, bad._timestamp, bad.epoch, bad._noted_at, bad._table
  FROM (
    SELECT b.*, r.epoch, r._noted_at, r._table FROM lakelock_dead_letters AS b
    JOIN (SELECT _topic, _partition, _offset, min(epoch) AS epoch, min(_noted_at) AS _noted_at, max(_table) AS _table
      FROM target WHERE pipeline = 'pipeline' AND _retried_epoch IS NULL AND _retry = 'a run' GROUP BY _topic, _partition, _offset) AS r
    ON b._topic = r._topic AND b._partition = r._partition AND b._offset = r._offset
  ) AS bad
  FULL JOIN (SELECT sink, reason, window_start, window_end, _topic, _partition, _offset, count(*) AS letters,
      sum(CASE WHEN _retry = 'a run' THEN 1 ELSE 0 END) AS marked
    FROM target JOIN (SELECT DISTINCT _topic, _partition, _offset FROM lakelock_dead_letters) AS s USING (_topic, _partition, _offset)
    WHERE pipeline = 'pipeline' AND _retried_epoch IS NULL AND coalesce(_table IN ('', 'the table'), true)
    GROUP BY sink, reason, window_start, window_end, _topic, _partition, _offset) AS there
  ON bad.sink <=> there.sink AND bad.reason <=> there.reason AND bad.window_start <=> there.window_start AND bad.window_end <=> there.window_end AND bad._topic <=> there._topic AND bad._partition <=> there._partition AND bad._offset <=> there._offset
  JOIN (SELECT 'keep' AS step UNION ALL SELECT 'drop' UNION ALL SELECT 'add') AS steps
  ON CASE steps.step WHEN 'keep' THEN coalesce(bad._topic IS NOT NULL AND there.marked = 1 AND there.letters = 1, false)
    WHEN 'drop' THEN there.marked > 0 AND NOT coalesce(bad._topic IS NOT NULL AND there.marked = 1 AND there.letters = 1, false)
    ELSE bad._topic IS NOT NULL AND (there.letters IS NULL OR (there.marked > 1 AND there.marked = there.letters)) END
) AS s
ON s.step <> 'add' AND t.pipeline = 'pipeline' AND t._retry = 'a run'
  AND t._retried_epoch IS NULL AND t.sink <=> s.sink AND t.reason <=> s.reason AND t.window_start <=> s.window_start AND t.window_end <=> s.window_end AND t._topic <=> s._topic AND t._partition <=> s._partition AND t._offset <=> s._offset
WHEN MATCHED AND s.step = 'keep'
  THEN UPDATE SET detail = s.detail, _retry = NULL
WHEN MATCHED
  THEN DELETE
WHEN NOT MATCHED AND s.step = 'add'
  THEN INSERT (pipeline, sink, epoch, reason, detail, key, value, headers, window_start, window_end, _topic, _partition, _offset, _timestamp, _noted_at, _retry, _retried_epoch, _retried_at, _table)
  VALUES ('pipeline', s.sink, s.epoch, s.reason, s.detail, s.key, s.value, s.headers, s.window_start, s.window_end, s._topic, s._partition, s._offset, s._timestamp, s._noted_at, NULL, NULL, NULL, s._table)

-- tombstones of the marked letters
MERGE INTO target AS t
USING (SELECT ...) AS s
ON t._topic = s._topic AND t._partition = s._partition AND t._offset = s._offset
WHEN MATCHED
  THEN DELETE

-- tombstones of retries that were undone
MERGE INTO target AS t
USING (SELECT ...) AS s
ON t._topic = s._topic AND t._partition = s._partition AND t._offset = s._offset
WHEN MATCHED AND NOT coalesce(startswith(t._noted_by, 'back to '), false)
  THEN DELETE
