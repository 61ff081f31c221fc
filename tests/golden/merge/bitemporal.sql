-- statement
MERGE INTO target AS t
USING lakelock_epoch AS s
ON t.`k` = s.`k` AND t.__START_AT = s.__START_AT AND t.__SYSTEM_START_AT = s.__SYSTEM_START_AT AND t._offset IS NOT NULL
WHEN MATCHED AND s.`lakelock gone`
  THEN DELETE
WHEN MATCHED
  THEN UPDATE SET
    t.`k` = s.`k`,
    t.`v` = s.`v`,
    t.`note` = s.`note`,
    t.`__START_AT` = s.`__START_AT`,
    t.`__END_AT` = s.`__END_AT`,
    t.`__SYSTEM_START_AT` = s.`__SYSTEM_START_AT`,
    t.`__SYSTEM_END_AT` = s.`__SYSTEM_END_AT`,
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
    `__SYSTEM_START_AT`,
    `__SYSTEM_END_AT`,
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
    s.`__SYSTEM_START_AT`,
    s.`__SYSTEM_END_AT`,
    s.`_topic`,
    s.`_partition`,
    s.`_offset`,
    s.`_timestamp`,
    s.`_state`
  )

-- an event as _state keeps it
CAST(named_struct('at', _sequence, 'system', _system_sequence, 'topic', _topic, 'partition', _partition, 'offset', _offset, 'timestamp', _timestamp, 'deletes', _delete, 'values', CASE WHEN NOT _delete THEN named_struct('v', `v`, 'note', `note`) END) AS STRUCT<`at`: timestamp, `system`: bigint, `topic`: string, `partition`: int, `offset`: bigint, `timestamp`: timestamp, `deletes`: boolean, `values`: STRUCT<`v`: string, `note`: string>>)

-- versions and their recorded times
element_at(transform(array(element_at(transform(array(array_sort(aggregate(sequence(0, size(events) - 1), CAST(named_struct('open', array(named_struct('since', NULL, 'first', -1)), 'rows', array(), 'slot', 0) AS STRUCT<open: ARRAY<STRUCT<since: bigint, first: INT>>, `rows`: ARRAY<STRUCT<first: INT, ended: INT, since: bigint, until: bigint>>, slot: INT>), (swept, i) -> element_at(transform(array(get(events, i)), event -> element_at(transform(array(CASE WHEN get(events, i + 1).at = event.at THEN get(events, i + 1).system END), until -> element_at(transform(array(CASE WHEN i > 0 AND get(events, i - 1).at = event.at THEN swept.slot ELSE i END), slot -> element_at(transform(array(concat(array(named_struct('since', event.system, 'first', element_at(filter(swept.open, p -> p.since IS NULL OR p.since <= event.system), -1).first)), filter(swept.open, p -> p.since > event.system AND (until IS NULL OR p.since < until)))), pieces -> element_at(transform(array(transform(pieces, (p, k) -> named_struct('since', p.since, 'until', coalesce(get(pieces, k + 1).since, until), 'first', p.first, 'goes', p.first >= 0 AND NOT event.deletes AND element_at(transform(array(get(events, p.first)), one -> element_at(transform(array(event), other -> one.values <=> other.values), 1)), 1)))), there -> named_struct('open', element_at(transform(array(concat(filter(swept.open, p -> p.since IS NULL OR p.since < event.system), transform(there, p -> named_struct('since', p.since, 'first', CASE WHEN p.goes THEN p.first WHEN event.deletes THEN -1 ELSE i END)), CASE WHEN until IS NULL THEN filter(swept.open, p -> false) ELSE concat(array(named_struct('since', until, 'first', element_at(filter(swept.open, p -> p.since IS NULL OR p.since <= until), -1).first)), filter(swept.open, p -> p.since > until)) END)), open -> filter(open, (p, k) -> k = 0 OR get(open, k - 1).first <> p.first)), 1), 'rows', concat(swept.rows, transform(filter(there, p -> p.first >= 0 AND NOT p.goes), p -> named_struct('first', p.first, 'ended', slot, 'since', p.since, 'until', p.until))), 'slot', slot)), 1)), 1)), 1)), 1)), 1), swept -> concat(swept.rows, filter(transform(swept.open, (p, k) -> named_struct('first', p.first, 'ended', CAST(NULL AS INT), 'since', p.since, 'until', get(swept.open, k + 1).since)), r -> r.first >= 0))))), spans -> element_at(transform(array(filter(spans, (r, k) -> NOT coalesce(get(spans, k + 1).first = r.first AND get(spans, k + 1).ended <=> r.ended AND get(spans, k + 1).since = r.until, false))), ends -> transform(filter(spans, (r, k) -> NOT coalesce(r.first = get(spans, k - 1).first AND r.ended <=> get(spans, k - 1).ended AND r.since = get(spans, k - 1).until, false)), (r, k) -> named_struct('first', r.first, 'ended', r.ended, 'since', r.since, 'until', get(ends, k).until))), 1)), 1)), spans -> CASE WHEN size(spans) = 0 THEN array(named_struct('first', 0, 'ended', 0, 'since', get(events, 0).system, 'until', get(events, 0).system)) ELSE spans END), 1)
