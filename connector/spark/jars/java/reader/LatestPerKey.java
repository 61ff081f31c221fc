package lakelock.reader;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;

/**
 * Leaves out plain records that a later record of their partition, with the same key, replaces.
 *
 * <p>For queries that want the last record per key: they get the same, from fewer rows. What is left out has been decoded
 * and checked. Records that aren't plain, tombstones, and those with a Kafka timestamp out of range are never left out.
 * Memory is bounded: of a key that comes again much later, more than the last record is given.
 */
final class LatestPerKey {
  private static final int MOST_KEYS = 100_000;
  private static final long MOST_BYTES = 32L << 20;
  private static final int TRIAL = 50_000;
  private static final int ROWS = 1024;

  private final Records records;
  private final Plan plan;
  private final boolean withHeaders;
  private final Field.Struct decoder;
  private final int[] keyFields;
  private final JsonText text = new JsonText();
  private final WritableColumnVector scratch;
  private int scratchRow;
  private long scratchBytes;

  private Map<Key, ConsumerRecord<byte[], byte[]>> latest = new HashMap<>();
  private Iterator<ConsumerRecord<byte[], byte[]>> given = Collections.emptyIterator();
  private ConsumerRecord<byte[], byte[]> ofNextPartition;
  private long bytes;
  private int tried;
  private boolean pays;

  /** {@code withHeaders}: whether the records' headers are needed. */
  LatestPerKey(Records records, Plan plan, boolean withHeaders) {
    this.records = records;
    this.plan = plan;
    this.withHeaders = withHeaders;
    decoder = Field.Struct.of(plan.schema(), plan.zone(), plan.refuseUnknown());
    keyFields = plan.latestBy().stream().mapToInt(plan.schema()::fieldIndex).toArray();
    scratch = new OnHeapColumnVector(ROWS, plan.schema());
    pays = keyFields.length > 0;
  }

  /** The next record. Null: there are no more. */
  ConsumerRecord<byte[], byte[]> next() {
    while (!given.hasNext()) {
      if (!pays && ofNextPartition == null) {
        return records.next();
      }
      ConsumerRecord<byte[], byte[]> record = ofNextPartition == null ? records.next() : ofNextPartition;
      ofNextPartition = null;
      if (record == null) {
        if (latest.isEmpty()) {
          return null;
        }
        give();
      } else if (!latest.isEmpty() && !together(record, latest.values().iterator().next())) {
        ofNextPartition = record;
        give();
      } else {
        Key key = key(record);
        if (key == null) {
          return record;
        }
        hold(key, record);
      }
    }
    return given.next();
  }

  private void hold(Key key, ConsumerRecord<byte[], byte[]> fetched) {
    ConsumerRecord<byte[], byte[]> record = Records.alone(fetched, withHeaders);
    ConsumerRecord<byte[], byte[]> before = latest.put(key, record);
    bytes += size(record) - (before == null ? 0 : size(before));
    tried++;
    if (tried == TRIAL && latest.size() > TRIAL / 2) {
      pays = false;
      give();
    } else if (latest.size() >= MOST_KEYS || bytes >= MOST_BYTES) {
      give();
    }
  }

  private void give() {
    given = latest.values().iterator();
    latest = new HashMap<>();
    bytes = 0;
  }

  private static long size(ConsumerRecord<byte[], byte[]> record) {
    return record.value().length + (record.key() == null ? 0 : record.key().length) + Records.ofHeaders(record) + 200L;
  }

  private static boolean together(ConsumerRecord<byte[], byte[]> one, ConsumerRecord<byte[], byte[]> other) {
    return one.partition() == other.partition() && one.topic().equals(other.topic());
  }

  /** The key of a plain record. Null: it isn't plain, its timestamp is out of range, or it lacks a part of the key. */
  private Key key(ConsumerRecord<byte[], byte[]> record) {
    if (record.value() == null || !RecordsReader.tells(record.timestamp())) {
      return null;
    }
    scratchBytes += record.value().length;
    if (scratchRow == ROWS || scratchBytes > MOST_BYTES) {
      scratch.reset();
      scratchRow = 0;
      scratchBytes = record.value().length;
    }
    int start = plan.start(record.value());
    if (start < 0) {
      return null;
    }
    text.open(record.value(), start);
    if (!decoder.value(text, scratch, scratchRow++) || !text.atEnd()) {
      return null;
    }
    return Key.of(record.value(), decoder, keyFields);
  }

  /** The texts of the key's values. The same text is the same value; one value may have several texts. */
  private record Key(byte[] texts, int hash) {
    static Key of(byte[] value, Field.Struct decoder, int[] fields) {
      int size = 0;
      for (int field : fields) {
        if (!decoder.sawLast(field)) {
          return null;
        }
        size += decoder.endOf(field) - decoder.startOf(field) + 4;
      }
      byte[] texts = new byte[size];
      int at = 0;
      for (int field : fields) {
        int length = decoder.endOf(field) - decoder.startOf(field);
        for (int shift = 24; shift >= 0; shift -= 8) {
          texts[at++] = (byte) (length >> shift);
        }
        System.arraycopy(value, decoder.startOf(field), texts, at, length);
        at += length;
      }
      return new Key(texts, Arrays.hashCode(texts));
    }

    @Override
    public int hashCode() {
      return hash;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Key key && hash == key.hash && Arrays.equals(texts, key.texts);
    }
  }

  void close() {
    scratch.close();
  }
}
