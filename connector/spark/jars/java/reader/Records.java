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
  private long next;
  private long firstGap = -1;

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
    next = range.start();
    firstGap = -1;
    consumer.assign(List.of(at));
    consumer.seek(at, next);
    return true;
  }

  private ConsumerRecord<byte[], byte[]> ofRange() {
    long reached = next;
    long deadline = System.nanoTime() + PATIENCE.toNanos();
    while (!polled.hasNext()) {
      long position = consumer.position(at);
      if (position >= range.end()) {
        passed(range.end());
        return null;
      }
      if (position > reached) {
        // It passes records of aborted transactions, say, without giving any.
        reached = position;
        deadline = System.nanoTime() + PATIENCE.toNanos();
      }
      polled = consumer.poll(POLL).records(at).iterator();
      if (!polled.hasNext() && System.nanoTime() > deadline) {
        throw new IllegalStateException(
            "Kafka gave no record of " + at + " from offset " + next + " on within " + PATIENCE.toSeconds()
                + " s. The records up to " + range.end() + " were there when the epoch was planned.");
      }
    }
    ConsumerRecord<byte[], byte[]> record = polled.next();
    if (record.offset() >= range.end()) {
      passed(range.end());
      return null;
    }
    passed(record.offset());
    next = record.offset() + 1;
    return record;
  }

  /** Offsets without a record are those of transactions, or of a compacted topic, or their records are gone. */
  private void passed(long upTo) {
    if (firstGap < 0 && upTo > next) {
      firstGap = next;
    }
  }

  private void leave() {
    if (firstGap >= 0 && consumer.beginningOffsets(List.of(at)).get(at) > firstGap) {
      throw new IllegalStateException("KAFKA_DATA_LOSS: records of " + at + " from offset " + firstGap + " on are gone.");
    }
    polled = Collections.emptyIterator();
    range = null;
  }

  @Override
  public void close() {
    consumer.close(Duration.ZERO);
  }
}
