package lakelock.reader;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What to read, and how.
 *
 * @param ranges of offsets, from a start up to an end that isn't in it
 * @param schema the columns of a value
 * @param zone of times that name none
 * @param refuseUnknown whether a value with a field that the schema lacks isn't plain
 * @param keepOdd whether a record that isn't plain is a row; else it fails the query
 * @param framed whether a header comes before the JSON of a value: a zero byte and four bytes of a schema's ID
 * @param schemaIds the IDs that a plain value may name; null: any
 * @param tasks the largest number of tasks, where there are more ranges
 * @param latestBy fields of the schema: of the plain records of a partition that share their values, those that a later
 *     one replaces may be left out
 * @param kafka the consumer's properties
 */
record Plan(
    List<Range> ranges,
    StructType schema,
    ZoneId zone,
    boolean refuseUnknown,
    boolean keepOdd,
    boolean framed,
    Set<Integer> schemaIds,
    int tasks,
    List<String> latestBy,
    Map<String, String> kafka)
    implements Serializable {
  /** A part of a partition. */
  record Range(String topic, int partition, long start, long end) implements Serializable {
    long span() {
      return end - start;
    }
  }

  private static final String OF_KAFKA = "kafka.";

  /** Of the options. Python and jar may be of different releases. */
  private static final int VERSION = 2;

  private static final int HEADER = 5;

  static Plan of(CaseInsensitiveStringMap options) {
    if (options.getInt("version", 0) != VERSION) {
      throw new IllegalArgumentException("This jar reads options of version " + VERSION + ", not " + options.get("version"));
    }
    List<Range> ranges = new ArrayList<>();
    for (List<Object> range : json(options.get("ranges"), new TypeReference<List<List<Object>>>() {})) {
      ranges.add(
          new Range((String) range.get(0), number(range.get(1)).intValue(), number(range.get(2)).longValue(),
              number(range.get(3)).longValue()));
    }
    Map<String, String> kafka = new HashMap<>();
    options
        .asCaseSensitiveMap()
        .forEach((name, value) -> {
          if (name.startsWith(OF_KAFKA)) {
            kafka.put(name.substring(OF_KAFKA.length()), value);
          }
        });
    return new Plan(
        ranges,
        (StructType) DataType.fromJson(options.get("schema")),
        ZoneId.of(options.get("zone"), ZoneId.SHORT_IDS),
        options.getBoolean("refuse_unknown", false),
        options.getBoolean("keep_odd", false),
        options.getBoolean("framed", false),
        ids(json(options.get("schema_ids"), new TypeReference<List<Long>>() {})),
        options.getInt("tasks", Integer.MAX_VALUE),
        json(options.get("latest_by"), new TypeReference<ArrayList<String>>() {}),
        kafka);
  }

  /** Where the JSON of a value begins. -1: it lacks the header, or names a schema that isn't known. */
  int start(byte[] value) {
    if (!framed) {
      return 0;
    }
    if (value.length < HEADER || value[0] != 0) {
      return -1;
    }
    return schemaIds == null || schemaIds.contains(ByteBuffer.wrap(value, 1, Integer.BYTES).getInt()) ? HEADER : -1;
  }

  private static Set<Integer> ids(List<Long> given) {
    if (given == null) {
      return null;
    }
    Set<Integer> ids = new HashSet<>();
    given.forEach(id -> ids.add(id.intValue()));
    return ids;
  }

  private static <T> T json(String text, TypeReference<T> type) {
    try {
      return new ObjectMapper().readValue(text, type);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Without Kafka's properties, which hold secrets. */
  @Override
  public String toString() {
    return "Plan" + ranges;
  }

  private static Number number(Object value) {
    return (Number) value;
  }
}
