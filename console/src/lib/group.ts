/** Map.groupBy, which the oldest supported Node does not have. */
export function groupBy<K, V>(values: Iterable<V>, key: (value: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const value of values) {
    const of = key(value);
    const group = groups.get(of);
    if (group) group.push(value);
    else groups.set(of, [value]);
  }
  return groups;
}
