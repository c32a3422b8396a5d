// Holds what the server answers, and every event that it sends, against openapi.json. Importing it watches this process's `fetch`
// and `WebSocket`, so that no test has to ask for it; readers of event streams call `described.event` themselves.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";

const document = JSON.parse(readFileSync(new URL("../../src/api/openapi.json", import.meta.url), "utf8"));

/** Closes every object of the document, so that a field which is not described is found too. */
function closed(schema) {
  if (Array.isArray(schema)) return schema.map(closed);
  if (!schema || typeof schema !== "object") return schema;
  // What is made of parts is closed as a whole, and its parts stay open.
  if (schema.allOf) return { ...opened(schema), unevaluatedProperties: false };
  const entries = Object.entries(schema).map(([key, value]) => [key, key === "const" ? value : closed(value)]);
  const rest = schema.type === "object" && schema.properties ? { additionalProperties: false } : {};
  return { ...rest, ...Object.fromEntries(entries) };
}

/** With its references into the document as it is. */
function opened(schema) {
  if (Array.isArray(schema)) return schema.map(opened);
  if (!schema || typeof schema !== "object") return schema;
  const to = (key, value) => (key === "$ref" ? `open${value}` : opened(value));
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, to(key, value)]));
}

const ajv = new Ajv({ strict: false, validateFormats: false, logger: false });
ajv.addSchema(document, "open");
ajv.addSchema(closed(document), "closed");
const validators = new Map();

function check(pointer, value, what) {
  if (!validators.has(pointer)) validators.set(pointer, ajv.compile({ $ref: `closed#${pointer}` }));
  const validate = validators.get(pointer);
  if (validate(value)) return;
  const seen = JSON.stringify(value).slice(0, 1000);
  assert.fail(`${what} is not what openapi.json describes: ${ajv.errorsText(validate.errors)}: ${seen}`);
}

const pointer = (...keys) => keys.map((key) => `/${encodeURIComponent(key.replaceAll("~", "~0").replaceAll("/", "~1"))}`).join("");

const operations = Object.entries(document.paths).map(([path, methods]) => ({
  path,
  methods,
  matches: new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]+").replaceAll(".", "\\.")}$`),
}));

const resolved = (value) => (value?.$ref ? resolved(at(value.$ref.slice(1))) : value);
const at = (path) => path.split("/").slice(1).reduce((value, key) => value[key], document);

/** An answer of the server, with its body as text. */
function answer(method, path, status, type, body) {
  const operation = operations.find(({ matches }) => matches.test(path));
  const described = operation?.methods[method.toLowerCase()];
  const what = `${method} ${path}: ${status}`;
  if (!described) return error(status, type, body, what);
  const response = described.responses[status];
  if (response === undefined) return assert.fail(`${what} is not described: ${body.slice(0, 300)}`);
  const content = resolved(response).content ?? {};
  if (body === "") return;
  assert.ok(content[type], `${what} has the type ${type}, openapi.json knows ${Object.keys(content)}`);
  if (type !== "application/json") return;
  const from = response.$ref?.slice(1) ?? pointer("paths", operation.path, method.toLowerCase(), "responses", String(status));
  check(`${from}${pointer("content", type, "schema")}`, JSON.parse(body), what);
}

/** An answer where the document has no operation: an error, in the envelope of all errors. */
function error(status, type, body, what) {
  if (!type.includes("json") || status < 400 || body === "") return;
  check("/components/schemas/Error", JSON.parse(body), what);
}

/** An event of a stream, which it gives back. */
export function event(value) {
  check("/components/schemas/StreamEvent", value, "an event");
  return value;
}

const servers = new Set();

/** Watches what the server at that address answers. */
export function watch(url) {
  servers.add(new URL(url).host);
}

const fetchAnything = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const response = await fetchAnything(input, init);
  const { host, pathname } = new URL(response.url || (input.url ?? input));
  const type = (response.headers.get("content-type") ?? "").split(";")[0];
  if (!servers.has(host) || type === "text/event-stream") return response;
  const method = init?.method ?? input.method ?? "GET";
  answer(method.toUpperCase(), pathname, response.status, type, await response.clone().text());
  return response;
};

globalThis.WebSocket = class extends globalThis.WebSocket {
  constructor(url, ...rest) {
    super(url, ...rest);
    if (!servers.has(new URL(url).host)) return;
    // An exception in a listener ends the process with a failure, which is what is wanted.
    this.addEventListener("message", ({ data }) => check("/components/schemas/SocketMessage", JSON.parse(data), "a frame"));
  }
};
