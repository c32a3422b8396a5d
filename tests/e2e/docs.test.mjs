// What the documents show, run as it is written.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { serve } from "./kit.mjs";

test("the document on tokens does what it says", async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "acme:key-of-acme" });
  const text = readFileSync(fileURLToPath(new URL("../../docs/browser-tokens.md", import.meta.url)), "utf8");
  const block = /```sh\n(.*?)```/s.exec(text)[1];
  assert.match(block, /http:\/\/127\.0\.0\.1:8787/);
  const folder = mkdtempSync(join(tmpdir(), "layby-docs-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const script = block.replaceAll("http://127.0.0.1:8787", server.url);
  const shell = spawn("bash", ["-c", script], { cwd: folder, env: { ...process.env, key: "key-of-acme" } });
  let said = "";
  shell.stdout.on("data", (data) => (said += data));
  shell.stderr.on("data", (data) => (said += data));
  const [code] = await new Promise((resolve) => shell.on("close", (...end) => resolve(end)));
  assert.equal(code, 0, said);
  assert.match(
    said,
    /"status":"started".*"status":"accepted".*"code":"forbidden".*"revoked":true.*"code":"unauthorized"/s,
  );
  const stream = readFileSync(join(folder, "stream.txt"), "utf8");
  const deltas = [...stream.matchAll(/output_text\.delta\ndata: (.*)/g)].map(([, data]) => JSON.parse(data).delta);
  assert.equal(deltas.join(""), "The tool answered: Welcome to my page");
});
