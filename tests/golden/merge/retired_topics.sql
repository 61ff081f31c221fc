-- upsert
MERGE INTO target AS t
USING lakelock_retired AS s
ON (t._topic IN ('t'))
OR (NOT (CASE WHEN t._deleted_by IS NOT NULL THEN named_struct('topic', CASE t._deleted_by.`topic` WHEN 't' THEN '#id/t' ELSE t._deleted_by.`topic` END, 'partition', t._deleted_by.`partition`, 'offset', t._deleted_by.`offset`) END <=> t._deleted_by))
WHEN MATCHED
  THEN UPDATE SET
    t.`_topic` = CASE t._topic WHEN 't' THEN '#id/t' ELSE t._topic END,
    t.`_deleted_by` = CASE WHEN t._deleted_by IS NOT NULL THEN named_struct('topic', CASE t._deleted_by.`topic` WHEN 't' THEN '#id/t' ELSE t._deleted_by.`topic` END, 'partition', t._deleted_by.`partition`, 'offset', t._deleted_by.`offset`) END

-- history
MERGE INTO target AS t
USING lakelock_retired AS s
ON (t._topic IN ('t'))
OR (NOT (CASE WHEN t._state IS NOT NULL THEN named_struct('events', transform(t._state.`events`, _e0 -> CASE WHEN _e0 IS NOT NULL THEN named_struct('at', _e0.`at`, 'topic', CASE _e0.`topic` WHEN 't' THEN '#id/t' ELSE _e0.`topic` END, 'partition', _e0.`partition`, 'offset', _e0.`offset`, 'timestamp', _e0.`timestamp`) END), 'ended_by', CASE WHEN t._state.`ended_by` IS NOT NULL THEN named_struct('at', t._state.`ended_by`.`at`, 'topic', CASE t._state.`ended_by`.`topic` WHEN 't' THEN '#id/t' ELSE t._state.`ended_by`.`topic` END, 'partition', t._state.`ended_by`.`partition`, 'offset', t._state.`ended_by`.`offset`, 'timestamp', t._state.`ended_by`.`timestamp`) END) END <=> t._state))
WHEN MATCHED
  THEN UPDATE SET
    t.`_topic` = CASE t._topic WHEN 't' THEN '#id/t' ELSE t._topic END,
    t.`_state` = CASE WHEN t._state IS NOT NULL THEN named_struct('events', transform(t._state.`events`, _e0 -> CASE WHEN _e0 IS NOT NULL THEN named_struct('at', _e0.`at`, 'topic', CASE _e0.`topic` WHEN 't' THEN '#id/t' ELSE _e0.`topic` END, 'partition', _e0.`partition`, 'offset', _e0.`offset`, 'timestamp', _e0.`timestamp`) END), 'ended_by', CASE WHEN t._state.`ended_by` IS NOT NULL THEN named_struct('at', t._state.`ended_by`.`at`, 'topic', CASE t._state.`ended_by`.`topic` WHEN 't' THEN '#id/t' ELSE t._state.`ended_by`.`topic` END, 'partition', t._state.`ended_by`.`partition`, 'offset', t._state.`ended_by`.`offset`, 'timestamp', t._state.`ended_by`.`timestamp`) END) END

-- bitemporal
MERGE INTO target AS t
USING lakelock_retired AS s
ON (t._topic IN ('t'))
OR (NOT (CASE WHEN t._state IS NOT NULL THEN named_struct('events', transform(t._state.`events`, _e0 -> CASE WHEN _e0 IS NOT NULL THEN named_struct('at', _e0.`at`, 'system', _e0.`system`, 'topic', CASE _e0.`topic` WHEN 't' THEN '#id/t' ELSE _e0.`topic` END, 'partition', _e0.`partition`, 'offset', _e0.`offset`, 'timestamp', _e0.`timestamp`, 'deletes', _e0.`deletes`, 'values', _e0.`values`) END)) END <=> t._state))
WHEN MATCHED
  THEN UPDATE SET
    t.`_topic` = CASE t._topic WHEN 't' THEN '#id/t' ELSE t._topic END,
    t.`_state` = CASE WHEN t._state IS NOT NULL THEN named_struct('events', transform(t._state.`events`, _e0 -> CASE WHEN _e0 IS NOT NULL THEN named_struct('at', _e0.`at`, 'system', _e0.`system`, 'topic', CASE _e0.`topic` WHEN 't' THEN '#id/t' ELSE _e0.`topic` END, 'partition', _e0.`partition`, 'offset', _e0.`offset`, 'timestamp', _e0.`timestamp`, 'deletes', _e0.`deletes`, 'values', _e0.`values`) END)) END

-- aggregate
MERGE INTO target AS t
USING lakelock_retired AS s
ON (exists(map_keys(t._applied), _k -> regexp_replace(_k, '-[0-9]+$', '') IN ('t')))
WHEN MATCHED
  THEN UPDATE SET
    t.`_applied` = transform_keys(t._applied, (_k, _v) -> concat(CASE regexp_replace(_k, '-[0-9]+$', '') WHEN 't' THEN '#id/t' ELSE regexp_replace(_k, '-[0-9]+$', '') END, substr(_k, length(regexp_replace(_k, '-[0-9]+$', '')) + 1)))

-- aggregate with a last
MERGE INTO target AS t
USING lakelock_retired AS s
ON (exists(map_keys(t._applied), _k -> regexp_replace(_k, '-[0-9]+$', '') IN ('t')))
WHEN MATCHED
  THEN UPDATE SET
    t.`_applied` = transform_keys(t._applied, (_k, _v) -> concat(CASE regexp_replace(_k, '-[0-9]+$', '') WHEN 't' THEN '#id/t' ELSE regexp_replace(_k, '-[0-9]+$', '') END, substr(_k, length(regexp_replace(_k, '-[0-9]+$', '')) + 1))),
    t.`_state` = CASE WHEN t._state IS NOT NULL THEN named_struct('n_sum', t._state.`n_sum`, 'latest', CASE WHEN t._state.`latest` IS NOT NULL THEN named_struct('at', named_struct('order', t._state.`latest`.at.`order`, '_topic', CASE t._state.`latest`.at.`_topic` WHEN 't' THEN '#id/t' ELSE t._state.`latest`.at.`_topic` END, '_partition', t._state.`latest`.at.`_partition`, '_offset', t._state.`latest`.at.`_offset`), 'value', t._state.`latest`.value) END) END
