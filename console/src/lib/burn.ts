// Numbers over time: rates, the burn-down of a cascade, and the heat map of delays.

/** Events per second in bins of `width` milliseconds, from the first event to `now`. */
export function rate(times: number[], now: number, width = 10_000, most = 90): [number, number][] {
  const from = Math.max(now - most * width, Math.min(now - 6 * width, times[0] ?? now));
  const bins = Math.max(1, Math.ceil((now - from) / width));
  const counts = Array.from({ length: bins }, () => 0);
  for (const at of times) {
    const bin = Math.floor((at - from) / width);
    if (bin >= 0 && bin < bins) counts[bin]! += 1;
  }
  return counts.map((count, bin) => [from + (bin + 0.5) * width, count / (width / 1000)]);
}

/**
 * The objects that were left after each deletion. `left` is the number now, `gone` the sorted times of deletions, and
 * `began` the time of the root's deletion.
 */
export function burnDown(left: number, gone: number[], now: number, began?: number): [number, number][] {
  const points: [number, number][] = gone.map((at, index) => [at, left + gone.length - index - 1]);
  points.unshift([Math.min(began ?? now, gone[0] ?? now), left + gone.length]);
  points.push([Math.max(now, gone.at(-1) ?? now), left]);
  const step = Math.ceil(points.length / 600);
  return points.filter((_, index) => index % step === 0 || index === points.length - 1);
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
