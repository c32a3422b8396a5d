// The README's tour, run as it is written.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { serve } from "./kit.mjs";

test("the tour with curl does what it says", async (t) => {
  const server = await serve(t);
  const readme = readFileSync(fileURLToPath(new URL("../../README.md", import.meta.url)), "utf8");
  const tour = /```sh\n(.*?)```/s.exec(readme)[1];
  assert.match(tour, /http:\/\/127\.0\.0\.1:8787/);
  const folder = mkdtempSync(join(tmpdir(), "layby-tour-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const shell = spawn("bash", ["-c", tour.replaceAll("http://127.0.0.1:8787", server.url)], { cwd: folder });
  let said = "";
  shell.stdout.on("data", (data) => (said += data));
  shell.stderr.on("data", (data) => (said += data));
  await new Promise((resolve) => shell.on("close", resolve));
  const stream = readFileSync(join(folder, "stream.txt"), "utf8");
  assert.match(said, /"status":"started"/);
  assert.match(said, /"status":"waiting"/);
  assert.match(said, /"status":"accepted"/);
  assert.match(stream, /"arguments":"\{\\"selector\\":\\"h1\\"\}"/);
  const text = [...stream.matchAll(/output_text\.delta\ndata: (.*)/g)]
    .map((match) => JSON.parse(match[1]).delta)
    .join("");
  assert.equal(text, "The tool answered: Welcome to my page");
  assert.match(said, /"delta":"The tool answered: Welcome to my page"/, "the replay shows the text in one piece");
});
