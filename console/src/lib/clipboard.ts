import { app } from "./app.svelte.ts";

/** A longer text is no help in a message. */
const SHOWN_MAX = 500;

/** Copies a text, and says so. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    app.say(`${what} copied.`);
  } catch {
    const instead = text.length > SHOWN_MAX ? "" : ` ${what}: ${text}`;
    app.say(`The browser refuses access to the clipboard.${instead}`);
  }
}
