package lakelock.json;

import java.util.BitSet;
import java.util.HashSet;
import java.util.Set;

/** Which fields, or items, of a value have been evaluated: what {@code unevaluatedProperties} and the like go by. */
final class Seen {
  final Set<String> names = new HashSet<>();
  final BitSet items = new BitSet();

  void add(Seen other) {
    names.addAll(other.names);
    items.or(other.items);
  }
}
