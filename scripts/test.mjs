// `npm test`: every test. The native ones first (rules, in milliseconds), then those on the real runtime.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "./build.mjs";
import { python } from "./python.mjs";

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

step("format", "cargo", ["fmt", "--all", "--check"]);
step("lints", "cargo", ["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]);
step("documentation", "cargo", ["doc", "--quiet", "--no-deps", "--lib", "--document-private-items"], {
  RUSTDOCFLAGS: "-D warnings",
});
step("native tests", "cargo", ["test", "--quiet"]);
build();
const { why, old } = python();
if (why ?? old) console.error(`[test] some clients are left out: ${why ?? old}`);
const files = readdirSync(join(root, "tests", "e2e")).filter((name) => name.endsWith(".test.mjs"));
step("end-to-end tests", process.execPath, [
  "--test",
  "--test-concurrency=2",
  ...files.map((name) => join("tests", "e2e", name)),
]);
