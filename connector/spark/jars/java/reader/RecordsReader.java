package lakelock.reader;

import java.time.Duration;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads the ranges of one task, one after the other, each record once and in the order of offsets. */
final class RecordsReader implements PartitionReader<ColumnarBatch> {
  private static final int ROWS = 4096;
  private static final Duration POLL = Duration.ofMillis(500);
  private static final Duration PATIENCE = Duration.ofMinutes(2);

  private final Plan plan;
  private final Iterator<Plan.Range> ranges;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final WritableColumnVector[] columns;
  private final ColumnarBatch batch;
  private final Field.Struct decoder;
  private final JsonText text = new JsonText();

  private final WritableColumnVector key;
  private final WritableColumnVector value;
  private final WritableColumnVector topic;
  private final WritableColumnVector partition;
  private final WritableColumnVector offset;
  private final WritableColumnVector timestamp;
  private final WritableColumnVector headers;
  private final WritableColumnVector plain;
  private final WritableColumnVector odd;

  private final WritableColumnVector unwanted;
  private Plan.Range range;
  private TopicPartition at;
  private byte[] topicName;
  private Iterator<ConsumerRecord<byte[], byte[]>> polled = Collections.emptyIterator();
  private long next;
  private long firstGap = -1;
  private boolean broken = true;

  RecordsReader(Plan plan, StructType needed, List<Plan.Range> ranges) {
    this.plan = plan;
    this.ranges = ranges.iterator();
    decoder = Field.Struct.of(plan.schema(), plan.zone(), plan.refuseUnknown());
    columns = OnHeapColumnVector.allocateColumns(ROWS, needed);
    batch = new ColumnarBatch(columns);
    List<String> names = List.of(needed.fieldNames());
    key = column(names, "key");
    value = column(names, "value");
    topic = column(names, "topic");
    partition = column(names, "partition");
    offset = column(names, "offset");
    timestamp = column(names, "timestamp");
    headers = column(names, "headers");
    // A value is decoded also if no column of it is needed: whatever the query does, no odd record passes.
    boolean wanted = names.contains("plain");
    plain = wanted ? column(names, "plain") : new OnHeapColumnVector(ROWS, plan.schema());
    unwanted = wanted ? null : plain;
    odd = column(names, "odd");
    consumer = Consumers.take(plan.kafka());
  }

  private WritableColumnVector column(List<String> names, String name) {
    return names.contains(name) ? columns[names.indexOf(name)] : null;
  }

  @Override
  public boolean next() {
    for (WritableColumnVector column : columns) {
      column.reset();
    }
    if (unwanted != null) {
      unwanted.reset();
    }
    int rows = 0;
    while (rows < ROWS) {
      if (range == null && !open()) {
        break;
      }
      ConsumerRecord<byte[], byte[]> record = record();
      if (record == null) {
        close(range);
        continue;
      }
      add(record, rows++);
    }
    batch.setNumRows(rows);
    broken = rows > 0;
    return rows > 0;
  }

  /** Begin the next range. False: there is none. */
  private boolean open() {
    if (!ranges.hasNext()) {
      return false;
    }
    range = ranges.next();
    at = new TopicPartition(range.topic(), range.partition());
    topicName = range.topic().getBytes(java.nio.charset.StandardCharsets.UTF_8);
    next = range.start();
    firstGap = -1;
    consumer.assign(List.of(at));
    consumer.seek(at, next);
    return true;
  }

  /** The next record of the range. Null: it has no more. */
  private ConsumerRecord<byte[], byte[]> record() {
    long deadline = System.nanoTime() + PATIENCE.toNanos();
    while (!polled.hasNext()) {
      if (consumer.position(at) >= range.end()) {
        gap(range.end());
        return null;
      }
      polled = consumer.poll(POLL).records(at).iterator();
      if (!polled.hasNext() && System.nanoTime() > deadline) {
        throw new IllegalStateException(
            "No records of " + at + " from offset " + next + " on within " + PATIENCE.toSeconds() + " s, though it ended at "
                + range.end() + ".");
      }
    }
    ConsumerRecord<byte[], byte[]> record = polled.next();
    if (record.offset() >= range.end()) {
      gap(range.end());
      return null;
    }
    gap(record.offset());
    next = record.offset() + 1;
    return record;
  }

  /** Offsets without a record are of transactions or of a compacted topic, or their records are gone. */
  private void gap(long upTo) {
    if (firstGap < 0 && upTo > next) {
      firstGap = next;
    }
  }

  private void close(Plan.Range done) {
    if (firstGap >= 0 && consumer.beginningOffsets(List.of(at)).get(at) > firstGap) {
      throw new IllegalStateException("KAFKA_DATA_LOSS: records of " + at + " from offset " + firstGap + " on are gone.");
    }
    polled = Collections.emptyIterator();
    range = null;
  }

  private void add(ConsumerRecord<byte[], byte[]> record, int row) {
    boolean isPlain = decoded(record.value(), row);
    boolean isOdd = !isPlain && record.value() != null;
    if (isOdd && !plan.keepOdd()) {
      throw new IllegalStateException("LAKELOCK_ODD_RECORD " + at + " offset " + record.offset());
    }
    if (!isPlain) {
      plain.putNull(row);
    }
    if (odd != null) {
      odd.putBoolean(row, isOdd);
    }
    if (key != null) {
      bytes(key, row, record.key());
    }
    if (value != null) {
      bytes(value, row, record.value());
    }
    if (topic != null) {
      topic.putByteArray(row, topicName, 0, topicName.length);
    }
    if (partition != null) {
      partition.putInt(row, range.partition());
    }
    if (offset != null) {
      offset.putLong(row, record.offset());
    }
    if (timestamp != null) {
      timestamp.putLong(row, record.timestamp() * 1000);
    }
    if (headers != null) {
      headers(record, row);
    }
  }

  private boolean decoded(byte[] json, int row) {
    if (json == null) {
      return false;
    }
    text.open(json);
    return decoder.value(text, plain, row) && text.atEnd();
  }

  private static void bytes(WritableColumnVector to, int row, byte[] bytes) {
    if (bytes == null) {
      to.putNull(row);
    } else {
      to.putByteArray(row, bytes, 0, bytes.length);
    }
  }

  /** Null, as in Spark's own source, where a record has none. */
  private void headers(ConsumerRecord<byte[], byte[]> record, int row) {
    Header[] given = record.headers().toArray();
    if (given.length == 0) {
      headers.putNull(row);
      return;
    }
    WritableColumnVector each = headers.arrayData();
    int start = each.getElementsAppended();
    each.reserve(start + given.length);
    for (int i = 0; i < 2; i++) {
      each.getChild(i).reserve(start + given.length);
    }
    for (int i = 0; i < given.length; i++) {
      bytes(each.getChild(0), start + i, given[i].key().getBytes(java.nio.charset.StandardCharsets.UTF_8));
      bytes(each.getChild(1), start + i, given[i].value());
    }
    each.addElementsAppended(given.length);
    headers.putArray(row, start, given.length);
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() {
    batch.close();
    if (unwanted != null) {
      unwanted.close();
    }
    if (broken) {
      consumer.close(Duration.ZERO);
    } else {
      Consumers.giveBack(plan.kafka(), consumer);
    }
  }
}
