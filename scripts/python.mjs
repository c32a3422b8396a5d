// A Python of the project's own, with the clients that the end-to-end tests use unmodified.
import { spawnSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const home = join(process.env.LAYBY_CACHE ?? join(root, ".cache"), "python");
const PACKAGES = ["httpx==0.28.1", "httpx-sse==0.4.3"];

/** The interpreter, or why there is none: `{python}` or `{why}`. */
export function python() {
  const interpreter = join(home, "bin", "python");
  const ready = join(home, `ready-${PACKAGES.join("-")}`);
  if (existsSync(ready)) return { python: interpreter };
  rmSync(home, { recursive: true, force: true });
  const steps = [
    ["python3", ["-m", "venv", home]],
    [interpreter, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...PACKAGES]],
  ];
  for (const [command, args] of steps) {
    const result = spawnSync(command, args, { encoding: "utf8", timeout: 120_000 });
    if (result.status !== 0) {
      const last = (result.stderr ?? "").trim().split("\n").at(-1);
      return { why: `${command} ${args.slice(0, 3).join(" ")}: ${result.error?.message ?? last}` };
    }
  }
  writeFileSync(ready, "");
  return { python: interpreter };
}
