package lakelock.reader;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Writes the records of one task into columns. */
final class RecordsReader implements PartitionReader<ColumnarBatch> {
  private static final int ROWS = 4096;
  private static final long BYTES = 16L << 20;

  /** As in {@code sinks/kafka/reader.py}: Spark's own source reads older ones as other times. */
  private static final long EARLIEST_MILLIS = -2_208_902_400_000L;
  private static final long LATEST_MILLIS = Long.MAX_VALUE / 1000;

  private final Plan plan;
  private final Records records;
  private final LatestPerKey latest;
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

  /** {@code plain}, if the query needs no field of it: whatever it needs, every value is decoded, and checked. */
  private final WritableColumnVector unwanted;

  RecordsReader(Plan plan, StructType needed, List<Plan.Range> ranges) {
    this.plan = plan;
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
    odd = column(names, "odd");
    unwanted = names.contains("plain") ? null : new OnHeapColumnVector(ROWS, plan.schema());
    plain = unwanted == null ? column(names, "plain") : unwanted;
    records = new Records(plan, ranges);
    latest = new LatestPerKey(records, plan, headers != null);
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
    long bytes = 0;
    ConsumerRecord<byte[], byte[]> record;
    while (rows < ROWS && bytes < BYTES && (record = latest.next()) != null) {
      bytes += Math.max(0, record.serializedValueSize()) + Math.max(0, record.serializedKeySize());
      bytes += headers == null ? 0 : Records.ofHeaders(record);
      add(record, rows++);
    }
    batch.setNumRows(rows);
    return rows > 0;
  }

  private void add(ConsumerRecord<byte[], byte[]> record, int row) {
    boolean isPlain = decoded(record.value(), row);
    boolean isOdd = !isPlain && record.value() != null;
    if (isOdd && !plan.keepOdd()) {
      throw new IllegalStateException(
          "LAKELOCK_ODD_RECORD " + record.topic() + "-" + record.partition() + " offset " + record.offset());
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
      bytes(topic, row, utf8(record.topic()));
    }
    if (partition != null) {
      partition.putInt(row, record.partition());
    }
    if (offset != null) {
      offset.putLong(row, record.offset());
    }
    if (timestamp != null) {
      timestamp.putLong(row, micros(record));
    }
    if (headers != null) {
      headers(record, row);
    }
  }

  private boolean decoded(byte[] json, int row) {
    int start = json == null ? -1 : plan.start(json);
    if (start < 0) {
      return false;
    }
    text.open(json, start);
    return decoder.value(text, plain, row) && text.atEnd();
  }

  /** Whether a Kafka timestamp tells a time that each reader of it gives alike. */
  static boolean tells(long millis) {
    return millis >= EARLIEST_MILLIS && millis <= LATEST_MILLIS;
  }

  /** Kafka's timestamp, in Spark's unit. Brokers before 4.0 take any, such as nanoseconds. */
  private static long micros(ConsumerRecord<byte[], byte[]> record) {
    if (!tells(record.timestamp())) {
      throw new IllegalStateException(
          "LAKELOCK_TIMESTAMP " + record.timestamp() + " " + record.partition() + " " + record.offset() + " "
              + record.topic());
    }
    return record.timestamp() * 1000L;
  }

  private static void bytes(WritableColumnVector to, int row, byte[] bytes) {
    if (bytes == null) {
      to.putNull(row);
    } else {
      to.putByteArray(row, bytes, 0, bytes.length);
    }
  }

  private String lastName;
  private byte[] lastNameAsUtf8;

  private byte[] utf8(String name) {
    if (!name.equals(lastName)) {
      lastName = name;
      lastNameAsUtf8 = name.getBytes(StandardCharsets.UTF_8);
    }
    return lastNameAsUtf8;
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
      bytes(each.getChild(0), start + i, given[i].key().getBytes(StandardCharsets.UTF_8));
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
    latest.close();
    records.close();
  }
}
