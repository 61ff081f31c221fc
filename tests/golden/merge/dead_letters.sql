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
USING lakelock_dead_letters AS s
ON t.pipeline = 'pipeline' AND t._retry = 'a run' AND t._topic = s._topic AND t._partition = s._partition AND t._offset = s._offset
WHEN MATCHED
  THEN UPDATE SET sink = s.sink, reason = s.reason, detail = s.detail, _retry = NULL

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
