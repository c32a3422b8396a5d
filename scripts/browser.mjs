// Chromium for the tests in a browser: found or, where LAYBY_APT=1 allows it, installed from Debian's packages.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

const PATHS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The browser, or why there is none: `{path}` or `{why}`. */
export function browser() {
  const found = () => [process.env.LAYBY_CHROMIUM, ...PATHS].find((path) => path && existsSync(path));
  if (found()) return { path: found() };
  if (process.env.LAYBY_APT !== "1")
    return { why: "install Chromium, name one in LAYBY_CHROMIUM, or allow apt-get with LAYBY_APT=1" };
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  for (const args of [
    ["update", "-q"],
    ["install", "-y", "-q", "--no-install-recommends", "chromium"],
  ]) {
    const result = spawnSync("apt-get", args, { encoding: "utf8", env, timeout: 300_000 });
    if (result.status === 0) continue;
    const last = (result.stderr ?? "").trim().split("\n").at(-1);
    return { why: `apt-get ${args[0]}: ${result.error?.message ?? last}` };
  }
  return found() ? { path: found() } : { why: "Debian's package brought no chromium" };
}
