// `npm run fuzz:api`: holds a served worker against its own openapi.json with Schemathesis: examples, edges, random
// requests, and sequences of them. FUZZ_EXAMPLES bounds the random ones per operation; what follows goes to Schemathesis:
// `npm run fuzz:api -- --seed 7`. Needs PyPI the first time.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "./build.mjs";
import { schemathesis } from "./python.mjs";

const examples = process.env.FUZZ_EXAMPLES ?? "50";

const CHECKS = [
  "not_a_server_error",
  "status_code_conformance",
  "content_type_conformance",
  "response_headers_conformance",
  "response_schema_conformance",
];
/** Answers without an end. */
const ENDLESS = ["streamEvents", "openSocket"];
/** What is asked of a session that stays. */
const READERS = ["getSession", "listItems", "getSessionAgent", "forkSession", "listEvents", "postEvent"];

const TOOL = { type: "function", function: { name: "look" } };

/** A session with a parked call and a waiting message, and their names. */
async function parked(url) {
  const post = async (path, body) => {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`POST ${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const { id } = await post("/v1/sessions", {});
  const say = (content) =>
    post(`/v1/sessions/${id}/events`, { type: "message", data: { role: "user", content }, tools: [TOOL] });
  await say("look");
  const { item_id: item } = await say("and then?");
  return { id, item, call: "call_scripted_0_0" };
}

/**
 * Schemathesis's settings: names of things that are there, beside those that it makes up and those that it finds in answers.
 * What is deleted, or patched to end soon, is another one.
 */
async function settings(url) {
  const [used, patched] = [await parked(url), await parked(url)];
  const values = { session: used.id, patched: patched.id, item: used.item, call: used.call };
  const words = Object.entries(values).map(([name, value]) => `[dictionaries.${name}]\nvalues = ["${value}"]`);
  const use = (operations, parameters) => {
    const pairs = Object.entries(parameters).map(
      ([name, words]) => `"path.${name}" = { dictionary = "${words}", probability = 0.8 }`,
    );
    return `[[operations]]\n${operations}\nparameters = { ${pairs.join(", ")} }`;
  };
  return [
    "request-timeout = 40", // a request may wait for an event for 25 seconds
    ...words,
    use(`include-operation-id = "patchSession"`, { id: "patched" }),
    use(`include-operation-id = "withdrawMessage"`, { id: "session", item_id: "item" }),
    use(`include-operation-id = "cancelCall"`, { id: "session", call_id: "call" }),
    use(`include-operation-id = ${JSON.stringify(READERS)}`, { id: "session" }),
  ].join("\n");
}

async function main() {
  const { python, why, unreachable } = schemathesis();
  if (!python) {
    console.error(`[fuzz:api] ${unreachable ? "not run, PyPI cannot be reached" : "failed"}: ${why}`);
    return unreachable ? 0 : 1;
  }
  build();
  const { Server } = await import("./server.mjs");
  const folder = mkdtempSync(join(tmpdir(), "layby-"));
  const server = new Server({ storage: join(folder, "storage"), vars: { LAYBY_OPEN: "true" } });
  try {
    await server.start();
    const config = join(folder, "schemathesis.toml");
    writeFileSync(config, await settings(server.url));
    const args = [
      ...["--config-file", config, "run", `${server.url}/openapi.json`, "--url", server.url],
      ...["--checks", CHECKS.join(","), "--max-examples", examples, "--continue-on-failure"],
      ...["--generation-database", "none", "--warnings", "off"],
      ...ENDLESS.flatMap((id) => ["--exclude-operation-id", id]),
      ...process.argv.slice(2),
    ];
    console.error(`[fuzz:api] ${server.url}, at most ${examples} random requests per operation`);
    const child = spawn(python, ["-m", "schemathesis.cli", ...args], { cwd: folder, stdio: "inherit" });
    return await new Promise((done, failed) => {
      child.once("error", failed);
      child.once("exit", (code, signal) => done(signal ? 1 : code));
    });
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
