package lakelock.protobuf;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF2;

/**
 * A function of SQL: the bytes of a record, and a {@link Plan} as bytes, to STRUCT&lt;value, problem&gt;. The plan
 * holds all that the schema says, so that no library for Protobuf is needed, whose version may clash with another's.
 */
public final class Decode implements UDF2<byte[], byte[], Row> {
  private static final long serialVersionUID = 1L;
  /** Plans that are kept. A run has one for its values and one for its keys, and more as it learns of schemas. */
  private static final int KEPT = 64;

  private static final Map<ByteBuffer, Plan> PLANS = new ConcurrentHashMap<>();

  private record Last(byte[] bytes, Plan plan) {}

  /** Spark hands the literal over as the same array for every record of a task. */
  private transient volatile Last last;

  @Override
  public Row call(byte[] value, byte[] plan) {
    if (value == null) {
      return null;
    }
    try {
      return RowFactory.create(planOf(plan).decoded(value), null);
    } catch (Problem problem) {
      return RowFactory.create(null, problem.getMessage());
    }
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
