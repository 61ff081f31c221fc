package lakelock.json;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.api.java.UDF2;

/**
 * A function of SQL: the bytes of a record, and a {@link Plan} as bytes, to what its JSON Schema says against it, or
 * null. The plan holds all that the schemas say, so that no library for JSON Schema is needed, whose version may clash
 * with another's.
 */
public final class Validate implements UDF2<byte[], byte[], String> {
  private static final long serialVersionUID = 1L;
  /** Plans that are kept. A run has one for its values and one for its keys, and more as it learns of schemas. */
  private static final int KEPT = 64;

  private static final Map<ByteBuffer, Plan> PLANS = new ConcurrentHashMap<>();

  private record Last(byte[] bytes, Plan plan) {}

  /** Spark hands the literal over as the same array for every record of a task. */
  private transient volatile Last last;

  @Override
  public String call(byte[] value, byte[] plan) {
    if (value == null) {
      return null;
    }
    return planOf(plan).problem(value);
  }

  private Plan planOf(byte[] bytes) {
    Last known = last;
    if (known == null || known.bytes != bytes) {
      if (PLANS.size() > KEPT) {
        PLANS.clear();
      }
      known = new Last(bytes, PLANS.computeIfAbsent(ByteBuffer.wrap(bytes), Plan::new));
      last = known;
    }
    return known.plan;
  }
}
