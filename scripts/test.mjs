// `npm test`: every test. The native ones first (rules, in milliseconds), then those on the real runtime. Where a browser or a
// Python is missing, it says at its end what it has left out; with LAYBY_REQUIRE_ALL=1 that is a failure.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { browser } from "./browser.mjs";
import { build } from "./build.mjs";
import { portkey } from "./portkey.mjs";
import { litellm, python } from "./python.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

function step(name, command, args, env = {}) {
  const began = Date.now();
  console.error(`\n[test] ${name}`);
  const result = spawnSync(command, args, {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, ...env },
  });
  if (result.status !== 0) {
    console.error(`[test] ${name}: failed (${result.error?.message ?? `exit ${result.status ?? result.signal}`})`);
    process.exit(1);
  }
  console.error(`[test] ${name}: ok in ${((Date.now() - began) / 1000).toFixed(0)} s`);
}

step("words", process.execPath, ["scripts/words.mjs"]);
step("format", "cargo", ["fmt", "--all", "--check"]);
step("lints", "cargo", ["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]);
step("documentation", "cargo", ["doc", "--quiet", "--no-deps", "--lib", "--document-private-items"], {
  RUSTDOCFLAGS: "-D warnings",
});
step("native tests", "cargo", ["test", "--quiet"]);
build();
const clients = python();
const leftOut = Object.entries({
  "the Python clients": clients.why,
  "omnigent-client": clients.why ? undefined : clients.old,
  "LiteLLM's proxy": litellm().why,
  "Portkey's gateway": portkey().why,
  "the tests in a browser": browser().why,
}).filter(([, why]) => why);
const report = () => leftOut.forEach(([what, why]) => console.error(`[test] left out: ${what}: ${why}`));
if (leftOut.length > 0 && process.env.LAYBY_REQUIRE_ALL === "1") {
  report();
  console.error("[test] LAYBY_REQUIRE_ALL=1 does not allow that");
  process.exit(1);
}
const files = readdirSync(join(root, "tests", "e2e")).filter((name) => name.endsWith(".test.mjs"));
step("end-to-end tests", process.execPath, [
  "--test",
  "--test-concurrency=2",
  ...files.map((name) => join("tests", "e2e", name)),
]);
report();
