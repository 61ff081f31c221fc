package lakelock.json;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads one JSON text: Map, List, String, {@link Num}, Boolean or null. Numbers are exact. */
final class Json {
  /** Levels of lists and objects in a record. */
  static final int DEEPEST = 100;
  /** Characters of a number, and places before or after its point. */
  private static final int LONGEST_NUMBER = 1000;

  private static final JsonFactory FACTORY =
      JsonFactory.builder()
          // Whoever sends ever new names would fill the table of them.
          .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(Integer.MAX_VALUE)
                  .maxNumberLength(Integer.MAX_VALUE)
                  .maxStringLength(Integer.MAX_VALUE)
                  .build())
          .build();

  private final JsonParser parser;
  private final int deepest;

  private Json(JsonParser parser, int deepest) {
    this.parser = parser;
    this.deepest = deepest;
  }

  static Object read(byte[] bytes, int start, int length, int deepest) throws Problem {
    // Jackson passes over a byte order mark.
    if (length > 2 && bytes[start] == (byte) 0xEF && bytes[start + 1] == (byte) 0xBB && bytes[start + 2] == (byte) 0xBF) {
      throw new Problem("not one JSON value: a byte order mark comes first");
    }
    try (JsonParser parser = FACTORY.createParser(bytes, start, length)) {
      JsonToken first = parser.nextToken();
      if (first == null) {
        throw new Problem("not one JSON value: it is empty");
      }
      Object found = new Json(parser, deepest).value(first, 0);
      if (parser.nextToken() != null) {
        throw new Problem("not one JSON value: more comes after it");
      }
      return found;
    } catch (IOException | NumberFormatException error) {
      throw new Problem("not one JSON value");
    }
  }

  private Object value(JsonToken token, int level) throws IOException, Problem {
    if (token == null) {
      throw new Problem("not one JSON value: it breaks off");
    }
    switch (token) {
      case START_OBJECT:
        return object(deeper(level));
      case START_ARRAY:
        return list(deeper(level));
      case VALUE_STRING:
        return parser.getText();
      case VALUE_TRUE:
        return Boolean.TRUE;
      case VALUE_FALSE:
        return Boolean.FALSE;
      case VALUE_NULL:
        return null;
      case VALUE_NUMBER_INT:
        return number(parser.getText(), true);
      case VALUE_NUMBER_FLOAT:
        return number(parser.getText(), false);
      default:
        throw new Problem("not one JSON value");
    }
  }

  private int deeper(int level) throws Problem {
    if (level >= deepest) {
      throw new Problem("is nested deeper than " + deepest + " levels, which isn't validated");
    }
    return level + 1;
  }

  private Map<String, Object> object(int level) throws IOException, Problem {
    Map<String, Object> found = new LinkedHashMap<>();
    for (JsonToken token = parser.nextToken(); token != JsonToken.END_OBJECT; token = parser.nextToken()) {
      if (token == null) {
        throw new Problem("not one JSON value: it breaks off");
      }
      String name = parser.getText();
      if (found.containsKey(name)) {
        throw new Problem("has a field twice in one object: " + new Path(null, name));
      }
      found.put(name, value(parser.nextToken(), level));
    }
    return found;
  }

  private List<Object> list(int level) throws IOException, Problem {
    List<Object> found = new ArrayList<>();
    for (JsonToken token = parser.nextToken(); token != JsonToken.END_ARRAY; token = parser.nextToken()) {
      found.add(value(token, level));
    }
    return found;
  }

  private static Num number(String text, boolean digitsOnly) throws Problem {
    if (text.length() <= LONGEST_NUMBER) {
      BigDecimal value = new BigDecimal(text);
      if (Math.abs((long) value.precision() - value.scale()) <= LONGEST_NUMBER) {
        return new Num(value, digitsOnly);
      }
    }
    throw new Problem("has a number of more than " + LONGEST_NUMBER + " places, which isn't validated");
  }
}
