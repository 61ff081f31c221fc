package lakelock.protobuf;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.RowFactory;

/** How a message becomes a STRUCT, a TIMESTAMP, or the value that a wrapper holds. */
final class Message {
  private static final int STRUCT = 0, TIMESTAMP = 1;
  private static final int NEAR = 64;
  /** Of the years 1 to 9999, as Protobuf defines a Timestamp. */
  private static final long FIRST = -62135596800L, LAST = 253402300799L;

  private final int kind;
  private final int columns;
  private final Field[] fields;
  private final Field[] near = new Field[NEAR];
  private final Map<Integer, Field> far = new HashMap<>();

  Message(ByteBuffer from) {
    kind = from.getInt();
    columns = from.getInt();
    fields = new Field[from.getInt()];
    for (int slot = 0; slot < fields.length; slot++) {
      Field field = fields[slot] = new Field(from, slot);
      if (field.number < NEAR) {
        near[field.number] = field;
      } else {
        far.put(field.number, field);
      }
    }
  }

  /**
   * What is read so far of a message without bytes: for each field the last value, or the values, as they were sent.
   * They become columns at the end, because a value may be replaced by a later one. The last place is for a problem.
   */
  Object[] begun() {
    return new Object[fields.length + 1];
  }

  /** Read all fields up to the end of the input into {@code state}. */
  void read(Input input, Object[] state, int depth) throws Problem {
    while (!input.atEnd()) {
      int tag = input.tag(), number = tag >>> 3, type = tag & 7;
      Field field = number < NEAR ? near[number] : far.get(number);
      if (field == null) {
        input.skip(number, type, depth);
      } else {
        field.read(input, type, state, depth);
      }
    }
  }

  Object made(Object[] state) throws Problem {
    if (state[fields.length] != null) {
      throw (Problem) state[fields.length];
    }
    Object[] values = new Object[columns];
    for (Field field : fields) {
      if (field.column >= 0) {
        values[field.column] = field.made(state[field.slot]);
      }
    }
    return kind == STRUCT ? RowFactory.create(values) : kind == TIMESTAMP ? time(values) : values[0];
  }

  private static Instant time(Object[] values) throws Problem {
    long seconds = (Long) values[0];
    int nanos = (Integer) values[1];
    if (seconds < FIRST || seconds > LAST || nanos < 0 || nanos > 999_999_999) {
      throw new Problem("seconds " + seconds + " and nanos " + nanos + " are no Timestamp");
    }
    if (nanos % 1000 != 0) {
      throw new Problem("its nanoseconds, " + nanos + ", aren't whole microseconds, as a TIMESTAMP has");
    }
    return Instant.ofEpochSecond(seconds, nanos);
  }

  /** The values of a map's entry. */
  Object[] entry(Object[] state) throws Problem {
    if (state[fields.length] != null) {
      throw (Problem) state[fields.length];
    }
    return new Object[] {fields[0].made(state[0]), fields[1].made(state[1])};
  }
}
