package lakelock.json;

/** Why a value isn't what its schema describes. */
final class Problem extends Exception {
  private static final long serialVersionUID = 1L;

  /** Whether nobody knows if the value fits: then it doesn't fit the opposite either. */
  final boolean undecided;

  Problem(String message) {
    this(message, false);
  }

  private Problem(String message, boolean undecided) {
    super(message, null, false, false);
    this.undecided = undecided;
  }

  /** {@code what}: a clause, as in "is 3, below the minimum 5". */
  static Problem of(Path at, String what) {
    return new Problem(text(at, what), false);
  }

  /** A problem of the look at a value, and so of all schemas around the one that asked for it. */
  static Problem undecided(Path at, String what) {
    return new Problem(text(at, what), true);
  }

  private static String text(Path at, String what) {
    String where = at == null ? "the value" : at.toString();
    return "doesn't fit its JSON Schema: " + where + " " + what;
  }
}
