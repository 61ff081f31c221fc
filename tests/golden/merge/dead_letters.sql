-- added
MERGE INTO target AS t
USING lakelock_dead_letters AS s
ON t.pipeline <=> s.pipeline AND t.sink <=> s.sink AND t.reason <=> s.reason AND t.window_start <=> s.window_start AND t.window_end <=> s.window_end AND t._topic <=> s._topic AND t._partition <=> s._partition AND t._offset <=> s._offset AND (t._retried_epoch IS NULL OR t._retry IS NULL)
WHEN MATCHED AND (t._retried_epoch IS NOT NULL OR t._table IS NULL OR s._table IS NULL OR t._table = s._table) AND (t.epoch <> s.epoch OR t._retried_epoch IS NOT NULL)
  THEN UPDATE SET epoch = s.epoch, _retried_epoch = NULL, _retried_at = NULL,
    _table = CASE WHEN t._retried_epoch IS NULL THEN t._table ELSE s._table END
WHEN MATCHED AND NOT (t._retried_epoch IS NOT NULL OR t._table IS NULL OR s._table IS NULL OR t._table = s._table) AND t._table <> ''
  THEN UPDATE SET _table = ''
WHEN NOT MATCHED
  THEN INSERT *

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
