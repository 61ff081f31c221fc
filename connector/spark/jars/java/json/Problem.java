package lakelock.json;

/** Why a value isn't what its schema describes. */
final class Problem extends Exception {
  private static final long serialVersionUID = 1L;

  Problem(String message) {
    super(message, null, false, false);
  }

  /** {@code what}: a clause, as in "is 3, below the minimum 5". */
  static Problem of(Path at, String what) {
    String where = at == null ? "the value" : at.toString();
    return new Problem("doesn't fit its JSON Schema: " + where + " " + what);
  }
}
