// Instants and spans of the API as people read them.

import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";

export function instant(at: Timestamp | undefined): number | undefined {
  return at && Number(at.seconds) * 1000 + at.nanos / 1e6;
}

export function millis(duration: Duration | undefined): number | undefined {
  return duration && Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

/** `0.4 s`, `12 s`, `3 m 20 s`, `5 h 2 m`, `41 d`. A negative span, of a clock that is wrong, is zero. */
export function span(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return pair(minutes, "m", whole % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return pair(hours, "h", minutes % 60, "m");
  const days = Math.floor(hours / 24);
  return days < 10 ? pair(days, "d", hours % 24, "h") : `${days} d`;
}

function pair(first: number, unit: string, second: number, lesser: string): string {
  return second === 0 ? `${first} ${unit}` : `${first} ${unit} ${second} ${lesser}`;
}

/** A century: instants that lie further back do not fit into the calls of the service. */
const SPAN_MAX_MS = 36_525 * 86_400e3;

/** `10m` and `1h30m` in milliseconds; undefined for anything else. */
export function parseSpan(text: string): number | undefined {
  const units: Record<string, number> = { s: 1e3, m: 60e3, h: 3600e3, d: 86_400e3 };
  const parts = [...text.trim().matchAll(/(\d+)\s*([smhd])\s*/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text.trim()) return undefined;
  const ms = parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit!]!, 0);
  return ms <= SPAN_MAX_MS ? ms : undefined;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString(undefined, { hour12: false });
}

/** The date only where it is not today's. */
export function moment(ms: number): string {
  if (new Date(ms).toDateString() === new Date().toDateString()) return clock(ms);
  return new Date(ms).toLocaleString(undefined, { hour12: false });
}

const format = new Intl.NumberFormat("en");
export const count = (value: number | bigint): string => format.format(value);
/** `1 object`, `12,431 objects`. */
export const counted = (value: number | bigint, word: string): string =>
  `${count(value)} ${word}${Number(value) === 1 ? "" : "s"}`;
