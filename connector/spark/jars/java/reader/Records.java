package lakelock.reader;

import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The records of ranges, one range after the other, each record once and in the order of offsets. */
final class Records implements AutoCloseable {
  private static final Duration POLL = Duration.ofMillis(500);
  private static final Duration PATIENCE = Duration.ofMinutes(2);

  private final Iterator<Plan.Range> ranges;
  private final KafkaConsumer<byte[], byte[]> consumer;

  private Plan.Range range;
  private TopicPartition at;
  private Iterator<ConsumerRecord<byte[], byte[]>> polled = Collections.emptyIterator();
  /** The next offset to ask Kafka for: what lies before it is read. */
  private long passed;

  Records(Plan plan, List<Plan.Range> ranges) {
    this.ranges = ranges.iterator();
    Map<String, Object> properties = new HashMap<>(plan.kafka());
    properties.put("enable.auto.commit", "false");
    properties.put("auto.offset.reset", "none");
    // A consumer for each task: one that is used again may hold records of a topic that was recreated since.
    consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  /** The next record. Null: there are no more. */
  ConsumerRecord<byte[], byte[]> next() {
    while (range != null || open()) {
      ConsumerRecord<byte[], byte[]> record = ofRange();
      if (record != null) {
        return record;
      }
      leave();
    }
    return null;
  }

  private boolean open() {
    if (!ranges.hasNext()) {
      return false;
    }
    range = ranges.next();
    at = new TopicPartition(range.topic(), range.partition());
    passed = range.start();
    consumer.assign(List.of(at));
    consumer.seek(at, passed);
    return true;
  }

  private ConsumerRecord<byte[], byte[]> ofRange() {
    long deadline = System.nanoTime() + PATIENCE.toNanos();
    while (!polled.hasNext()) {
      if (passed >= range.end()) {
        return null;
      }
      long before = passed;
      poll();
      if (passed > before) {
        // It passes records of aborted transactions, say, without giving any.
        deadline = System.nanoTime() + PATIENCE.toNanos();
      } else if (System.nanoTime() > deadline) {
        throw new IllegalStateException(
            "Kafka gave no record of " + at + " from offset " + passed + " on within " + PATIENCE.toSeconds()
                + " s. The records up to " + range.end() + " were there when the epoch was planned.");
      }
    }
    ConsumerRecord<byte[], byte[]> record = polled.next();
    return record.offset() < range.end() ? record : null;
  }

  /**
   * Offsets without a record are those of transactions, or of a compacted topic, or their records are gone. A broker refuses
   * to read from an offset before the beginning of the log, so none should be gone in silence. If one is, the log begins
   * after it, which has to be asked at once: retention may pass records that were read.
   */
  private void poll() {
    List<ConsumerRecord<byte[], byte[]>> records = consumer.poll(POLL).records(at);
    long gap = passed;
    for (ConsumerRecord<byte[], byte[]> record : records) {
      if (record.offset() != gap) {
        break;
      }
      gap++;
    }
    passed = consumer.position(at);
    if (gap < Math.min(passed, range.end()) && consumer.beginningOffsets(List.of(at)).get(at) > gap) {
      throw new IllegalStateException("KAFKA_DATA_LOSS: records of " + at + " from offset " + gap + " on are gone.");
    }
    polled = records.iterator();
  }

  /**
   * The record, for as long as one likes. Kafka's headers are slices of what they were fetched in, up to all of a fetch,
   * which stays in memory as long as one of them does. Keys and values are copies.
   */
  static ConsumerRecord<byte[], byte[]> alone(ConsumerRecord<byte[], byte[]> record, boolean withHeaders) {
    Header[] fetched = record.headers().toArray();
    if (fetched.length == 0) {
      return record;
    }
    RecordHeaders headers = new RecordHeaders();
    if (withHeaders) {
      for (Header each : fetched) {
        headers.add(each.key(), each.value());
      }
    }
    return new ConsumerRecord<>(
        record.topic(), record.partition(), record.offset(), record.timestamp(), record.timestampType(),
        record.serializedKeySize(), record.serializedValueSize(), record.key(), record.value(), headers,
        record.leaderEpoch());
  }

  /** About how many bytes the headers take. */
  static long ofHeaders(ConsumerRecord<byte[], byte[]> record) {
    long bytes = 0;
    for (Header each : record.headers()) {
      bytes += each.key().length() + (each.value() == null ? 0 : each.value().length) + 100L;
    }
    return bytes;
  }

  private void leave() {
    polled = Collections.emptyIterator();
    range = null;
  }

  @Override
  public void close() {
    consumer.close(Duration.ZERO);
  }
}
