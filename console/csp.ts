/** What the page may load. The back end sends the same policy as a header, which also covers frame-ancestors. */
export const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data: blob:",
  "font-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
];
export const HEADER = [...POLICY, "frame-ancestors 'none'"].join("; ");
