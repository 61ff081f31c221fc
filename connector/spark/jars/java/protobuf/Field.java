package lakelock.protobuf;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A field of a message, and the column that it becomes. */
final class Field {
  private static final int SINGLE = 0, REPEATED = 1;
  private static final int DEFAULT = 0, REQUIRED = 2;

  final int number;
  final int slot;
  /** Less than 0: no column takes it. It is read because it replaces the others of its oneof. */
  final int column;

  private final String name;
  private final int shape;
  private final int presence;
  private final int[] rivals;
  private final Scalar scalar;
  private final Message message;
  private final int wireType;

  Field(ByteBuffer from, int slot) {
    this.slot = slot;
    number = from.getInt();
    column = from.getInt();
    name = Plan.text(from);
    shape = from.getInt();
    presence = from.getInt();
    rivals = new int[from.getInt()];
    for (int each = 0; each < rivals.length; each++) {
      rivals[each] = from.getInt();
    }
    boolean ofMessage = from.getInt() == 1;
    message = ofMessage ? new Message(from) : null;
    scalar = ofMessage ? null : new Scalar(from);
    wireType = ofMessage ? Input.DELIMITED : scalar.wireType;
  }

  void read(Input input, int type, Object[] state, int depth) throws Problem {
    boolean packed = type == Input.DELIMITED && shape == REPEATED && wireType != Input.DELIMITED;
    if (type != wireType && !packed) {
      input.skip(number, type, depth);
      if (column >= 0 && state[state.length - 1] == null) {
        state[state.length - 1] =
            new Problem("was written as another type: its wire type is " + type + ", not " + wireType).within(name);
      }
      return;
    }
    if (column < 0) {
      input.skip(number, type, depth);
    } else {
      try {
        readInto(input, packed, state, depth);
      } catch (Problem problem) {
        throw problem.within(name);
      }
    }
    for (int rival : rivals) {
      state[rival] = null;
    }
  }

  @SuppressWarnings("unchecked")
  private void readInto(Input input, boolean packed, Object[] state, int depth) throws Problem {
    if (shape == SINGLE) {
      // The parts of a message that comes in several are one message.
      state[slot] = message == null ? scalar.read(input) : part(input, (Object[]) state[slot], depth);
      return;
    }
    if (state[slot] == null) {
      state[slot] = new ArrayList<Object>();
    }
    List<Object> values = (List<Object>) state[slot];
    if (!packed) {
      values.add(message == null ? scalar.read(input) : part(input, null, depth));
      return;
    }
    int before = input.limit(input.length());
    while (!input.atEnd()) {
      values.add(scalar.read(input));
    }
    input.reopen(before);
  }

  private Object[] part(Input input, Object[] so, int depth) throws Problem {
    if (depth + 1 >= Input.DEEPEST) {
      throw new Problem("more than " + Input.DEEPEST + " messages are within each other");
    }
    Object[] state = so == null ? message.begun() : so;
    int before = input.limit(input.length());
    message.read(input, state, depth + 1);
    input.reopen(before);
    return state;
  }

  /** The value of the column, of what was read. */
  Object made(Object found) throws Problem {
    try {
      if (shape == SINGLE) {
        return single(found);
      }
      List<?> values = found == null ? List.of() : (List<?>) found;
      if (shape == REPEATED) {
        Object[] made = new Object[values.size()];
        for (int each = 0; each < made.length; each++) {
          made[each] = message == null ? scalar.made(values.get(each)) : message.made((Object[]) values.get(each));
        }
        return made;
      }
      Map<Object, Object> made = new LinkedHashMap<>();
      for (Object each : values) {
        Object[] entry = message.entry((Object[]) each);
        made.put(entry[0], entry[1]);
      }
      return made;
    } catch (Problem problem) {
      throw problem.within(name);
    }
  }

  private Object single(Object found) throws Problem {
    if (found != null) {
      return message == null ? scalar.made(found) : message.made((Object[]) found);
    }
    if (presence == REQUIRED) {
      throw new Problem("is required, and isn't there");
    }
    if (presence != DEFAULT) {
      return null;
    }
    return message == null ? scalar.none() : message.made(message.begun());
  }
}
