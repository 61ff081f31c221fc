-- statement
MERGE INTO target AS t
USING lakelock_epoch AS s
ON t.`k` = s.`k` AND t.__START_AT = s.__START_AT AND t._offset IS NOT NULL
WHEN MATCHED AND s.`lakelock gone`
  THEN DELETE
WHEN MATCHED
  THEN UPDATE SET
    t.`k` = s.`k`,
    t.`v` = s.`v`,
    t.`note` = s.`note`,
    t.`__START_AT` = s.`__START_AT`,
    t.`__END_AT` = s.`__END_AT`,
    t.`_topic` = s.`_topic`,
    t.`_partition` = s.`_partition`,
    t.`_offset` = s.`_offset`,
    t.`_timestamp` = s.`_timestamp`,
    t.`_state` = s.`_state`
WHEN NOT MATCHED AND NOT s.`lakelock gone`
  THEN INSERT (
    `k`,
    `v`,
    `note`,
    `__START_AT`,
    `__END_AT`,
    `_topic`,
    `_partition`,
    `_offset`,
    `_timestamp`,
    `_state`
  )
  VALUES (
    s.`k`,
    s.`v`,
    s.`note`,
    s.`__START_AT`,
    s.`__END_AT`,
    s.`_topic`,
    s.`_partition`,
    s.`_offset`,
    s.`_timestamp`,
    s.`_state`
  )

-- an event as _state keeps it, by offset
named_struct('at', _offset, 'topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp, 'values', CASE WHEN NOT _delete THEN named_struct('note', `note`) ELSE CAST(NULL AS STRUCT<`note`: string>) END)

-- an event as _state keeps it, by sequence
named_struct('at', _sequence, 'topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp, 'values', CASE WHEN NOT _delete THEN named_struct('note', `note`) ELSE CAST(NULL AS STRUCT<`note`: string>) END)

-- keys in two partitions
SELECT count(CASE WHEN struct(first.topic, first.`partition`) <> struct(last.topic, last.`partition`)
  THEN raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', `k`)), 'topic', last.topic, 'partition', last.`partition`, 'offset', last.`offset`, 'stored_topic', first.topic, 'stored_partition', first.`partition`))))
END)
FROM (
  SELECT `k`, min(struct(_topic AS topic, _partition AS `partition`, _offset AS `offset`)) AS first, max(struct(_topic AS topic, _partition AS `partition`, _offset AS `offset`)) AS last
  FROM (
    SELECT `k`, _topic, _partition, _offset FROM events
    UNION ALL
    SELECT `k`, _topic, _partition, _offset FROM target AS t
    LEFT SEMI JOIN events AS s
    ON t.`k` = s.`k`
  )
  GROUP BY `k`
)

-- keys in two partitions, with tombstones
SELECT count(CASE WHEN struct(first.topic, first.`partition`) <> struct(last.topic, last.`partition`)
  THEN raise_error(concat('LAKELOCK>', to_json(named_struct('kind', 'key_moved', 'key', to_json(named_struct('k', `k`)), 'topic', last.topic, 'partition', last.`partition`, 'offset', last.`offset`, 'stored_topic', first.topic, 'stored_partition', first.`partition`))))
END)
FROM (
  SELECT `k`, min(struct(_topic AS topic, _partition AS `partition`, _offset AS `offset`)) AS first, max(struct(_topic AS topic, _partition AS `partition`, _offset AS `offset`)) AS last
  FROM (
    SELECT `k`, _topic, _partition, _offset FROM events
    UNION ALL
    SELECT `k`, _topic, _partition, _offset FROM target AS t
    LEFT SEMI JOIN events AS s
    ON t.`k` = s.`k`
    UNION ALL
    SELECT `k`, _topic, _partition, _offset FROM tombstones AS t
    LEFT SEMI JOIN events AS s
    ON t.`k` = s.`k`
  )
  GROUP BY `k`
)
