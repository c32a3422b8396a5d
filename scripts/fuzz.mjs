// `npm run fuzz [target …]`: feeds the decoders and the readers of requests with what nobody has thought of, FUZZ_SECONDS
// each (ten minutes by default). A finding is written to fuzz/findings and ends the run. Needs Rust and a C++ compiler.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const TARGETS = ["sse", "responses", "chat", "anthropic", "api"];
const seconds = Number(process.env.FUZZ_SECONDS ?? 600);
const targets = process.argv.slice(2);

// Coverage for libFuzzer out of a stable compiler.
const RUSTFLAGS = [
  "-Cpasses=sancov-module",
  "-Cllvm-args=-sanitizer-coverage-level=4",
  "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
  "-Cllvm-args=-sanitizer-coverage-pc-table",
  "-Cllvm-args=-sanitizer-coverage-trace-compares",
  "-Ccodegen-units=1",
].join(" ");

function run(command, args, env = {}) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit", env: { ...process.env, ...env } });
  if (status !== 0) process.exit(status ?? 1);
}

// With a target of its own, build scripts and macros are not covered as well.
const { stdout } = spawnSync("rustc", ["-vV"], { encoding: "utf8" });
const host = /^host: (.+)$/m.exec(stdout)[1];
const out = join(root, "target", "fuzz");
const build = ["build", "--profile", "fuzz", "-p", "layby-fuzz", "--target", host, "--target-dir", out];
run("cargo", build, { RUSTFLAGS });

for (const target of targets.length > 0 ? targets : TARGETS) {
  const corpus = join(out, "corpus", target);
  const findings = join(root, "fuzz", "findings") + "/";
  for (const folder of [corpus, findings]) mkdirSync(folder, { recursive: true });
  const seeds = join(root, "fuzz", "seeds", target);
  const args = [corpus, ...(existsSync(seeds) ? [seeds] : [])];
  const dictionary = join(root, "fuzz", "words.txt");
  const limits = [`-max_total_time=${seconds}`, "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"];
  console.log(`[fuzz] ${target}, ${seconds} s`);
  run(join(out, host, "fuzz", target), [
    ...args,
    ...limits,
    `-dict=${dictionary}`,
    `-artifact_prefix=${findings}`,
    "-print_final_stats=1",
  ]);
}
