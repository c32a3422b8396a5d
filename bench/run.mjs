// `npm run bench`: measures layby, and next to it the thinnest worker that could do the same, on this machine. Prints a
// table, and the same as a line of JSON.
//   BENCH_RUNS=3          runs, of which the medians are shown
//   npm run bench -- turn deltas     only the measures whose names begin so
//   npm run bench -- --against HEAD~3     next to another commit instead, which it builds: what is 5 % worse fails
import { cpus, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { build } from "../scripts/build.mjs";
import * as measures from "./measures.mjs";
import { buildOf } from "./against.mjs";
import { Model } from "./model.mjs";
import { Side, compareWith } from "./side.mjs";

const RUNS = Number(process.env.BENCH_RUNS ?? 3);
const { values, positionals: only } = parseArgs({ options: { against: { type: "string" } }, allowPositionals: true });
const ref = values.against;

/** The measures that need two served workers, in their order. */
const SERVED = [
  "plainTurn",
  "toolTurn",
  "throughput",
  "logged",
  "create",
  "deltas",
  "fanOut",
  "longTranscript",
  "wake",
];
/** Those that serve workers of their own. */
const OWN = ["memory", "coldStart"];
const OTHER = ref ?? "thin worker";
const wanted = (name) => only.length === 0 || only.some((start) => name.startsWith(start));

async function pair(model, options) {
  const sides = [];
  for (const name of ["layby", "other"]) sides.push(await new Side(name, model, options).start());
  return sides;
}

async function measured(name, work) {
  if (!wanted(name)) return [];
  const began = Date.now();
  const rows = await work();
  console.error(`[bench] ${name}: ${((Date.now() - began) / 1000).toFixed(0)} s`);
  for (const { name, unit, layby, other } of rows) console.error(`        ${name}: ${layby} ${unit}, ${OTHER} ${other ?? "–"}`);
  return rows;
}

async function run(model) {
  const rows = [];
  const sides = await pair(model);
  for (const name of SERVED) rows.push(...(await measured(name, () => measures[name](sides, model))));
  for (const side of sides) await side.stop();
  for (const name of OWN) rows.push(...(await measured(name, () => measures[name](model))));
  return rows;
}

/** What holds in every run alike. */
async function constants(model) {
  const billed = await measured("billed", async () => {
    const sides = await pair(model, { counts: true });
    const rows = await measures.billed(sides, model);
    for (const side of sides) await side.stop();
    return rows;
  });
  return [...billed, ...(await measured("size", measures.size))];
}

function medians(runs) {
  return runs[0].map((row, n) => {
    const of = (part) => measures.median(runs.map((run) => run[n][part]));
    return { ...row, layby: of("layby"), other: of("other") };
  });
}

/** Whether a row is as it should be, and how that is said. */
function judged({ unit, layby, other, limit, atLeast, most, over }) {
  // Beside another build: no time, no memory and no size grows by more than 5 %, and what is billed stays.
  if (ref && other === undefined) return ["", true];
  if (ref && unit === "/s") return ["≥ 0.95", layby >= 0.95 * other];
  if (ref) return unit === "" ? ["≤ 1", layby <= other] : ["≤ 1.05", layby <= 1.05 * other];
  if (limit !== undefined) return [`≤ ${limit}`, layby <= limit * other];
  if (atLeast !== undefined) return [`≥ ${atLeast}`, layby >= atLeast * other];
  if (most !== undefined) return [`≤ ${most} alone`, layby <= most];
  if (over !== undefined) return [`≤ ${over} more`, layby <= other + over];
  return ["", true];
}

function print(rows) {
  const figure = (value, unit) =>
    value === undefined ? "" : `${Number(value.toPrecision(3)).toString()}${unit ? ` ${unit}` : ""}`;
  const table = rows.map((row) => {
    const { name, unit, layby, other } = row;
    const [target, good] = judged(row);
    const ratio = other ? (layby / other).toFixed(2) : "";
    return [name, figure(layby, unit), figure(other, unit), ratio, target, target && (good ? "yes" : "NO")];
  });
  const head = ["", "layby", OTHER, "ratio", "target", "met"];
  const widths = head.map((_, n) => Math.max(...[head, ...table].map((row) => row[n].length)));
  const line = (row) =>
    `| ${row.map((cell, n) => (n ? cell.padStart(widths[n]) : cell.padEnd(widths[n]))).join(" | ")} |`;
  console.log(line(head));
  console.log(`| ${widths.map((width, n) => (n ? `${"-".repeat(width - 1)}:` : "-".repeat(width))).join(" | ")} |`);
  for (const row of table) console.log(line(row));
}

build();
if (ref) compareWith(await buildOf(ref));
const model = await new Model().start();
const runs = [];
for (let n = 1; n <= RUNS; n++) {
  console.error(`[bench] run ${n} of ${RUNS}`);
  runs.push(await run(model));
}
const rows = [...medians(runs), ...(await constants(model))];
model.stop();
print(rows);
const [{ model: cpu }] = cpus();
const machine = { cpu, cores: cpus().length, memory_gb: Math.round(totalmem() / 2 ** 30), node: process.version };
console.log(`\n${JSON.stringify({ machine, runs: RUNS, other: OTHER, rows })}`);
process.exit(!ref || rows.every((row) => judged(row)[1]) ? 0 : 1); // connections that are kept open
