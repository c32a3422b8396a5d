// Another commit's build, to measure this one beside it.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const git = (...args) => execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim();

/** Builds that commit in a folder of its own, once, and returns what gives the files of its worker. */
export async function buildOf(ref) {
  const commit = git("rev-parse", "--verify", `${ref}^{commit}`);
  const folder = join(root, ".cache", "against", commit);
  if (!existsSync(folder)) {
    git("worktree", "prune");
    git("worktree", "add", "--detach", folder, commit);
  }
  console.error(`[bench] building ${ref} (${commit.slice(0, 7)})`);
  const env = { ...process.env, LAYBY_CACHE: join(root, ".cache") };
  execFileSync(process.execPath, ["scripts/build.mjs"], { cwd: folder, env, stdio: ["ignore", "inherit", "inherit"] });
  const { built } = await import(pathToFileURL(join(folder, "scripts", "server.mjs")));
  return built;
}
