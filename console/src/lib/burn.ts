// Numbers over time: rates, the burn-down of a cascade, and the heat map of delays.

/** Events per second in bins of `width` milliseconds, from the first event on. The last bin ends `now`: it is whole. */
export function rate(times: number[], now: number, width = 10_000, most = 90): [number, number][] {
  const bins = Math.min(most, Math.max(6, Math.ceil((now - (times[0] ?? now)) / width)));
  const from = now - bins * width;
  const counts = Array.from({ length: bins }, () => 0);
  for (const at of times) {
    const bin = Math.floor((at - from) / width);
    if (bin >= 0 && bin < bins) counts[bin]! += 1;
  }
  return counts.map((count, bin) => [from + (bin + 0.5) * width, count / (width / 1000)]);
}

/**
 * The objects that were left after each deletion. `left` is the number now, `gone` the sorted times of the last
 * deletions, `before` the number of those before them, and `began` the time of the root's deletion.
 */
export function burnDown(left: number, gone: number[], now: number, began?: number, before = 0): [number, number][] {
  const all = left + gone.length;
  const points: [number, number][] = [[Math.min(began ?? now, gone[0] ?? now), all + before]];
  // No more points than the plot is wide: there may be 100,000 deletions, and it is drawn each second.
  const step = Math.ceil((gone.length + 2) / 600);
  for (let index = step - 1; index < gone.length; index += step) points.push([gone[index]!, all - index - 1]);
  points.push([Math.max(now, gone.at(-1) ?? now), left]);
  return points;
}

export interface Pace {
  perSecond: number;
  /** Milliseconds until nothing is left; undefined without any progress. */
  eta: number | undefined;
}

/** The pace of the last minute. */
export function pace(left: number, gone: number[], now: number, window = 60_000): Pace {
  const recent = gone.filter((at) => at > now - window && at <= now);
  if (recent.length === 0) return { perSecond: 0, eta: undefined };
  const seconds = Math.max(1, Math.min(window, now - gone[0]!) / 1000);
  const perSecond = recent.length / seconds;
  return { perSecond, eta: (left / perSecond) * 1000 };
}

export const DELAYS: [string, number][] = [
  ["≤ 1 s", 1e3],
  ["≤ 5 s", 5e3],
  ["≤ 30 s", 30e3],
  ["≤ 2 m", 120e3],
  ["≤ 10 m", 600e3],
  ["> 10 m", Infinity],
];

/** How many objects went with which delay, in bins of time. */
export function heat(done: { at: number; took: number | undefined }[], now: number, width = 20_000, most = 30) {
  const from = Math.floor(now / width - most + 1) * width;
  const columns = Array.from({ length: most }, (_, at) => from + at * width);
  const cells = DELAYS.map(() => columns.map(() => 0));
  for (const { at, took } of done) {
    const column = Math.floor((at - from) / width);
    if (took === undefined || column < 0 || column >= most) continue;
    cells[DELAYS.findIndex(([, limit]) => took <= limit)]![column]! += 1;
  }
  return { columns, rows: DELAYS.map(([name]) => name), cells };
}
