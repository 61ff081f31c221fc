package lakelock.json;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/** One schema: what it says of a value. What it says nothing of is null. */
final class Node {
  private record Matching(Pattern pattern, Node node) {}

  private boolean never;
  private List<String> types;
  private Set<Object> values;
  private BigDecimal multipleOf;
  private BigDecimal minimum;
  private BigDecimal maximum;
  private BigDecimal above;
  private BigDecimal below;
  private long minLength;
  private long maxLength;
  private Pattern pattern;
  private long minItems;
  private long maxItems;
  private boolean unique;
  private List<Node> prefix;
  private Node items;
  private Node contains;
  private long minContains;
  private long maxContains;
  private boolean containsCounts;
  private Node otherItems;
  private long minProperties;
  private long maxProperties;
  private List<String> required;
  private Map<String, Node> properties;
  private List<Matching> matching;
  private Node additional;
  private Node names;
  private Map<String, List<String>> needs;
  private Map<String, Node> dependent;
  private Node otherProperties;
  private List<Node> all;
  private List<Node> any;
  private List<Node> one;
  private Node not;
  private Node condition;
  private Node then;
  private Node otherwise;

  void fill(Map<?, ?> given, Plan plan) {
    never = given.containsKey("never");
    types = texts(given.get("type"));
    values = given.get("enum") == null ? null : new HashSet<>((List<?>) given.get("enum"));
    multipleOf = number(given.get("multipleOf"));
    minimum = number(given.get("minimum"));
    maximum = number(given.get("maximum"));
    above = number(given.get("exclusiveMinimum"));
    below = number(given.get("exclusiveMaximum"));
    minLength = count(given.get("minLength"), 0);
    maxLength = count(given.get("maxLength"), Long.MAX_VALUE);
    pattern = given.get("pattern") == null ? null : Pattern.compile((String) given.get("pattern"));
    minItems = count(given.get("minItems"), 0);
    maxItems = count(given.get("maxItems"), Long.MAX_VALUE);
    unique = Boolean.TRUE.equals(given.get("uniqueItems"));
    prefix = nodes(given.get("prefixItems"), plan);
    items = plan.node(given.get("items"));
    contains = plan.node(given.get("contains"));
    minContains = count(given.get("minContains"), 1);
    maxContains = count(given.get("maxContains"), Long.MAX_VALUE);
    containsCounts = Boolean.TRUE.equals(given.get("containsCounts"));
    otherItems = plan.node(given.get("unevaluatedItems"));
    minProperties = count(given.get("minProperties"), 0);
    maxProperties = count(given.get("maxProperties"), Long.MAX_VALUE);
    required = texts(given.get("required"));
    properties = named(given.get("properties"), plan);
    if (given.get("patternProperties") != null) {
      matching = new ArrayList<>();
      for (Object each : (List<?>) given.get("patternProperties")) {
        List<?> pair = (List<?>) each;
        matching.add(new Matching(Pattern.compile((String) pair.get(0)), plan.node(pair.get(1))));
      }
    }
    additional = plan.node(given.get("additionalProperties"));
    names = plan.node(given.get("propertyNames"));
    if (given.get("dependentRequired") != null) {
      needs = new LinkedHashMap<>();
      for (Map.Entry<?, ?> each : ((Map<?, ?>) given.get("dependentRequired")).entrySet()) {
        needs.put((String) each.getKey(), texts(each.getValue()));
      }
    }
    dependent = named(given.get("dependentSchemas"), plan);
    otherProperties = plan.node(given.get("unevaluatedProperties"));
    all = nodes(given.get("allOf"), plan);
    any = nodes(given.get("anyOf"), plan);
    one = nodes(given.get("oneOf"), plan);
    not = plan.node(given.get("not"));
    condition = plan.node(given.get("if"));
    then = plan.node(given.get("then"));
    otherwise = plan.node(given.get("else"));
  }

  /** {@code seen}: gets what this schema evaluates of the value. Null: no schema asks for it. */
  void check(Plan plan, Object value, Path at, Seen seen) throws Problem {
    if (never) {
      throw Problem.of(at, "isn't allowed");
    }
    if (types != null && types.stream().noneMatch(type -> isOf(type, value))) {
      throw Problem.of(at, "is of type " + typeOf(value) + ", not " + String.join(" or ", types));
    }
    if (values != null && !values.contains(value)) {
      throw Problem.of(at, "is none of the values that enum or const lists");
    }
    Seen own = seen != null && (otherItems != null || otherProperties != null) ? new Seen() : seen;
    if (value instanceof Num) {
      checkNumber(((Num) value).value, at);
    } else if (value instanceof String) {
      checkText((String) value, at);
    } else if (value instanceof List) {
      checkItems(plan, (List<?>) value, at, own);
    } else if (value instanceof Map) {
      checkFields(plan, (Map<?, ?>) value, at, own);
    }
    checkWhole(plan, value, at, own);
    if (value instanceof List && otherItems != null) {
      List<?> list = (List<?>) value;
      for (int index = 0; index < list.size(); index++) {
        if (!own.items.get(index)) {
          otherItems.check(plan, list.get(index), new Path(at, index), new Seen());
        }
      }
      own.items.set(0, list.size());
    }
    if (value instanceof Map && otherProperties != null) {
      for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
        if (own.names.add((String) each.getKey())) {
          otherProperties.check(plan, each.getValue(), new Path(at, each.getKey()), new Seen());
        }
      }
    }
    if (own != seen) {
      seen.add(own);
    }
  }

  /** What other schemas say of the same value. */
  private void checkWhole(Plan plan, Object value, Path at, Seen seen) throws Problem {
    if (all != null) {
      for (Node each : all) {
        each.check(plan, value, at, seen);
      }
    }
    if (any != null && fitting(plan, any, value, at, seen, Integer.MAX_VALUE) == 0) {
      throw Problem.of(at, "fits no schema of anyOf");
    }
    if (one != null) {
      int found = fitting(plan, one, value, at, seen, 2);
      if (found != 1) {
        throw Problem.of(at, "fits " + (found == 0 ? "no schema" : "several schemas") + " of oneOf");
      }
    }
    if (not != null && fits(plan, not, value, at, null)) {
      throw Problem.of(at, "fits the schema of not");
    }
    if (condition != null) {
      Node next = fits(plan, condition, value, at, seen) ? then : otherwise;
      if (next != null) {
        next.check(plan, value, at, seen);
      }
    }
  }

  /** How many fit, up to {@code most}. A schema of which nobody knows counts only where fewer fit: it may decide. */
  private static int fitting(Plan plan, List<Node> nodes, Object value, Path at, Seen seen, int most) throws Problem {
    int enough = seen == null && most > 2 ? 1 : most;
    int found = 0;
    Problem undecided = null;
    for (Node each : nodes) {
      try {
        if (fits(plan, each, value, at, seen) && ++found >= enough) {
          return found;
        }
      } catch (Problem problem) {
        undecided = problem;
      }
    }
    if (undecided != null) {
      throw undecided;
    }
    return found;
  }

  /** Throws a problem only if nobody knows. */
  private static boolean fits(Plan plan, Node node, Object value, Path at, Seen seen) throws Problem {
    Seen fresh = plan.tracks ? new Seen() : null;
    try {
      node.check(plan, value, at, fresh);
    } catch (Problem problem) {
      if (problem.undecided) {
        throw problem;
      }
      return false;
    }
    if (seen != null) {
      seen.add(fresh);
    }
    return true;
  }

  private void checkNumber(BigDecimal value, Path at) throws Problem {
    if (multipleOf != null && value.remainder(multipleOf).signum() != 0) {
      throw Problem.of(at, "is no multiple of " + multipleOf);
    }
    if (minimum != null && value.compareTo(minimum) < 0) {
      throw Problem.of(at, "is below the minimum, " + minimum);
    }
    if (maximum != null && value.compareTo(maximum) > 0) {
      throw Problem.of(at, "is above the maximum, " + maximum);
    }
    if (above != null && value.compareTo(above) <= 0) {
      throw Problem.of(at, "isn't above " + above);
    }
    if (below != null && value.compareTo(below) >= 0) {
      throw Problem.of(at, "isn't below " + below);
    }
  }

  private void checkText(String value, Path at) throws Problem {
    int length = value.codePointCount(0, value.length());
    if (length < minLength || length > maxLength) {
      throw Problem.of(at, "has " + length + " characters, " + bounds(length < minLength, minLength, maxLength));
    }
    if (pattern != null && !Plan.found(pattern, value, at)) {
      throw Problem.of(at, "doesn't match the pattern of its schema");
    }
  }

  private void checkItems(Plan plan, List<?> value, Path at, Seen seen) throws Problem {
    int size = value.size();
    if (size < minItems || size > maxItems) {
      throw Problem.of(at, "has " + size + " items, " + bounds(size < minItems, minItems, maxItems));
    }
    if (unique && new HashSet<>(value).size() < size) {
      throw Problem.of(at, "has an item twice");
    }
    int first = prefix == null ? 0 : Math.min(prefix.size(), size);
    int matches = 0;
    for (int index = 0; index < size; index++) {
      Node node = index < first ? prefix.get(index) : items;
      if (node != null) {
        node.check(plan, value.get(index), new Path(at, index), plan.tracks ? new Seen() : null);
      }
      boolean matched = contains != null && fits(plan, contains, value.get(index), at, null);
      matches += matched ? 1 : 0;
      if (seen != null && (node != null || (matched && containsCounts))) {
        seen.items.set(index);
      }
    }
    if (contains != null && (matches < minContains || matches > maxContains)) {
      String found = "has " + matches + " items that fit contains, ";
      throw Problem.of(at, found + bounds(matches < minContains, minContains, maxContains));
    }
  }

  private void checkFields(Plan plan, Map<?, ?> value, Path at, Seen seen) throws Problem {
    int size = value.size();
    if (size < minProperties || size > maxProperties) {
      throw Problem.of(at, "has " + size + " fields, " + bounds(size < minProperties, minProperties, maxProperties));
    }
    if (required != null) {
      checkThere(required, value, at);
    }
    for (Map.Entry<?, ?> each : value.entrySet()) {
      String name = (String) each.getKey();
      checkField(plan, name, each.getValue(), new Path(at, name), seen);
    }
    if (needs != null) {
      for (Map.Entry<String, List<String>> each : needs.entrySet()) {
        if (value.containsKey(each.getKey())) {
          checkThere(each.getValue(), value, at);
        }
      }
    }
    if (dependent != null) {
      for (Map.Entry<String, Node> each : dependent.entrySet()) {
        if (value.containsKey(each.getKey())) {
          each.getValue().check(plan, value, at, seen);
        }
      }
    }
  }

  private void checkField(Plan plan, String name, Object value, Path at, Seen seen) throws Problem {
    if (names != null && !fits(plan, names, name, at, null)) {
      throw Problem.of(at, "has a name that propertyNames doesn't allow");
    }
    Node own = properties == null ? null : properties.get(name);
    boolean known = own != null;
    if (own != null) {
      own.check(plan, value, at, plan.tracks ? new Seen() : null);
    }
    if (matching != null) {
      for (Matching each : matching) {
        if (Plan.found(each.pattern, name, at)) {
          known = true;
          each.node.check(plan, value, at, plan.tracks ? new Seen() : null);
        }
      }
    }
    if (!known && additional != null) {
      known = true;
      additional.check(plan, value, at, plan.tracks ? new Seen() : null);
    }
    if (known && seen != null) {
      seen.names.add(name);
    }
  }

  private static void checkThere(List<String> names, Map<?, ?> value, Path at) throws Problem {
    for (String name : names) {
      if (!value.containsKey(name)) {
        throw Problem.of(new Path(at, name), "is required, and isn't there");
      }
    }
  }

  private static String bounds(boolean tooFew, long least, long most) {
    return tooFew ? "fewer than " + least : "more than " + most;
  }

  private static boolean isOf(String type, Object value) {
    switch (type) {
      case "null":
        return value == null;
      case "boolean":
        return value instanceof Boolean;
      case "string":
        return value instanceof String;
      case "number":
        return value instanceof Num;
      case "integer":
        return value instanceof Num && ((Num) value).isWhole();
      case "integer without a fraction":
        return value instanceof Num && ((Num) value).digitsOnly;
      case "array":
        return value instanceof List;
      default:
        return value instanceof Map;
    }
  }

  private static String typeOf(Object value) {
    for (String type : List.of("null", "boolean", "string", "number", "array")) {
      if (isOf(type, value)) {
        return type;
      }
    }
    return "object";
  }

  private static BigDecimal number(Object given) {
    return given == null ? null : ((Num) given).value;
  }

  /** A count may be written as 2.0, or be larger than any that there is. */
  private static long count(Object given, long absent) {
    return given == null ? absent : number(given).min(BigDecimal.valueOf(Long.MAX_VALUE)).longValue();
  }

  private static List<String> texts(Object given) {
    if (given == null) {
      return null;
    }
    List<String> found = new ArrayList<>();
    for (Object each : (List<?>) given) {
      found.add((String) each);
    }
    return found;
  }

  private static List<Node> nodes(Object given, Plan plan) {
    if (given == null) {
      return null;
    }
    List<Node> found = new ArrayList<>();
    for (Object each : (List<?>) given) {
      found.add(plan.node(each));
    }
    return found;
  }

  private static Map<String, Node> named(Object given, Plan plan) {
    if (given == null) {
      return null;
    }
    Map<String, Node> found = new LinkedHashMap<>();
    for (Map.Entry<?, ?> each : ((Map<?, ?>) given).entrySet()) {
      found.put((String) each.getKey(), plan.node(each.getValue()));
    }
    return found;
  }
}
