package lakelock.protobuf;

/** Why a record can't be decoded. */
final class Problem extends Exception {
  private static final long serialVersionUID = 1L;
  private final String field;
  private final String why;

  Problem(String why) {
    this("", why);
  }

  private Problem(String field, String why) {
    super(field.isEmpty() ? why : "field " + field + ": " + why, null, false, false);
    this.field = field;
    this.why = why;
  }

  /** The same problem, found within a field. */
  Problem within(String name) {
    return new Problem(field.isEmpty() ? name : name + "." + field, why);
  }
}
