package lakelock.reader;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers that wait for the next task with the same properties, connected.
 *
 * <p>A waiting consumer holds no records: those of a topic that is recreated meanwhile must not be given for new ones.
 */
final class Consumers {
  private static final Duration IDLE = Duration.ofMinutes(5);
  private static final Map<Map<String, String>, ArrayDeque<Waiting>> WAITING = new HashMap<>();

  private record Waiting(KafkaConsumer<byte[], byte[]> consumer, long since) {}

  private Consumers() {}

  static KafkaConsumer<byte[], byte[]> take(Map<String, String> properties) {
    synchronized (WAITING) {
      closeIdle();
      ArrayDeque<Waiting> same = WAITING.get(properties);
      if (same != null && !same.isEmpty()) {
        return same.pop().consumer();
      }
    }
    Map<String, Object> all = new HashMap<>(properties);
    all.put("enable.auto.commit", "false");
    all.put("auto.offset.reset", "none");
    all.putIfAbsent("max.poll.records", "8192");
    return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  static void giveBack(Map<String, String> properties, KafkaConsumer<byte[], byte[]> consumer) {
    consumer.assign(List.of());
    synchronized (WAITING) {
      WAITING.computeIfAbsent(properties, p -> new ArrayDeque<>()).push(new Waiting(consumer, System.nanoTime()));
      closeIdle();
    }
  }

  private static void closeIdle() {
    long now = System.nanoTime();
    for (ArrayDeque<Waiting> same : WAITING.values()) {
      while (!same.isEmpty() && now - same.peekLast().since() > IDLE.toNanos()) {
        same.pollLast().consumer().close(Duration.ZERO);
      }
    }
    WAITING.values().removeIf(ArrayDeque::isEmpty);
  }
}
