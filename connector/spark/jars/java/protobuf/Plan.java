package lakelock.protobuf;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * How records become columns: with Confluent's header for each schema that they may name, else for one. Written by
 * connector/decode/protobuf_plan.py, in the same order: numbers as four bytes, a text after its number of bytes.
 */
final class Plan {
  private final boolean framed;
  private final Map<Integer, Of> schemas = new HashMap<>();

  /** Of one schema. {@code taken}: the indexes of the message that is read. {@code names}: of all its messages. */
  private record Of(String name, String taken, Map<String, String> names, Message message) {}

  Plan(ByteBuffer written) {
    ByteBuffer from = written.duplicate();
    framed = from.getInt() == 1;
    for (int left = from.getInt(); left > 0; left--) {
      int id = from.getInt();
      String name = text(from), taken = text(from);
      Map<String, String> names = new HashMap<>();
      for (int more = from.getInt(); more > 0; more--) {
        names.put(text(from), text(from));
      }
      schemas.put(id, new Of(name, taken, names, new Message(from)));
    }
  }

  static String text(ByteBuffer from) {
    byte[] found = new byte[from.getInt()];
    from.get(found);
    return new String(found, StandardCharsets.UTF_8);
  }

  /** The value of a record. Null where its header names no schema of the plan, which is said elsewhere. */
  Object decoded(byte[] value) throws Problem {
    int header = framed ? 5 : 0;
    if (value.length < header || (framed && value[0] != 0)) {
      return null;
    }
    Of of = schemas.get(framed ? ByteBuffer.wrap(value, 1, 4).getInt() : 0);
    if (of == null) {
      return null;
    }
    Input input = new Input(value, header, value.length);
    if (framed) {
      checkIndexes(input, of);
    }
    Object[] state = of.message.begun();
    try {
      of.message.read(input, state, 0);
    } catch (Problem problem) {
      throw new Problem("not one message " + of.name + ": " + problem.getMessage());
    }
    return of.message.made(state);
  }

  /** The indexes lead from the file to the message, through those that it is defined in. None stand for the first. */
  private static void checkIndexes(Input input, Of of) throws Problem {
    StringBuilder found = new StringBuilder();
    try {
      long count = zigzag(input.varint());
      for (long each = 0; each < count; each++) {
        found.append(each == 0 ? "" : ".").append(zigzag(input.varint()));
      }
      if (count < 0) {
        found.append(count).append(" of them");
      }
    } catch (Problem problem) {
      throw new Problem("the indexes after the header, which name the message, aren't whole");
    }
    String path = found.isEmpty() ? "0" : found.toString();
    if (!path.equals(of.taken)) {
      String name = of.names.get(path);
      throw new Problem(
          name == null
              ? "its schema has no message with the indexes " + path
              : "it is of the message " + name + ", not of " + of.name);
    }
  }

  static long zigzag(long found) {
    return (found >>> 1) ^ -(found & 1);
  }
}
