package lakelock.json;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The schemas of a topic's records, as the driver has compiled them: see {@code connector/decode/json_plan.py}. */
final class Plan {
  private static final int HEADER = 5;
  /** Bytes of the stack for a pattern that needs more than a task's thread has. */
  private static final long STACK = 1L << 29;

  /** Whether a schema asks what others have evaluated. */
  final boolean tracks;

  private final Node[] nodes;
  private final boolean framed;
  private final Node only;
  private final Map<Integer, Node> byId = new HashMap<>();

  Plan(ByteBuffer bytes) {
    try {
      byte[] text = bytes.array();
      Map<?, ?> plan = (Map<?, ?>) Json.read(text, 0, text.length, Integer.MAX_VALUE);
      List<?> given = (List<?>) plan.get("nodes");
      nodes = new Node[given.size()];
      for (int at = 0; at < nodes.length; at++) {
        nodes[at] = new Node();
      }
      for (int at = 0; at < nodes.length; at++) {
        nodes[at].fill((Map<?, ?>) given.get(at), this);
      }
      tracks = Boolean.TRUE.equals(plan.get("tracks"));
      framed = plan.get("ids") != null;
      only = framed ? null : node(plan.get("root"));
      if (framed) {
        for (Map.Entry<?, ?> each : ((Map<?, ?>) plan.get("ids")).entrySet()) {
          byId.put(Integer.parseUnsignedInt((String) each.getKey()), node(each.getValue()));
        }
      }
    } catch (Problem problem) {
      throw new IllegalArgumentException(problem);
    }
  }

  Node node(Object number) {
    return number == null ? null : nodes[((Num) number).value.intValue()];
  }

  /** What is wrong with a value. Null: nothing, or its header, of which others speak. */
  String problem(byte[] value) {
    Node root = only;
    int start = 0;
    if (framed) {
      root = value.length >= HEADER && value[0] == 0 ? byId.get(ByteBuffer.wrap(value).getInt(1)) : null;
      start = HEADER;
      if (root == null) {
        return null;
      }
    }
    try {
      root.check(this, Json.read(value, start, value.length - start, Json.DEEPEST), null, tracks ? new Seen() : null);
      return null;
    } catch (Problem problem) {
      return problem.getMessage();
    }
  }

  /** Whether a text has a part that the pattern describes. {@code at}: where the text is. */
  static boolean found(Pattern pattern, String text, Path at) throws Problem {
    try {
      return pattern.matcher(new Searched(text)).find();
    } catch (Searched.TooLong tooLong) {
      throw tooLong(at);
    } catch (StackOverflowError overflow) {
      Matcher matcher = pattern.matcher(new Searched(text));
      boolean[] found = new boolean[1];
      Throwable[] why = new Throwable[1];
      Thread thread = new Thread(null, () -> found[0] = matcher.find(), "lakelock-pattern", STACK);
      thread.setUncaughtExceptionHandler((ended, error) -> why[0] = error);
      thread.start();
      try {
        thread.join();
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException(interrupted);
      }
      if (why[0] instanceof Searched.TooLong) {
        throw tooLong(at);
      }
      if (why[0] instanceof StackOverflowError) {
        throw Problem.undecided(at, "is too long to compare with a pattern of its schema");
      }
      if (why[0] != null) {
        throw new IllegalStateException("the pattern " + pattern + " can't be looked for", why[0]);
      }
      return found[0];
    }
  }

  private static Problem tooLong(Path at) {
    return Problem.undecided(at, "takes too long to compare with a pattern of its schema");
  }
}
