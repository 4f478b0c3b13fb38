import { expect, test } from "vitest";
import { consoleUrl } from "../headlamp-plugin/src/url.ts";

const web = { kind: "Deployment", group: "apps", metadata: { name: "web", namespace: "shop", uid: "u" } };

test("an object has its page behind the address of the console, with its ticket", () => {
  const url = new URL(consoleUrl("http://127.0.0.1:41573/#token=5f0c", "plan", web)!);
  expect([url.origin, url.pathname, url.hash]).toEqual(["http://127.0.0.1:41573", "/", "#token=5f0c"]);
  const query = { page: "plan", kind: "Deployment", group: "apps", ns: "shop", name: "web", uid: "u" };
  expect(Object.fromEntries(url.searchParams)).toEqual(query);
});
test("an address behind a path keeps it, and what is empty is left out", () => {
  const node = { kind: "Node", group: "", metadata: { name: "a&b=c" } };
  expect(consoleUrl("https://example.com/console/", "object", node)).toBe(
    "https://example.com/console/?page=object&kind=Node&name=a%26b%3Dc",
  );
});
test.each([undefined, "", "127.0.0.1:41573", "javascript:alert(1)//", "data:text/html,x", "file:///etc/passwd"])(
  "%s is no address of a console",
  (address) => expect(consoleUrl(address, "object", web)).toBeUndefined(),
);
