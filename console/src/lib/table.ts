// Rows of cells as text for other programs.

export type Cell = string | number;

function cell(value: Cell, separator: string): string {
  const text = `${value}`;
  // A spreadsheet would run a text that begins like a formula.
  const safe = typeof value === "string" && /^([=+@\t\r]|-.)/s.test(text) ? `'${text}` : text;
  return /["\n\r]/.test(safe) || safe.includes(separator) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
const lines = (rows: Cell[][], separator: string): string =>
  `${rows.map((row) => row.map((value) => cell(value, separator)).join(separator)).join("\r\n")}\r\n`;

/** For files. */
export const csv = (rows: Cell[][]): string => lines(rows, ",");
/** For the clipboard: spreadsheets paste it as cells. */
export const tsv = (rows: Cell[][]): string => lines(rows, "\t");
